# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way from what is to what is declared: who stands in it, and the steps. Imported when something differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from .._core.before import Before
from .._core.change import (
    RIGHT,
    Change,
    Conflict,
    RoomAction,
    Setting,
    Step,
    Unmanaged,
)
from .._core.errors import InUse, OwnedByAnother
from .._core.planning import at_boot, effective, file_of
from .._host import lost, systemd
from .._host.nvml_driver import LOST
from .._host.systemd_apply import AnnounceUnit, ReloadUnits, RunService, StartAtBoot
from .persistence import RUNNING, SERVICE, START, STOPPED, TEXT, Desired, State
from .persistence_daemon import DROP_IN, EXEC_START, UNIT, after_ours
from .persistence_spec import OFF, ON, SETTING

COHERENT = "its memory is a NUMA node of this machine (addressing mode ATS), which goes offline with it"
PERMANENT = "or say permanent: false"


@dataclass(frozen=True)
class RequireBootService(RoomAction):
    """Refuse unless the boot service will apply the declaration."""


@dataclass(frozen=True)
class SwitchModes(RoomAction):
    """Give these GPUs (UUIDs) their modes. With ``restart`` the daemon may be restarted for one it does not know.

    With ``reopen`` a GPU whose memory is coherent goes off, and with it what we know it by.
    """

    modes: Tuple[Tuple[str, str], ...]
    restart: bool
    reopen: bool


def refuse_impossible(state: State, desired: Desired, *, force: bool) -> Tuple[Conflict, ...]:
    """Raise for what must not be done, and return who else has a say in what the daemon does at boot."""
    for gpu, want in desired.wants:
        taken_away = (desired.immediate and gpu.mode == ON) or (desired.permanent and state.boot(want) == ON)
        if want == OFF and gpu.coherent and taken_away and not force:
            raise InUse(
                f"disable {SETTING}", object=gpu.name, cause=COHERENT, hint="say force: true once nothing uses it"
            )
    mode, daemon = state.alike, state.daemon
    if mode is None or (mode == OFF and not daemon.started_by):
        return ()
    goal = f"keep {SETTING} {mode} across a reboot"
    if daemon.masked:
        if not desired.permanent:
            return ()
        hint = f"run systemctl unmask {UNIT}, {PERMANENT}"
        raise OwnedByAnother(goal, object=UNIT, cause="somebody masked it", hint=hint)
    overruled = daemon.default(desired.drop_in) != mode
    conflicts = []
    for source in daemon.sources[1:]:
        lines = [line for line in source.of(EXEC_START) if line]
        if lines:
            wins = "them" if overruled and source in after_ours(daemon.sources) else "us"
            conflicts.append(Conflict("systemd drop-in", source.path, None, "ExecStart", lines[-1], wins))
    if desired.permanent and overruled:
        last = next((conflict for conflict in reversed(conflicts) if conflict.wins == "them"), None)
        raise OwnedByAnother(
            goal,
            object=UNIT,
            cause=f"{last.path} comes after our drop-in and sets ExecStart"
            if last
            else "it has no ExecStart of its own",
            found=last.value if last else None,
            hint=f"take ExecStart out of it, {PERMANENT}" if last else f"install the driver's unit again, {PERMANENT}",
        )
    return tuple(conflicts)


def restore(params: Mapping[str, Any], found: Before, state: State) -> Desired:
    """What ``state: absent`` wants: the modes from before the first change, and no drop-in and no link of ours."""
    known = {uuid: value.effective for (uuid, setting), value in found.found.items() if setting == SETTING}
    there = [gpu for gpu in state.gpus if gpu.mode is not None]
    wants = tuple((gpu, str(known[gpu.identity.uuid])) for gpu in there if gpu.identity.uuid in known)
    gone = set(known).difference(gpu.identity.uuid for gpu in there)
    # Whether one that does not answer is the one that is missed, it does not say.
    missed = tuple(gpu.name for gpu in state.gpus if gpu.identity.lost) if gone else ()
    later = any(gpu.coherent and gpu.mode == ON and want == OFF for gpu, want in wants)
    start = found.found.get((UNIT, START))
    service = found.found.get((UNIT, SERVICE))
    return Desired(
        wants=wants,
        start=str(start.boot) if start and state.daemon.exists and not state.daemon.masked else None,
        service=STOPPED if service and service.effective == STOPPED else None,
        lost=missed,
        unmanaged=() if missed else tuple(Unmanaged(uuid, SETTING, state.missing) for uuid in sorted(gone)),
        later=f"{COHERENT}; the next boot does it" if later else "",
        immediate=params["immediate"],
        permanent=params["permanent"],
        giving_back=True,
    )


def steps_of(state: State, desired: Desired, settings: Sequence[Setting]) -> Tuple[Step, ...]:
    """The next boot first, then systemd's knowledge of it, the daemon, and the driver."""
    wrong = {(setting.object, setting.setting): setting for setting in settings if setting.status != RIGHT}
    modes = [setting for key, setting in wrong.items() if key[1] == SETTING]
    steps = _boot_steps(state, desired, wrong, [at_boot(s) for s in modes if s.boot_matters and s.boot != s.wanted])
    text, service = wrong.get((DROP_IN, TEXT)), wrong.get((UNIT, SERVICE))
    if text is not None and text.boot != text.wanted:
        steps.append(Step(ReloadUnits()))
    elif text is not None and not text.pending:
        steps.append(Step(ReloadUnits(), (effective(text),)))
    if service is not None and not service.pending:
        verb = "start" if service.wanted == RUNNING else "stop"
        steps.append(Step(RunService(verb, UNIT), (effective(service),)))
    changes = [effective(s) for s in modes if s.effective_matters and s.effective != s.wanted and not s.pending]
    if changes:
        wanted = {gpu.identity.uuid: want for gpu, want in desired.wants if not (desired.later and gpu.coherent)}
        # Those that are nobody's business too: they keep their mode when the daemon is restarted or stopped.
        modes_of_all = tuple(
            (gpu.identity.uuid, wanted.get(gpu.identity.uuid, gpu.mode)) for gpu in state.gpus if gpu.mode is not None
        )
        coherent = any(gpu.coherent for gpu in state.gpus)
        switches_on = any(change.after == ON for change in changes)
        switches_off = any(change.after == OFF for change in changes)
        restart = state.daemon.exists and switches_on and not coherent
        action = SwitchModes(modes_of_all, restart, reopen=coherent and switches_off)
        steps.append(Step(action, tuple(changes)))
    if desired.lost and desired.immediate:
        steps.append(Step(lost.NameLost(desired.lost, LOST)))
    return tuple(steps)


def _boot_steps(
    state: State, desired: Desired, wrong: Mapping[Tuple[str, str], Setting], modes: Sequence[Change]
) -> List[Step]:
    """The changes of ``modes`` belong to the last of these steps: only all of them together bring the mode at boot."""
    steps: List[Step] = []
    default = state.daemon.boot_with(desired.drop_in)
    kept = desired.permanent and not desired.giving_back
    if kept and state.alike is None and any(want != default for _gpu, want in desired.wants):
        steps.append(Step(RequireBootService()))
    text, start = wrong.get((DROP_IN, TEXT)), wrong.get((UNIT, START))
    if text is not None and text.boot != text.wanted:
        steps += [Step(AnnounceUnit(UNIT)), Step(file_of(DROP_IN, desired.drop_in), (at_boot(text),))]
    if start is not None:
        enable = start.wanted == systemd.ENABLED
        steps.append(Step(StartAtBoot(UNIT, enable, static=state.daemon.status == systemd.STATIC), (at_boot(start),)))
    if modes and steps:
        steps[-1] = Step(steps[-1].action, (*steps[-1].changes, *modes))
    return steps
