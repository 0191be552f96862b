# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs of interrupts that somebody else has for something else: as the running kernel has them, and as is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.change import US, Conflict
from ..._core.declared import of_another
from ..._linux import cpu_claims, cpulist
from ..._linux.cpu_claims import Claim, InterruptClaims
from ..._linux.cpus import FOLDER, read_cpus
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.errors import DeclarationError
    from ..._core.protocols import Files
    from .spec import IrqAffinityDeclaration


def of_declaration(declaration: IrqAffinityDeclaration) -> InterruptClaims:
    """The CPUs that it names, without those of entries for isolated CPUs, and those that it reserves."""
    named = [(entry.entry.where, entry.cpus) for entry in declaration.entries if entry.cpus and not entry.isolated]
    reserved = declaration.reserved if declaration.entries else frozenset()
    return InterruptClaims(
        named=tuple(Claim(NAME, f"{where}.cpus", cpulist.render(cpus), cpus) for where, cpus in named),
        reserved=(Claim(NAME, cpu_claims.RESERVED, cpulist.render(reserved), reserved),) if reserved else (),
        local=any(entry.cpus is None for entry in declaration.entries),
    )


def overridden(files: Files, claims: InterruptClaims) -> Tuple[Conflict, ...]:
    """What the running kernel isolates and an entry names nevertheless: it gets the interrupts, and that is said."""
    isolated = cpu_claims.isolated_now(files) if claims.named else ()
    return tuple(
        Conflict(
            owner=other.owner,
            path=cpu_claims.FILES[other.name],
            line=None,
            object=claim.name,
            setting=other.name,
            value=cpulist.render(claim.cpus & other.cpus),
            wins=US,
        )
        for claim in claims.named
        for other in isolated
        if claim.cpus & other.cpus
    )


def contradiction(files: Files, claims: InterruptClaims) -> Optional[DeclarationError]:
    """The first that there is with what others declare on this node."""
    last = max(read_cpus(files, f"{FOLDER}/possible"), default=0)
    system = cpu_claims.housekeeping(of_another(files, cpu_claims.HOUSEKEEPING), last)
    isolated = cpu_claims.isolated(of_another(files, cpu_claims.ISOLATED), last)
    return next((error for _owners, error in cpu_claims.interrupt_refusals(claims, system, isolated, files)), None)
