# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPUs are whose: what four concerns declare of the same CPUs must fit together, whichever is the first.

``cpu_isolation`` has the CPUs of the system, ``kernel_cmdline`` those that the kernel keeps free of it, and
``numa_irq_affinity`` those of interrupts, and those that get none. ``kubelet_config`` has those that no pod gets for
itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, AbstractSet, Any, Dict, FrozenSet, List, Mapping, Tuple

from .._core.errors import DeclarationError
from .._core.value import frozen
from . import cpulist
from .cpu_topology import expand, isolated_by
from .cpus import FOLDER as CPUS
from .cpus import online_by_node, read_cpus

if TYPE_CHECKING:
    from .._core.protocols import Files

HOUSEKEEPING, ISOLATED, INTERRUPTS = "cpu_isolation", "kernel_cmdline", "numa_irq_affinity"
KUBELET, RESERVED_SYSTEM = "kubelet_config", "reserved_system_cpus"
OPTION, RESERVED = "housekeeping_cpus", "reserved_cpus"
RUNNING = "the running kernel"
YES = ("true", "yes", "on", "1", "y", "t")
# The arguments that keep the scheduler or the tick from CPUs, with the file that says of which.
FILES = {"isolcpus": f"{CPUS}/isolated", "nohz_full": f"{CPUS}/nohz_full"}


@frozen
class Claim:
    """CPUs as one option of a concern has them, or as the running kernel does (``owner``)."""

    owner: str
    name: str
    text: str
    cpus: FrozenSet[int]

    @property
    def option(self) -> str:
        """What a person calls it in a message."""
        return f"kernel argument {self.name}" if self.name in FILES else self.name


@frozen
class InterruptClaims:
    """What is declared of interrupts: the CPUs that entries name one by one, and those that are reserved from all.

    ``local`` says whether an entry leaves the choice to the place of its devices.
    """

    named: Tuple[Claim, ...] = ()
    reserved: Tuple[Claim, ...] = ()
    local: bool = False


def housekeeping(declaration: Mapping[str, Any], last: int) -> Tuple[Claim, ...]:
    """The CPUs that a declaration of ``cpu_isolation`` has for the system; what is wrong is refused by its own look."""
    return _claims(HOUSEKEEPING, {OPTION: declaration.get(OPTION)}, last)


def isolated(declaration: Mapping[str, Any], last: int) -> Tuple[Claim, ...]:
    """The CPUs that a declaration of ``kernel_cmdline`` isolates."""
    arguments = declaration.get("arguments")
    if not isinstance(arguments, dict):
        return ()
    return _claims(ISOLATED, {str(name).replace("-", "_"): value for name, value in arguments.items()}, last)


def interrupts(declaration: Mapping[str, Any]) -> InterruptClaims:
    """What a declaration of ``numa_irq_affinity`` says of CPUs; one without entries is about no interrupt."""
    entries = declaration.get("interrupts")
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if not entries:
        return InterruptClaims()
    named, local = [], False
    for index, entry in enumerate(entries):
        cpus = _listed(entry.get("cpus"))
        local = local or not cpus
        # Nobody has made booleans of what the inventory says.
        if cpus and str(entry.get("isolated")).lower() not in YES:
            named.append(Claim(INTERRUPTS, f"interrupts[{index}].cpus", cpulist.render(cpus), cpus))
    reserved = _listed(declaration.get(RESERVED))
    text = cpulist.render(reserved)
    return InterruptClaims(tuple(named), (Claim(INTERRUPTS, RESERVED, text, reserved),) if reserved else (), local)


def kubelet(declaration: Mapping[str, Any]) -> Tuple[Claim, ...]:
    """The CPUs that a declaration of ``kubelet_config`` keeps from pods that have CPUs for themselves."""
    reserved = _listed(declaration.get(RESERVED_SYSTEM))
    return (Claim(KUBELET, RESERVED_SYSTEM, cpulist.render(reserved), reserved),) if reserved else ()


def isolated_now(files: Files) -> Tuple[Claim, ...]:
    """The CPUs that the running kernel isolates."""
    found = ((name, read_cpus(files, path)) for name, path in FILES.items())
    return tuple(Claim(RUNNING, name, cpulist.render(cpus), cpus) for name, cpus in found if cpus)


def contradictions(declarations: Mapping[str, Mapping[str, Any]], files: Files) -> Dict[str, DeclarationError]:
    """The refusals of the concerns that are declared and want the same CPUs for different things."""
    declared = {
        name: declarations[name] if declarations.get(name, {}).get("state", "present") == "present" else {}
        for name in (HOUSEKEEPING, ISOLATED, INTERRUPTS, KUBELET)
        if name in declarations
    }
    last = max(read_cpus(files, f"{CPUS}/possible"), default=0)
    system = housekeeping(declared.get(HOUSEKEEPING, {}), last)
    theirs = isolated(declared.get(ISOLATED, {}), last)
    of_interrupts = interrupts(declared.get(INTERRUPTS, {}))
    found: Dict[str, DeclarationError] = {}
    for owner, claims, others in ((HOUSEKEEPING, system, theirs), (ISOLATED, theirs, system)):
        for error in refusals(claims, others):
            found.setdefault(owner, error)
    for claim in kubelet(declared.get(KUBELET, {})):
        for error in (*refusals((claim,), theirs), *unreserved(claim, system)):
            found.setdefault(KUBELET, error)
    for owners, error in interrupt_refusals(of_interrupts, system, theirs, files):
        for owner in owners:
            found.setdefault(owner, error)
    return found


def refusals(claims: Tuple[Claim, ...], others: Tuple[Claim, ...]) -> List[DeclarationError]:
    """The first of these claims that another one contradicts, refused, with who makes the other one."""
    for claim in claims:
        for other in others:
            both = claim.cpus & other.cpus
            if both:
                return [_refusal(claim, other, both)]
    return []


def unreserved(claim: Claim, system: Tuple[Claim, ...]) -> List[DeclarationError]:
    """The refusal of a kubelet that would give CPUs of the system to a pod alone."""
    for other in system:
        missing = other.cpus - claim.cpus
        if missing:
            cause = (
                f"{_are(missing)} in {other.option} of {other.owner}, and the kubelet would give them to a pod alone"
            )
            return [
                DeclarationError(
                    "declare {}",
                    object=claim.option,
                    cause=cause,
                    found=f"{other.option} {other.text}",
                    wanted=claim.text,
                    hint=f"let {claim.option} have all CPUs of {other.option}",
                )
            ]
    return []


def interrupt_refusals(
    of_interrupts: InterruptClaims, system: Tuple[Claim, ...], isolating: Tuple[Claim, ...], files: Files
) -> List[Tuple[Tuple[str, str], DeclarationError]]:
    """What contradicts ``numa_irq_affinity``, with all concerns that are in it: one of them has to be declared anew."""
    found = [
        ((claim.owner, other.owner), _interrupted(claim, other, claim.cpus & other.cpus))
        for claim in of_interrupts.named
        for other in isolating
        if claim.cpus & other.cpus
    ]
    for reserved in of_interrupts.reserved:
        nodes = _nodes(files)
        for claim in system:
            ours = claim.cpus.intersection(frozenset().union(*nodes.values()))
            # Those of one node alone may be meant, for work that interrupts would disturb.
            if ours and ours <= reserved.cpus:
                found.append(((claim.owner, reserved.owner), _without_system(reserved, claim, ours)))
        for node, own in nodes.items():
            for claim in isolating if of_interrupts.local else ():
                if own & reserved.cpus and own <= reserved.cpus | claim.cpus:
                    found.append(((claim.owner, reserved.owner), _nothing_left(reserved, claim, node, own)))
    return found


def _nodes(files: Files) -> Dict[str, FrozenSet[int]]:
    """The online CPUs of each NUMA node that has some, and those of a machine without NUMA nodes together."""
    return online_by_node(files) or {"this machine": read_cpus(files, f"{CPUS}/online")}


def _refusal(claim: Claim, other: Claim, both: AbstractSet[int]) -> DeclarationError:
    cause = f"{_are(both)} in {other.option} of {other.owner} too"
    return DeclarationError(
        "declare {}",
        object=claim.option,
        cause=f"a CPU is either for the system or isolated from it, and {cause}",
        found=f"{other.option} {other.text}",
        wanted=claim.text,
        hint=f"take these CPUs out of one of the two lists; {OPTION} are those for the system",
    )


def _interrupted(claim: Claim, other: Claim, both: AbstractSet[int]) -> DeclarationError:
    return DeclarationError(
        "declare {}",
        object=f"{claim.name} of {claim.owner}",
        cause=f"interrupts would go to isolated CPUs, since {_are(both)} in {other.option} of {other.owner} too",
        found=f"{other.option} {other.text}",
        wanted=claim.text,
        hint="take these CPUs out of one of the two lists, or set isolated: true in the entry for CPUs that are"
        " to do nothing but these interrupts",
    )


def _without_system(reserved: Claim, claim: Claim, ours: AbstractSet[int]) -> DeclarationError:
    cause = f"no interrupt could use any of the CPUs for the system: {_are(ours)} in {claim.name} of "
    return DeclarationError(
        "declare {}",
        object=f"{reserved.name} of {reserved.owner}",
        cause=f"{cause}{claim.owner} too, so that they would all go to the CPUs of jobs",
        found=f"{claim.name} {claim.text}",
        wanted=reserved.text,
        hint=f"leave some of {claim.name} out of {reserved.name}; {reserved.name} are CPUs without interrupts, such as"
        " those of jobs",
    )


def _nothing_left(reserved: Claim, claim: Claim, node: str, own: AbstractSet[int]) -> DeclarationError:
    return DeclarationError(
        "declare {}",
        object=f"{reserved.name} of {reserved.owner}",
        cause=f"no CPU of {node} is left for the interrupts of its devices: of {cpulist.render(own)} the others are in"
        f" {claim.option} of {claim.owner}",
        found=f"{claim.option} {claim.text}",
        wanted=reserved.text,
        hint="leave some CPUs of this node out of both lists",
    )


def _are(cpus: AbstractSet[int]) -> str:
    return f"{cpulist.render(cpus)} {'is' if len(cpus) == 1 else 'are'}"


def _listed(text: Any) -> FrozenSet[int]:
    """A list of CPUs as ``numa_irq_affinity`` takes it, none for ``local`` and for what its own look refuses."""
    # No machine has a CPU of six digits, and none shall be filled with their numbers.
    if not isinstance(text, (str, int)) or isinstance(text, bool) or re.search("[0-9]{6}", str(text)):
        return frozenset()
    try:
        return cpulist.parse(re.sub(r"\s*,\s*", ",", str(text)))
    except ValueError:
        return frozenset()


def _claims(owner: str, lists: Mapping[str, Any], last: int) -> Tuple[Claim, ...]:
    found = []
    for name in (OPTION, *FILES):
        value = lists.get(name)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and not re.search("[0-9]{6}", str(value)):
            try:
                cpus = expand(str(value), last) if name == OPTION else isolated_by(str(value), last)
            except ValueError:
                continue
            found.append(Claim(owner, name, str(value), cpus))
    return tuple(found)
