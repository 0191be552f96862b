# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a machine can live with the CPUs that are left to its system, and with the services that are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.errors import DeclarationError
from ..._linux import cpulist
from .spec import OPTION
from .work import BATCH

if TYPE_CHECKING:
    from ..._linux.cpu_topology import CpuTopology
    from .spec import CpuIsolationDeclaration
    from .state import CpuIsolationState


def check(declaration: CpuIsolationDeclaration, state: CpuIsolationState, topology: CpuTopology) -> None:
    """Raises ``DeclarationError`` on a list or a service with which something would be worse than before."""
    cpus = declaration.cpus
    beyond = cpus - topology.possible
    if beyond:
        last = topology.last
        raise _wrong(declaration, f"CPU {min(beyond)} does not exist", f"list CPUs up to {last}")
    offline = cpus - topology.online
    if offline:
        one = len(offline) == 1
        raise _wrong(
            declaration,
            f"CPU{'' if one else 's'} {cpulist.render(offline)} {'is' if one else 'are'} offline",
            f"list CPUs that are online, which are {cpulist.render(topology.online)}",
        )
    core = topology.split_core(cpus)
    if core:
        cause = f"CPUs {cpulist.render(core)} are one core, and it has only {cpulist.render(core & cpus)}"
        raise _wrong(declaration, cause, "list all threads of a core or none")
    if cpus == topology.online:
        raise _wrong(declaration, "no CPU is left for jobs", "list the CPUs for the system, and not those for jobs")
    if len(cpus) * 2 > len(topology.online) and not declaration.most_housekeeping:
        raise _wrong(
            declaration,
            f"it has {len(cpus)} of {len(topology.online)} CPUs, which looks inverted",
            "list the CPUs for the system, and not those for jobs, or set most_housekeeping: true",
        )
    bare = topology.node_without(cpus)
    if bare is not None:
        cause = f"it has no CPU of {bare[0]}, and what the system does for its devices and memory would be remote"
        raise _wrong(declaration, cause, f"add a core of {cpulist.render(bare[1])}")
    for name in declaration.daemons:
        daemon = state.daemons.get(name)
        if daemon is not None and (daemon.delegated or name in BATCH):
            why = "runs jobs in its control group" if name in BATCH else "divides its control group itself (Delegate=)"
            raise DeclarationError(
                "confine {}",
                object=name,
                cause=f"it {why}, and what it starts there would be confined with it",
                hint="leave it out of daemons",
            )


def _wrong(declaration: CpuIsolationDeclaration, cause: str, hint: str) -> DeclarationError:
    return DeclarationError(
        "declare {}", object=OPTION, cause=cause, wanted=cpulist.render(declaration.cpus), hint=hint
    )
