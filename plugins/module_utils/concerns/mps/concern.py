# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``mps``: control daemons of CUDA's Multi-Process Service, and the limits of their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._linux import systemd
from ..._nvidia.readings import ask, select
from . import files as mps_files
from . import observation, plan, resolve
from .control import PROGRAM
from .driver import MpsGpu, branch, read
from .options import OPTIONS
from .spec import NAME, MpsDeclaration, memory_text, parse, patience
from .state import MpsDesired, MpsState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .state import Daemon, Values


class Mps:
    """``convergence.Concern`` for MPS."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # A daemon is a client of the GPUs: what they are, and their compute mode, comes first, and goes last.
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "mig_layout", "gpu_settings"),
        deadline=DRIVER_DEADLINE,
        owns=("unit gpufleet-mps*.service",),
    )

    def parse(self, params: Mapping[str, Any]) -> MpsDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> MpsDeclaration:
        return MpsDeclaration(changed=baseline, **patience(params))

    def observe(self, host: Host, declaration: MpsDeclaration, scope: Scope) -> MpsState:
        files, entries = host.files, declaration.entries
        found: Tuple[MpsGpu, ...] = ()
        unserved: Tuple[Unmanaged, ...] = ()
        number = 0
        if entries:
            host.nvml.begin()
            found, unserved, _missing = ask(host, read, entries=entries, restoring=scope.restoring)
            number = host.nvml.ask(branch) if declaration.multi_user and found else 0
        winners, handed_on = select(files, entries, [gpu.identity for gpu in found])
        state = MpsState(
            gpus=found,
            winners=winners,
            program=(host.commands.find(PROGRAM) or "") if entries else "",
            branch=number,
            modes=observation.declared_modes(files, found) if found else {},
            systemd_runs=systemd.running(files),
            unserved=(*unserved, *handed_on),
            when_busy=declaration.when_busy,
            busy_timeout=declaration.busy_timeout,
        )
        return observation.with_daemons(host, state)

    def resolve(self, declaration: MpsDeclaration, state: MpsState) -> MpsDesired:
        return resolve.desired(declaration, state)

    def restore(self, baseline: Baseline, state: MpsState) -> MpsDesired:
        """Nothing of ours: a machine had no daemon of ours before."""
        return MpsDesired()

    def plan(self, state: MpsState, desired: MpsDesired, scope: Scope) -> Plan:
        return plan.plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: MpsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        names = {gpu.identity.uuid: gpu.name for gpu in state.gpus}
        running = {unit: one for unit, one in state.daemons.items() if one.runs}
        starting = {unit: one.boot for unit, one in state.daemons.items() if one.status == systemd.ENABLED}
        return (
            {"daemons": {unit: _running(unit, one, names) for unit, one in running.items()}},
            {"daemons": {unit: _values(unit, boot, names) for unit, boot in starting.items() if boot is not None}},
        )


CONCERN = Mps()


def _values(unit: str, values: Values, names: Mapping[str, str]) -> Dict[str, Any]:
    return {
        "pipe_directory": mps_files.pipes_of(mps_files.key_of(unit)),
        "gpus": [names.get(uuid, uuid) for uuid in values.devices],
        "active_thread_percentage": values.percentage,
        "memory_limits": {names.get(uuid, uuid): memory_text(mib) for uuid, mib in sorted(values.limits.items())},
        "multi_user": values.multi_user,
    }


def _running(unit: str, daemon: Daemon, names: Mapping[str, str]) -> Dict[str, Any]:
    if daemon.effective is None:
        return {"fault": daemon.fault}
    servers = {
        str(server.pid): {
            "active_thread_percentage": server.percentage or None,
            "memory_limits": {names.get(uuid, uuid): memory_text(mib) for uuid, mib in server.limits.items() if mib},
            "clients": [client.name for client in server.clients],
        }
        for server in daemon.servers
    }
    return {**_values(unit, daemon.effective, names), "servers": servers}
