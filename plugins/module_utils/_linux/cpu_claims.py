# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPUs are whose: those for the system and those that are isolated from it must not be the same.

Two concerns declare them, and each may be the first on a node: ``cpu_isolation`` the CPUs of the system, and
``kernel_cmdline`` those that the kernel keeps free of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, AbstractSet, Any, Dict, FrozenSet, List, Mapping, Tuple

from .._core.errors import DeclarationError
from .._core.value import frozen
from . import cpulist
from .cpu_topology import expand, isolated_by
from .cpus import FOLDER as CPUS
from .cpus import read_cpus

if TYPE_CHECKING:
    from .._core.protocols import Files

HOUSEKEEPING, ISOLATED = "cpu_isolation", "kernel_cmdline"
OPTION = "housekeeping_cpus"
# The arguments that keep the scheduler or the tick from CPUs, with the file that says of which.
FILES = {"isolcpus": f"{CPUS}/isolated", "nohz_full": f"{CPUS}/nohz_full"}


@frozen
class Claim:
    """CPUs as one option of a concern has them, or as the running kernel does (``owner``)."""

    owner: str
    name: str
    text: str
    cpus: FrozenSet[int]


def housekeeping(declaration: Mapping[str, Any], last: int) -> Tuple[Claim, ...]:
    """The CPUs that a declaration of ``cpu_isolation`` has for the system; what is wrong is refused by its own look."""
    return _claims(HOUSEKEEPING, {OPTION: declaration.get(OPTION)}, last)


def isolated(declaration: Mapping[str, Any], last: int) -> Tuple[Claim, ...]:
    """The CPUs that a declaration of ``kernel_cmdline`` isolates."""
    arguments = declaration.get("arguments")
    if not isinstance(arguments, dict):
        return ()
    return _claims(ISOLATED, {str(name).replace("-", "_"): value for name, value in arguments.items()}, last)


def isolated_now(files: Files) -> Tuple[Claim, ...]:
    """The CPUs that the running kernel isolates."""
    found = ((name, read_cpus(files, path)) for name, path in FILES.items())
    return tuple(Claim("the running kernel", name, cpulist.render(cpus), cpus) for name, cpus in found if cpus)


def contradictions(declarations: Mapping[str, Mapping[str, Any]], files: Files) -> Dict[str, DeclarationError]:
    """The refusal of both concerns, where both are declared and want the same CPUs for different things."""
    if any(declarations[name].get("state", "present") != "present" for name in (HOUSEKEEPING, ISOLATED)):
        return {}
    last = max(read_cpus(files, f"{CPUS}/possible"), default=0)
    ours = housekeeping(declarations[HOUSEKEEPING], last)
    theirs = isolated(declarations[ISOLATED], last)
    return {
        name: error
        for name, claims, others in ((HOUSEKEEPING, ours, theirs), (ISOLATED, theirs, ours))
        for error in refusals(claims, others)
    }


def refusals(claims: Tuple[Claim, ...], others: Tuple[Claim, ...]) -> List[DeclarationError]:
    """The first of these claims that another one contradicts, refused, with who makes the other one."""
    for claim in claims:
        for other in others:
            both = claim.cpus & other.cpus
            if both:
                return [_refusal(claim, other, both)]
    return []


def _refusal(claim: Claim, other: Claim, both: AbstractSet[int]) -> DeclarationError:
    name, others_name = (text if text == OPTION else f"kernel argument {text}" for text in (claim.name, other.name))
    cause = f"{cpulist.render(both)} {'is' if len(both) == 1 else 'are'} in {others_name} of {other.owner} too"
    return DeclarationError(
        "declare {}",
        object=name,
        cause=f"a CPU is either for the system or isolated from it, and {cause}",
        found=f"{others_name} {other.text}",
        wanted=claim.text,
        hint=f"take these CPUs out of one of the two lists; {OPTION} are those for the system",
    )


def _claims(owner: str, lists: Mapping[str, Any], last: int) -> Tuple[Claim, ...]:
    found = []
    for name in (OPTION, *FILES):
        value = lists.get(name)
        # No machine has a CPU of six digits, and none shall be filled with their numbers.
        if isinstance(value, (str, int)) and not isinstance(value, bool) and not re.search("[0-9]{6}", str(value)):
            try:
                cpus = expand(str(value), last) if name == OPTION else isolated_by(str(value), last)
            except ValueError:
                continue
            found.append(Claim(owner, name, str(value), cpus))
    return tuple(found)
