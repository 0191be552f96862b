# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Persistence mode: who else decides about it, and the steps to what is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from ..._core.change import THEM, US, Change, Conflict, Refuse, RoomAction, Step, Unmanaged
from ..._core.errors import InUse, OwnedByAnother
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._kinds.units import SERVICE, START, STOPPED, service_step, start_step
from ..._linux.boot_service import not_persisted
from ..._nvidia import unresponsive_gpu
from .daemon import DROP_IN, EXEC_START, UNIT, after_ours, mode_of
from .spec import OFF, ON, SETTING
from .state import TEXT, PersistenceDesired, PersistenceState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope

COHERENT = "its memory is a NUMA node of this machine (addressing mode ATS), which would go offline"
PERMANENT = "or set permanent: false"


@frozen
class SwitchModes(RoomAction):
    """Give these GPUs (UUIDs) their modes. With ``restart`` the daemon may be restarted for one it does not know.

    With ``reopen`` a GPU whose memory is coherent goes off, and with it what we know it by.
    """

    optional_programs = ("systemctl",)
    modes: Tuple[Tuple[str, str], ...]
    restart: bool
    reopen: bool


def refuse_impossible(state: PersistenceState, desired: PersistenceDesired, scope: Scope) -> Tuple[Conflict, ...]:
    """Raise for what must not be done, and return who else has a say in what the daemon does at boot."""
    for gpu, want in desired.wants:
        taken_away = (scope.immediate and gpu.mode == ON) or (scope.permanent and state.boot(want) == ON)
        if want == OFF and gpu.coherent and taken_away and not desired.force:
            raise InUse(
                f"disable {SETTING}", object=gpu.name, cause=COHERENT, hint="set force: true once nothing uses it"
            )
    mode, daemon = state.alike, state.daemon
    if mode is None or (mode == OFF and not daemon.started_by):
        return ()
    goal = f"keep {SETTING} {mode} across a reboot"
    if daemon.masked:
        if not scope.permanent:
            return ()
        hint = f"run systemctl unmask {UNIT}, {PERMANENT}"
        raise OwnedByAnother(goal, object=UNIT, cause="it is masked", hint=hint)
    overruled = daemon.default(desired.drop_in) != mode
    conflicts = []
    for source in daemon.sources[1:]:
        lines = [line for line in source.of(EXEC_START) if line]
        wins = THEM if overruled and source in after_ours(daemon.sources) else US
        if lines and (wins == THEM or mode_of(lines[-1]) != mode):
            conflicts.append(Conflict("systemd drop-in", source.path, None, UNIT, "ExecStart", lines[-1], wins))
    if scope.permanent and overruled:
        last = next((conflict for conflict in reversed(conflicts) if conflict.wins == THEM), None)
        raise OwnedByAnother(
            goal,
            object=UNIT,
            cause=f"{last.path} is read after our drop-in and sets ExecStart"
            if last
            else "it has no ExecStart of its own",
            found=last.value if last else None,
            hint=f"remove ExecStart from it, {PERMANENT}" if last else f"install the driver's unit again, {PERMANENT}",
        )
    return tuple(conflicts)


def restore(baseline: Baseline, state: PersistenceState) -> PersistenceDesired:
    """What ``state: absent`` wants: the modes from before the first change, and no drop-in and no link of ours."""
    known = {uuid: value.effective for (uuid, setting), value in baseline.values.items() if setting == SETTING}
    there = [gpu for gpu in state.gpus if gpu.mode is not None]
    wants = tuple((gpu, str(known[gpu.identity.uuid])) for gpu in there if gpu.identity.uuid in known)
    gone = set(known).difference(gpu.identity.uuid for gpu in there)
    # Whether one that does not respond is the one that is missed, it does not say.
    missed = tuple(gpu.name for gpu in state.gpus if gpu.identity.lost) if gone else ()
    later = any(gpu.coherent and gpu.mode == ON and want == OFF for gpu, want in wants)
    start = baseline.values.get((UNIT, START))
    service = baseline.values.get((UNIT, SERVICE))
    return PersistenceDesired(
        wants=wants,
        start=str(start.boot) if start and state.daemon.exists and not state.daemon.masked else None,
        service=STOPPED if service and service.effective == STOPPED else None,
        unresponsive=missed,
        unmanaged=() if missed else tuple(Unmanaged(uuid, SETTING, state.missing) for uuid in sorted(gone)),
        later=f"{COHERENT}; it takes effect at the next boot" if later else "",
    )


def steps_of(
    state: PersistenceState, desired: PersistenceDesired, settings: Sequence[Setting], scope: Scope
) -> Tuple[Step, ...]:
    """The next boot first, then systemd's knowledge of it, the daemon, and the driver."""
    wrong = {(setting.object, setting.setting): setting for setting in settings if setting.status != IN_SYNC}
    modes = [setting for key, setting in wrong.items() if key[1] == SETTING]
    at_boot = [boot_change(s) for s in modes if s.boot_matters and s.boot != s.wanted]
    write, reload = state.drop_in.steps(wrong.get((DROP_IN, TEXT)), desired.drop_in)
    steps = _boot_steps(state, desired, write, wrong.get((UNIT, START)), at_boot, scope)
    steps += reload
    service = wrong.get((UNIT, SERVICE))
    if service is not None and not service.pending:
        steps.append(service_step(service))
    changes = [effective_change(s) for s in modes if s.effective_matters and s.effective != s.wanted and not s.pending]
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
    if desired.unresponsive and scope.immediate:
        steps.append(unresponsive_gpu.refuse(desired.unresponsive))
    return tuple(steps)


def _boot_steps(
    state: PersistenceState,
    desired: PersistenceDesired,
    write: Sequence[Step],
    start: Optional[Setting],
    modes: Sequence[Change],
    scope: Scope,
) -> List[Step]:
    """The changes of ``modes`` belong to the last of these steps: only all of them together bring the mode at boot."""
    steps: List[Step] = []
    default = state.daemon.boot_with(desired.drop_in)
    if scope.carries and state.alike is None and any(want != default for _gpu, want in desired.wants):
        steps.append(Step(Refuse(not_persisted(state.carrier.missing))))
    steps += write
    if start is not None:
        steps.append(start_step(start, state.daemon.status))
    if modes and steps:
        steps[-1] = Step(steps[-1].action, (*steps[-1].changes, *modes))
    return steps
