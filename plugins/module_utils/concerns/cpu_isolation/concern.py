# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``cpu_isolation``: the system's daemons have some CPUs, and the jobs the others for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Mapping, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._linux import cpulist
from . import plan
from .observation import observe
from .options import OPTIONS
from .spec import HOUSEKEEPING, CpuIsolationDeclaration, parse
from .state import CPUS, NAME, CpuIsolationDesired, CpuIsolationState, shown

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


class CpuIsolation:
    """``convergence.Concern`` for the CPUs of the system's daemons."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # What the kernel isolates and which threads are online is decided first; what is quieted need not be confined.
    registration = Registration(after=("kernel_cmdline", "cpu_power", "quiet_services"))

    def parse(self, params: Mapping[str, Any]) -> CpuIsolationDeclaration:
        return parse(params)

    def knobs(self, declaration: CpuIsolationDeclaration) -> Tuple[str, ...]:
        made = (HOUSEKEEPING,) if declaration.daemons else ()
        return (
            *(f"AllowedCPUs of {name}" for name in (*declaration.slices, *made)),
            *(f"Slice of {name}" for name in declaration.daemons),
        )

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> CpuIsolationDeclaration:
        # The record has the files too.
        names = (name for name, _setting in baseline.values if not name.startswith("/"))
        return CpuIsolationDeclaration(known=tuple(dict.fromkeys(names)))

    def observe(self, host: Host, declaration: CpuIsolationDeclaration, scope: Scope) -> CpuIsolationState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: CpuIsolationDeclaration, state: CpuIsolationState) -> CpuIsolationDesired:
        for name in state.lacking:
            if name not in declaration.optional:
                raise DeclarationError(
                    "confine {}",
                    object=name,
                    cause="this machine has no such unit",
                    hint="leave it out, or set optional: true for it",
                )
        if state.topology is not None:
            from .check import check

            check(declaration, state, state.topology)
        daemons = tuple(name for name in declaration.daemons if name in state.daemons)
        slices = (*declaration.slices, *((HOUSEKEEPING,) if daemons else ()))
        if state.unavailable:
            reasons = tuple(Unmanaged(name, CPUS, state.unavailable) for name in slices)
            return CpuIsolationDesired(unmanaged=reasons)
        return CpuIsolationDesired(
            slices=dict.fromkeys(slices, declaration.cpus),
            daemons=daemons,
            when_busy=declaration.when_busy,
            busy_timeout=declaration.busy_timeout,
        )

    def restore(self, baseline: Baseline, state: CpuIsolationState) -> CpuIsolationDesired:
        """Without our files the others say again what they said."""
        return CpuIsolationDesired()

    def plan(self, state: CpuIsolationState, desired: CpuIsolationDesired, scope: Scope) -> Plan:
        return plan.plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: CpuIsolationState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Whose the CPUs are, and what is confined to which."""
        system = _system(state)
        isolated = {claim.name: claim.text for claim in state.isolated}
        effective: Dict[str, Any] = {
            "cpus": {
                "system": shown(system),
                "jobs": shown(state.online - system) if system else None,
                "isolated": isolated,
                "online": cpulist.render(state.online),
            },
            "slices": {name: shown(one.effective) for name, one in state.slices.items() if one.there},
            "daemons": {name: one.runs_in or None for name, one in state.daemons.items()},
        }
        boot: Dict[str, Any] = {
            "slices": {name: shown(one.allowed) for name, one in state.slices.items()},
            "daemons": {name: one.boot for name, one in state.daemons.items()},
        }
        return effective, boot

    def summary(self, state: CpuIsolationState) -> str:
        """Whose the CPUs are now, in a line."""
        system = _system(state)
        if not system:
            return "no CPU is for the system alone"
        parts = [f"{shown(system)} for the system", f"{shown(state.online - system)} for jobs"]
        return ", ".join([*parts, *(f"{claim.text} isolated by {claim.name}" for claim in state.isolated)])


CONCERN = CpuIsolation()


def _system(state: CpuIsolationState) -> FrozenSet[int]:
    """The CPUs of all that is confined, none where nothing is."""
    return frozenset().union(*(one.effective for one in state.slices.values()))
