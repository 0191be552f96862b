# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvidia_persistence``: the driver keeps its GPUs initialised while nobody uses them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from .._core import declared
from .._core.change import REBOOT, RIGHT, Conflict, Plan, Setting, Step, Unmanaged
from .._core.errors import CannotLook, DeclarationError, Scalar
from .._core.road import SHARED_OPTIONS
from .._host import gpus, systemd
from .._host.gpus import NOT_THERE
from . import persistence_daemon
from .persistence_daemon import DROP_IN, UNIT, Daemon
from .persistence_driver import Gpu, read
from .persistence_spec import NAME, OFF, ON, OPTIONS, SETTING, Declared, parse

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Host

OTHERS = "others"
NOT_READ = "as before the change"
TEXT = "drop-in"
START = "start at boot"
SERVICE = "service"
RUNNING = "running"
STOPPED = "stopped"


@dataclass(frozen=True)
class State:
    """What was seen. ``wants`` are the declared modes, one a GPU; None where nothing is declared of it.

    ``carried`` says that the boot service brings what is declared, ``reload_due`` that systemd has not read our drop-in
    since we changed it, and ``obstacle`` why it must not now. ``unserved`` is what nobody can set because there is no
    driver, and ``missing`` why a GPU is not seen.
    """

    gpus: Tuple[Gpu, ...]
    wants: Tuple[Optional[str], ...]
    daemon: Daemon
    carried: bool = False
    reload_due: bool = False
    obstacle: str = ""
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE

    @property
    def alike(self) -> Optional[str]:
        """The mode that is wanted of every GPU where it is one, so that the daemon can start with it; else None."""
        wants = {want for gpu, want in zip(self.gpus, self.wants) if gpu.mode is not None}
        return wants.pop() if len(wants) == 1 and self.daemon.exists else None

    def boot(self, want: Optional[str]) -> str:
        """What the next boot makes of a GPU of which this is declared."""
        return want if want is not None and self.carried else self.daemon.boot


@dataclass(frozen=True)
class Desired:
    """The declaration on this machine; ``giving_back`` is ``state: absent``.

    ``drop_in`` is its text, None for no such file. ``start`` and ``service`` are wanted of the daemon's unit, None
    where it may be as it is. ``lost`` are the names of GPUs that do not answer, and ``later`` says why persistence mode
    of one whose memory is coherent goes off only by a reboot.
    """

    wants: Tuple[Tuple[Gpu, str], ...]
    drop_in: Optional[str] = None
    start: Optional[str] = None
    service: Optional[str] = None
    lost: Tuple[str, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()
    later: str = ""
    immediate: bool = True
    permanent: bool = True
    giving_back: bool = False


class NvidiaPersistence:
    """``road.Concern`` for persistence mode."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        files = host.files
        wanted = Declared() if params["state"] == "absent" else parse(params)
        host.nvml.begin()
        daemon = persistence_daemon.observe(files)
        due = systemd.reload_due(host, UNIT)
        unserved: Tuple[Unmanaged, ...] = ()
        missing = NOT_THERE
        try:
            found = host.nvml.ask(read)
        except CannotLook as error:
            from .._host import driverless, nvml

            found = ()
            if params["state"] == "absent" and isinstance(error, nvml.NoDriver):
                # What is given back went with the driver.
                missing = gpus.UNSERVED
            else:
                unserved = driverless.unserved(error, wanted.entries, host.files)
        state = State(
            gpus=found,
            wants=_wants(wanted, found),
            daemon=daemon,
            reload_due=due,
            obstacle=systemd.obstacle(host) if due else "",
            unserved=unserved,
            missing=missing,
        )
        if state.alike is None and any(want not in (None, daemon.boot) for want in state.wants):
            from .._host.boot_service import carries

            known = declared.plan_present(files, self, params, SHARED_OPTIONS)[0].boot == declared.WANTED
            return replace(state, carried=known and not carries(files))
        return state

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        named = [(gpu, want) for gpu, want in zip(state.gpus, state.wants) if want is not None]
        lacking = tuple(Unmanaged(gpu.name, SETTING, gpu.lacking) for gpu, _want in named if gpu.mode is None)
        if lacking and params["strict"]:
            raise DeclarationError(
                f"set {SETTING}",
                object=lacking[0].object,
                cause=lacking[0].reason,
                hint="leave it out, or say strict: false",
            )
        desired = Desired(
            wants=tuple((gpu, want) for gpu, want in named if gpu.mode is not None),
            drop_in=_drop_in(state),
            start=state.daemon.started_by or systemd.ENABLED if state.alike == ON else None,
            service=RUNNING if state.alike == ON and not state.daemon.masked else None,
            lost=tuple(gpu.name for gpu in state.gpus if gpu.identity.lost),
            unmanaged=(*state.unserved, *lacking),
            immediate=params["immediate"],
            permanent=params["permanent"],
        )
        coherent = any(gpu.coherent and want == OFF for gpu, want in desired.wants)
        if not coherent and (state.alike is None or state.daemon.undisputed(desired.drop_in, state.alike)):
            return desired
        from .persistence_plan import refuse_impossible

        return replace(desired, conflicts=refuse_impossible(state, desired, force=params["force"]))

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        from .persistence_plan import restore

        return restore(params, found, state)

    def plan(self, state: State, desired: Desired) -> Plan:
        settings = [_setting(gpu, want, state, desired) for gpu, want in desired.wants]
        if desired.permanent:
            settings += _unit_settings(state, desired)
        if desired.immediate:
            settings += _service_settings(state, desired, settings)
            settings += _lost_settings(desired)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != RIGHT for setting in settings):
            from .persistence_plan import steps_of

            steps = steps_of(state, desired, settings)
        return Plan(tuple(settings), steps, desired.unmanaged, desired.conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from . import persistence_apply

        persistence_apply.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
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


def _wants(wanted: Declared, found: Tuple[Gpu, ...]) -> Tuple[Optional[str], ...]:
    if wanted.all is not None:
        return tuple(None if gpu.identity.lost else wanted.all for gpu in found)
    winners = gpus.select(wanted.entries, [gpu.identity for gpu in found])
    return tuple(None if winner is None else wanted.modes[winner] for winner in winners)


def _drop_in(state: State) -> Optional[str]:
    """What our drop-in must say. The daemon's own default stays where the GPUs are not wanted alike."""
    daemon, mode = state.daemon, state.alike
    if mode is None and any(gpu.identity.lost for gpu in state.gpus):
        # What is wanted of it cannot be known now: the next boot stays as it is.
        return daemon.drop_in
    if mode is None or daemon.masked or (mode == OFF and not daemon.started_by):
        return None
    return daemon.wanted_drop_in(mode)


def _setting(gpu: Gpu, want: str, state: State, desired: Desired) -> Setting:
    return Setting(
        object=gpu.name,
        setting=SETTING,
        wanted=want,
        effective=gpu.mode,
        boot=state.boot(want),
        identity=gpu.identity.uuid,
        effective_matters=desired.immediate,
        boot_matters=desired.permanent and not desired.giving_back,
        pending=desired.later if gpu.coherent and want == OFF else "",
        needs=REBOOT,
    )


def _unit_settings(state: State, desired: Desired) -> List[Setting]:
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
                pending=f"systemd must read it again, and {state.obstacle}" if state.obstacle else "",
                needs=systemd.DAEMON_RELOAD,
            )
        )
    if desired.start is not None:
        start: Scalar = state.daemon.started_by or state.daemon.status
        made.append(Setting(UNIT, START, desired.start, start, start, UNIT, effective_matters=False))
    return made


def _service_settings(state: State, desired: Desired, settings: List[Setting]) -> List[Setting]:
    """A daemon that runs is no end in itself: it is started where a GPU lacks it, and stopped if we started it."""
    found = RUNNING if state.daemon.running else STOPPED
    missed = any(setting.setting == SETTING and setting.effective != setting.wanted for setting in settings)
    if desired.service is None or found == desired.service or not (missed or desired.giving_back):
        return []
    return [Setting(UNIT, SERVICE, desired.service, found, None, UNIT, boot_matters=False, pending=desired.later)]


def _lost_settings(desired: Desired) -> List[Setting]:
    if not desired.lost:
        return []
    from .._host import lost

    return [lost.setting(name) for name in desired.lost]


def _through(daemon: bool) -> str:
    return "daemon" if daemon else "legacy"
