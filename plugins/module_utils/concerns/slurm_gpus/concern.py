# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``slurm_gpus``: what Slurm allocates of a node is what the driver has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.errors import GpuFleetError
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.value import replace
from ..._kinds.units import RUNNING, STOPPED
from ..._text.slurm_conf import counts_of
from .observation import observe
from .options import OPTIONS
from .plan import RESTART_SLURMCTLD, plan
from .resolve import GRES, resolve
from .spec import FOLDER, NAME, SlurmDeclaration, parse
from .state import FAILED, SlurmDesired

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Plan, Step
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .state import SlurmState


class SlurmGpus:
    """``convergence.Concern`` for the GPUs of a compute node of Slurm."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        # A slurmctld that its topology restarts has the counts of its slurm.conf by then.
        after=("kernel_modules", "nvml", "nvidia_persistence", "fabric_manager", "mig_layout", "slurm_topology"),
        tells=(RESTART_SLURMCTLD,),
        deadline=DRIVER_DEADLINE,
    )

    def parse(self, params: Mapping[str, Any]) -> SlurmDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> SlurmDeclaration:
        """The folder and the name of the node are in what was changed there."""
        folder, node = FOLDER, ""
        for identity, setting in baseline.values:
            path, _colon, name = identity.partition(":")
            if path.endswith(("/gres.conf", "/slurm.conf", "/cgroup.conf")):
                folder = path.rpartition("/")[0] or "/"
            if setting == GRES:
                node = name
        return SlurmDeclaration(folder=folder, node=node)

    def observe(self, host: Host, declaration: SlurmDeclaration, scope: Scope) -> SlurmState:
        state = observe(host, declaration, scope)
        # A node is idle with jobs that are suspended: one that is as declared need not be asked for them.
        if state.live is None or state.live.occupied or not (scope.restoring or _differs(declaration, state)):
            return state
        from ..._machine.slurmctld import Controller

        return replace(state, jobs=Controller(host.commands).jobs(state.node))

    def resolve(self, declaration: SlurmDeclaration, state: SlurmState) -> SlurmDesired:
        return resolve(declaration, state)

    def restore(self, baseline: Baseline, state: SlurmState) -> SlurmDesired:
        from .steps import restore

        return restore(baseline, state)

    def plan(self, state: SlurmState, desired: SlurmDesired, scope: Scope) -> Plan:
        return plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from .apply import perform

        perform(step, host)

    def report(self, state: SlurmState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        from .gres_conf import ours_in

        daemons, live, line = state.daemons, state.live, state.line
        service = RUNNING if daemons.slurmd is not None else FAILED if daemons.failed else STOPPED
        now = {
            "node": state.node,
            "slurmd": service if daemons.installed else None,
            "state": live.state if live is not None else None,
            "gres": live.gres or None if live is not None else None,
        }
        _auto, lines = ours_in(state.gres.text)
        return now, {"gres": line.gres if line is not None else None, "lines": [one.text for one in lines]}


CONCERN = SlurmGpus()


def _differs(declaration: SlurmDeclaration, state: SlurmState) -> bool:
    """Whether slurmd or slurmctld may be about to have other GPUs."""
    try:
        desired = resolve(declaration, state)
    except GpuFleetError:
        # Nothing will change, and the reason is said when it is resolved again.
        return False
    file, live = state.gres, state.live
    texts = {desired.gres_text, file.text, file.read}
    return len(texts) > 1 or live is None or counts_of(live.gres) != counts_of(desired.gres)
