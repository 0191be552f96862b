# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvidia_persistence``: the driver keeps its GPUs initialised while nobody uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core import declared
from ..._core.change import Plan, Step, Unmanaged
from ..._core.errors import CannotLook, DeclarationError
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.setting import IN_SYNC, REBOOT, Scalar, Setting
from ..._core.shared_options import SHARED_OPTIONS
from ..._core.value import replace
from ..._linux import systemd
from ..._linux.boot_service import why_not_persisted
from ..._nvidia import errors, gpus
from ..._nvidia.gpus import NOT_THERE
from . import daemon as persistence_daemon
from .daemon import DROP_IN, UNIT
from .driver import PersistenceGpu, read
from .options import OPTIONS
from .spec import NAME, OFF, ON, SETTING, PersistenceDeclaration, parse
from .state import RUNNING, SERVICE, START, STOPPED, TEXT, PersistenceDesired, PersistenceState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.protocols import Host

OTHERS = "others"
NOT_READ = "as before the change"


class NvidiaPersistence:
    """``convergence.Concern`` for persistence mode."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml"),
        disturbs=("gpu_settings", "numa_irq_affinity"),
        deadline=DRIVER_DEADLINE,
    )

    def observe(self, host: Host, params: Mapping[str, Any]) -> PersistenceState:
        files = host.files
        wanted = PersistenceDeclaration() if params["state"] == "absent" else parse(params)
        host.nvml.begin()
        daemon = persistence_daemon.observe(files)
        due = systemd.reload_due(host, UNIT)
        unserved: Tuple[Unmanaged, ...] = ()
        missing = NOT_THERE
        try:
            found = host.nvml.ask(read)
        except CannotLook as error:
            from ..._nvidia import driverless

            found = ()
            if params["state"] == "absent" and isinstance(error, errors.NoDriver):
                # What is restored went with the driver.
                missing = gpus.UNSERVED
            else:
                unserved = driverless.unserved(error, wanted.entries, host.files)
        state = PersistenceState(
            gpus=found,
            wants=_wants(wanted, found),
            daemon=daemon,
            reload_due=due,
            reload_blocker=systemd.reload_blocker(host) if due else "",
            unserved=unserved,
            missing=missing,
        )
        if state.alike is None and any(want not in (None, daemon.boot) for want in state.wants):
            known = declared.plan_present(files, self, params, SHARED_OPTIONS)[0].boot == declared.WANTED
            return replace(state, persisted=known and not why_not_persisted(files))
        return state

    def normalise(self, params: Mapping[str, Any], state: PersistenceState) -> PersistenceDesired:
        named = [(gpu, want) for gpu, want in zip(state.gpus, state.wants) if want is not None]
        lacking = tuple(Unmanaged(gpu.name, SETTING, gpu.lacking) for gpu, _want in named if gpu.mode is None)
        if lacking and params["strict"]:
            raise DeclarationError(
                f"set {SETTING}",
                object=lacking[0].object,
                cause=lacking[0].reason,
                hint="leave it out, or set strict: false",
            )
        desired = PersistenceDesired(
            wants=tuple((gpu, want) for gpu, want in named if gpu.mode is not None),
            drop_in=_drop_in(state),
            start=state.daemon.started_by or systemd.ENABLED if state.alike == ON else None,
            service=RUNNING if state.alike == ON and not state.daemon.masked else None,
            unresponsive=tuple(gpu.name for gpu in state.gpus if gpu.identity.lost),
            unmanaged=(*state.unserved, *lacking),
            immediate=params["immediate"],
            permanent=params["permanent"],
        )
        coherent = any(gpu.coherent and want == OFF for gpu, want in desired.wants)
        if not coherent and (state.alike is None or state.daemon.undisputed(desired.drop_in, state.alike)):
            return desired
        from .plan import refuse_impossible

        return replace(desired, conflicts=refuse_impossible(state, desired, force=params["force"]))

    def restore(self, params: Mapping[str, Any], baseline: Baseline, state: PersistenceState) -> PersistenceDesired:
        from .plan import restore

        return restore(params, baseline, state)

    def plan(self, state: PersistenceState, desired: PersistenceDesired) -> Plan:
        settings = [_setting(gpu, want, state, desired) for gpu, want in desired.wants]
        if desired.permanent:
            settings += _unit_settings(state, desired)
        if desired.immediate:
            settings += _service_settings(state, desired, settings)
            settings += _lost_settings(desired)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            steps = steps_of(state, desired, settings)
        return Plan(tuple(settings), steps, desired.unmanaged, desired.conflicts)

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


def _wants(wanted: PersistenceDeclaration, found: Tuple[PersistenceGpu, ...]) -> Tuple[Optional[str], ...]:
    if wanted.all is not None:
        return tuple(None if gpu.identity.lost else wanted.all for gpu in found)
    winners = gpus.select(wanted.entries, [gpu.identity for gpu in found])
    return tuple(None if winner is None else wanted.modes[winner] for winner in winners)


def _drop_in(state: PersistenceState) -> Optional[str]:
    """What our drop-in must say. The daemon's own default stays where the GPUs are not wanted alike."""
    daemon, mode = state.daemon, state.alike
    if mode is None and any(gpu.identity.lost for gpu in state.gpus):
        # What is wanted of it cannot be known now: the next boot stays as it is.
        return daemon.drop_in
    if mode is None or daemon.masked or (mode == OFF and not daemon.started_by):
        return None
    return daemon.wanted_drop_in(mode)


def _setting(gpu: PersistenceGpu, want: str, state: PersistenceState, desired: PersistenceDesired) -> Setting:
    return Setting(
        object=gpu.name,
        setting=SETTING,
        wanted=want,
        effective=gpu.mode,
        boot=state.boot(want),
        identity=gpu.identity.uuid,
        effective_matters=desired.immediate,
        boot_matters=desired.permanent and not desired.restoring,
        pending=desired.later if gpu.coherent and want == OFF else "",
        needs=REBOOT,
    )


def _unit_settings(state: PersistenceState, desired: PersistenceDesired) -> List[Setting]:
    """The drop-in and what starts the daemon, each where it is there or wanted."""
    made = []
    present = state.daemon.drop_in
    found = None if present is None else declared.WANTED if present == desired.drop_in else OTHERS
    wanted = None if desired.drop_in is None else declared.WANTED
    if wanted is not None or found is not None or state.reload_due:
        made.append(
            Setting(
                object=DROP_IN,
                setting=TEXT,
                wanted=wanted,
                effective=NOT_READ if state.reload_due else found,
                boot=found,
                identity=DROP_IN,
                effective_matters=desired.immediate,
                pending=f"systemd must reload it, and {state.reload_blocker}" if state.reload_blocker else "",
                needs=systemd.DAEMON_RELOAD,
            )
        )
    if desired.start is not None:
        start: Scalar = state.daemon.started_by or state.daemon.status
        made.append(Setting(UNIT, START, desired.start, start, start, UNIT, effective_matters=False))
    return made


def _service_settings(state: PersistenceState, desired: PersistenceDesired, settings: List[Setting]) -> List[Setting]:
    """A daemon that runs is no end in itself: it is started where a GPU lacks it, and stopped if we started it."""
    found = RUNNING if state.daemon.running else STOPPED
    missed = any(setting.setting == SETTING and setting.effective != setting.wanted for setting in settings)
    if desired.service is None or found == desired.service or not (missed or desired.restoring):
        return []
    return [Setting(UNIT, SERVICE, desired.service, found, None, UNIT, boot_matters=False, pending=desired.later)]


def _lost_settings(desired: PersistenceDesired) -> List[Setting]:
    if not desired.unresponsive:
        return []
    from ..._nvidia import unresponsive_gpu

    return [unresponsive_gpu.setting(name) for name in desired.unresponsive]


def _through(daemon: bool) -> str:
    return "daemon" if daemon else "legacy"
