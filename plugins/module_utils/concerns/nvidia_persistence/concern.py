# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvidia_persistence``: the driver keeps its GPUs initialised while nobody uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.setting import IN_SYNC, REBOOT, Setting
from ..._core.value import replace
from ..._kinds import smi_writers, units
from ..._kinds.units import RUNNING, STOPPED
from ..._linux import boot_service, systemd
from ..._nvidia.readings import ask, select
from . import daemon as persistence_daemon
from .daemon import DROP_IN, UNIT
from .driver import PersistenceGpu, read
from .options import OPTIONS
from .spec import NAME, OFF, ON, SETTING, PersistenceDeclaration, parse
from .state import TEXT, PersistenceDesired, PersistenceState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host


class NvidiaPersistence:
    """``convergence.Concern`` for persistence mode."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml"),
        disturbs=("gpu_settings", "numa_irq_affinity"),
        cures=("no_persistence",),
        deadline=DRIVER_DEADLINE,
    )

    def parse(self, params: Mapping[str, Any]) -> PersistenceDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> PersistenceDeclaration:
        return PersistenceDeclaration()

    def observe(self, host: Host, declaration: PersistenceDeclaration, scope: Scope) -> PersistenceState:
        files = host.files
        host.nvml.begin()
        daemon = persistence_daemon.observe(files)
        found, unserved, missing = ask(host, read, entries=declaration.entries, restoring=scope.restoring)
        wants, handed_on = _wants(files, declaration, found)
        state = PersistenceState(
            gpus=found,
            wants=wants,
            daemon=daemon,
            drop_in=units.unit_file(host, UNIT, DROP_IN, TEXT, daemon.drop_in),
            unserved=(*unserved, *handed_on),
            missing=missing,
            foreign=smi_writers.read(files, scope, otherwise=UNIT if daemon.started_by else ""),
        )
        if state.alike is None and any(state.wants):
            return replace(state, carrier=boot_service.carrier(files, scope))
        return state

    def resolve(self, declaration: PersistenceDeclaration, state: PersistenceState) -> PersistenceDesired:
        named = [(gpu, want) for gpu, want in zip(state.gpus, state.wants) if want is not None]
        lacking = tuple(Unmanaged(gpu.name, SETTING, gpu.lacking) for gpu, _want in named if gpu.mode is None)
        return PersistenceDesired(
            wants=tuple((gpu, want) for gpu, want in named if gpu.mode is not None),
            drop_in=_drop_in(state),
            start=state.daemon.started_by or systemd.ENABLED if state.alike == ON else None,
            service=RUNNING if state.alike == ON and not state.daemon.masked else None,
            unresponsive=tuple(gpu.name for gpu in state.gpus if gpu.identity.lost),
            unmanaged=(*state.unserved, *lacking),
            force=declaration.force,
        )

    def restore(self, baseline: Baseline, state: PersistenceState) -> PersistenceDesired:
        from .plan import restore

        return restore(baseline, state)

    def plan(self, state: PersistenceState, desired: PersistenceDesired, scope: Scope) -> Plan:
        conflicts: Tuple[Conflict, ...] = ()
        if not scope.restoring and _is_disputed(state, desired):
            from .plan import refuse_impossible

            conflicts = refuse_impossible(state, desired, scope)
        if state.foreign:
            from .foreign import find_conflicts

            conflicts += find_conflicts(state, desired, scope)
        settings = [_setting(gpu, want, state, desired, scope) for gpu, want in desired.wants]
        if scope.permanent:
            daemon = state.daemon
            settings += state.drop_in.rows_in(desired.drop_in, immediate=scope.immediate)
            settings += units.start_row(UNIT, desired.start, daemon.started_by or daemon.status)
        if scope.immediate:
            settings += _service_settings(state, desired, settings, scope)
            settings += _lost_settings(desired)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            steps = steps_of(state, desired, settings, scope)
        return Plan(tuple(settings), steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: PersistenceState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        named = [(gpu, want) for gpu, want in zip(state.gpus, state.wants) if not gpu.identity.lost]
        return (
            {
                "through": _through(state.daemon.running),
                "gpus": {gpu.name: {SETTING: gpu.mode} for gpu, _want in named},
            },
            {
                "through": _through(bool(state.daemon.started_by)),
                "gpus": {gpu.name: {SETTING: gpu.mode and state.boot(want)} for gpu, want in named},
            },
        )


CONCERN = NvidiaPersistence()


def _wants(
    files: Files, wanted: PersistenceDeclaration, found: Tuple[PersistenceGpu, ...]
) -> Tuple[Tuple[Optional[str], ...], Tuple[Unmanaged, ...]]:
    """The mode that is wanted of each GPU, and those that virtual machines have."""
    if wanted.all is not None:
        return tuple(None if gpu.identity.lost else wanted.all for gpu in found), ()
    winners, handed_on = select(files, wanted.entries, [gpu.identity for gpu in found])
    return tuple(None if winner is None else wanted.modes[winner] for winner in winners), handed_on


def _is_disputed(state: PersistenceState, desired: PersistenceDesired) -> bool:
    """Whether somebody else may have a say in what is wanted, or something may be lost by it."""
    if any(gpu.coherent and want == OFF for gpu, want in desired.wants):
        return True
    return state.alike is not None and not state.daemon.undisputed(desired.drop_in, state.alike)


def _drop_in(state: PersistenceState) -> Optional[str]:
    """What our drop-in must say. The daemon's own default stays where the GPUs are not wanted alike."""
    daemon, mode = state.daemon, state.alike
    if mode is None and any(gpu.identity.lost for gpu in state.gpus):
        # What is wanted of it cannot be known now: the next boot stays as it is.
        return daemon.drop_in
    if mode is None or daemon.masked or (mode == OFF and not daemon.started_by):
        return None
    return daemon.wanted_drop_in(mode)


def _setting(
    gpu: PersistenceGpu, want: str, state: PersistenceState, desired: PersistenceDesired, scope: Scope
) -> Setting:
    return Setting(
        object=gpu.name,
        setting=SETTING,
        wanted=want,
        effective=gpu.mode,
        boot=state.boot(want),
        identity=gpu.identity.uuid,
        effective_matters=scope.immediate,
        boot_matters=scope.carries,
        pending=desired.later if gpu.coherent and want == OFF else "",
        needs=REBOOT,
    )


def _service_settings(
    state: PersistenceState, desired: PersistenceDesired, settings: List[Setting], scope: Scope
) -> List[Setting]:
    """A daemon that runs is no end in itself: it is started where a GPU lacks it, and stopped if we started it."""
    found = RUNNING if state.daemon.running else STOPPED
    missed = any(setting.setting == SETTING and setting.effective != setting.wanted for setting in settings)
    if desired.service is None or found == desired.service or not (missed or scope.restoring):
        return []
    return [units.service_row(UNIT, desired.service, found, desired.later)]


def _lost_settings(desired: PersistenceDesired) -> List[Setting]:
    if not desired.unresponsive:
        return []
    from ..._nvidia import unresponsive_gpu

    return [unresponsive_gpu.setting(name) for name in desired.unresponsive]


def _through(daemon: bool) -> str:
    return "daemon" if daemon else "legacy"
