# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``dcgm``: the host engine of DCGM and its exporter, with the metrics that alerts need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.registration import Registration
from .observation import ENGINES, EXPORTERS, HEALTH, observe
from .options import OPTIONS
from .plan import plan
from .resolve import resolve
from .spec import NAME, WATCHES, DcgmDeclaration, parse
from .state import HEALTH as HEALTH_WATCHES

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Change, Plan, Step
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .state import DcgmDesired, DcgmState


class Dcgm:
    """``convergence.Concern`` for what watches the GPUs."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # It holds the GPUs: those that need them for themselves are through by then, and start it again as it was.
    registration = Registration(
        after=("kernel_modules", "nvidia_persistence", "mig_layout", "gpu_settings", "quiet_services"),
        owns=tuple(f"unit {name}" for name in (*ENGINES, *EXPORTERS, HEALTH)),
    )

    def parse(self, params: Mapping[str, Any]) -> DcgmDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> DcgmDeclaration:
        watched = any(setting == HEALTH_WATCHES for _unit, setting in baseline.values)
        return DcgmDeclaration(watches=frozenset(WATCHES) if watched else frozenset())

    def observe(self, host: Host, declaration: DcgmDeclaration, scope: Scope) -> DcgmState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: DcgmDeclaration, state: DcgmState) -> DcgmDesired:
        return resolve(declaration, state)

    def restore(self, baseline: Baseline, state: DcgmState) -> DcgmDesired:
        from .restore import restore

        return restore(baseline, state)

    def plan(self, state: DcgmState, desired: DcgmDesired, scope: Scope) -> Plan:
        return plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(step, host)

    def report(self, state: DcgmState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        exporter = state.exporter
        generation, minor = state.release
        effective: Dict[str, Any] = {
            "release": f"{generation}.{minor}" if generation else None,
            "host_engine": state.engine.service if state.engine.active is not None else None,
            "exporter": exporter.service.service if exporter.service.active is not None else None,
            "health_watches": state.watches,
            "metrics": None if exporter.served is None else dict(sorted(exporter.served.items())),
        }
        boot = {
            "host_engine": state.engine.status,
            "exporter": exporter.service.status,
            "metrics": {name: metric.type for name, metric in sorted(state.at_boot.items())},
        }
        return effective, boot


CONCERN = Dcgm()
