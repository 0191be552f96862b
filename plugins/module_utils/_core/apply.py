# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The second half of the road, for a run that has something to do: the steps, and the look that proves them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from . import before
from .change import DIFFERS, EFFECTIVE, Change, Plan, RemoveFile, ReplaceFile, RoomAction, Setting, Step
from .errors import GpuFleetError, NotInEffect, NotPermitted
from .road import (
    LOCK,
    Concern,
    Desired,
    Outcome,
    Params,
    State,
    look,
    outcome,
    reboot_note,
    reboot_text,
)

if TYPE_CHECKING:
    from .._host.protocols import Host

LOCK_TIMEOUT_SECONDS = 60.0
# How often a run that waits looks again.
POLL_SECONDS = 5.0


def look_alone(
    concern: Concern[State, Desired], params: Params, host: Host, seen: Optional[GpuFleetError]
) -> Tuple[State, Plan]:
    """Look again while no other run changes anything. Where that cannot be had, what was ``seen`` first counts.

    Raises ``GpuFleetError`` as ``look`` does.
    """
    try:
        with host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS):
            return look(concern, params, host)
    except OSError:
        if seen is not None:
            raise seen from None
        return look(concern, params, host)


def carry_out(concern: Concern[State, Desired], params: Params, host: Host, *, may_wait: bool) -> Outcome:
    """Look again under the lock, for another run may have been faster, and take the steps.

    While something is in the way the lock is free, and every look makes a new plan. Raises ``GpuFleetError`` before
    anything changed; a failure after that is in ``Outcome.error``.
    """
    given_up: Optional[float] = None
    while True:
        try:
            with host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS):
                state, plan = look(concern, params, host)
                if plan.obstacle is not None and plan.obstacle.first is not None:
                    concern.perform(plan.obstacle.first, host)
                    state, plan = look(concern, params, host)
                if plan.obstacle is None:
                    return _carry_out_locked(concern, params, host, state=state, plan=plan)
        except TimeoutError as error:
            raise NotPermitted(
                f"change {concern.name}",
                object=LOCK,
                cause=str(error),
                hint="wait until the other run has ended, then run again",
            ) from error
        except OSError as error:
            raise _cannot_write(concern.name, error) from error
        if given_up is None:
            given_up = time.monotonic() + (plan.obstacle.patience if may_wait else 0.0)
        left = given_up - time.monotonic()
        if left <= 0:
            raise plan.obstacle.error
        time.sleep(min(POLL_SECONDS, left))


def _carry_out_locked(
    concern: Concern[State, Desired], params: Params, host: Host, *, state: State, plan: Plan
) -> Outcome:
    new: FrozenSet[before.Key] = frozenset()
    if params["state"] == "present":
        new = before.remember(host.files, concern.name, plan.settings, plan.steps)
    done: List[Change] = []
    tried: List[Change] = []
    failure: Optional[GpuFleetError] = None
    noted: Dict[str, Optional[str]] = {}
    # What the steps that were taken are a part of, such as the first of several files.
    in_part: Sequence[Change] = ()
    try:
        for number, step in enumerate(plan.steps):
            tried = [*done, *step.changes]
            noted.update((path, host.files.read_optional(path)) for path in step.notes if path not in noted)
            performed = concern.perform(step, host)
            if not step.notes:
                noted.clear()
            if step.changes:
                in_part = ()
            elif not step.notes and not isinstance(step.action, RoomAction):
                in_part = next((later.changes for later in plan.steps[number:] if later.changes), ())
            changes = step.changes if performed is None else performed
            done.extend(changes)
            tried = list(done)
            for change in changes:
                _journal(concern.name, change, host)
    except GpuFleetError as error:
        failure = error
    except OSError as error:
        failure = _cannot_write(concern.name, error)
    remaining = plan
    acted = [*done, *in_part]
    if failure is not None and noted:
        _take_back(noted, plan.steps[number], host)
    now: Optional[Plan] = None
    try:
        state, remaining = look(concern, params, host)
        now = remaining
        made = _made(tried, done, remaining)
        acted.extend(made)
        for change in made:
            if change not in done:
                _journal(concern.name, change, host)
        done = made
        failure = failure or not_in_effect(remaining)
        if failure is None:
            _finish(concern, params, host, remaining)
        else:
            _note_reboot(concern.name, host, remaining)
    except GpuFleetError as error:
        failure = failure or error
    except OSError as error:
        failure = failure or _cannot_write(concern.name, error)
    if params["state"] == "present":
        settings = now.settings if now is not None else ()
        keys = _Keys((*plan.settings, *settings))
        unsettled = _settle(concern.name, host, changed=keys.of(acted), untried=new - keys.of(tried), now=settings)
        failure = failure or unsettled
    return outcome(concern, plan=plan, changes=tuple(done), state=state, remaining=remaining, error=failure)


def _take_back(noted: Mapping[str, Optional[str]], failed: Step, host: Host) -> None:
    """Let the notes be as they were, where nothing came of what they announce."""
    # A file is changed or it is not; of all other steps nobody knows how far they came.
    if failed.notes or isinstance(failed.action, (ReplaceFile, RemoveFile)):
        with contextlib.suppress(OSError):
            for path, text in noted.items():
                if text is None:
                    host.files.remove(path)
                else:
                    host.files.replace(path, text)


class _Keys:
    """What the record calls the settings that changes are about."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        self._keys = {(setting.object, setting.setting): (setting.identity, setting.setting) for setting in settings}

    def of(self, changes: Sequence[Change]) -> FrozenSet[before.Key]:
        names = [(change.object, change.setting) for change in changes]
        return frozenset(self._keys.get(name, name) for name in names)


def _settle(
    concern: str,
    host: Host,
    *,
    changed: FrozenSet[before.Key],
    untried: FrozenSet[before.Key],
    now: Sequence[Setting],
) -> Optional[GpuFleetError]:
    """Leave in the record what was changed. Returns the error that kept it as it is, with more in it than that."""
    try:
        before.settle(host.files, concern, changed=changed, untried=untried, now=now)
    except GpuFleetError as error:
        return error
    except OSError as error:
        return _cannot_write(concern, error)
    return None


def _cannot_write(concern: str, error: OSError) -> NotPermitted:
    return NotPermitted(f"change {concern}", object=str(error.filename or ""), cause=error.strerror or str(error))


def not_in_effect(plan: Plan) -> Optional[GpuFleetError]:
    """The first setting that the machine does not have as it is wanted, and that no step of the plan is for.

    What is in the way of it, where the plan knows that.
    """
    if plan.obstacle is not None and plan.obstacle.final and not plan.steps:
        return plan.obstacle.error
    for setting in plan.settings:
        if setting.status == DIFFERS:
            at_boot = not setting.effective_matters or setting.effective == setting.wanted
            return NotInEffect(
                f"bring {setting.setting} into effect{' at boot' if at_boot else ''}",
                object=setting.object,
                cause="the machine says another value than the one that was written",
                found=setting.boot if at_boot else setting.effective,
                wanted=setting.wanted,
                hint="look at conflicts in the result for another owner of the setting",
            )
    return None


def _made(tried: Sequence[Change], done: Sequence[Change], remaining: Plan) -> List[Change]:
    """What really changed, by the last look: a step that failed may have done a part, one that did not may have too."""
    settings = {(setting.object, setting.setting): setting for setting in remaining.settings}
    made = []
    for change in tried:
        setting = settings.get((change.object, change.setting))
        if setting is None:
            made.extend([change] if change in done else [])
            continue
        now = setting.effective if change.scope == EFFECTIVE else setting.boot
        if now != change.before:
            made.append(replace(change, after=now))
    return made


def _finish(concern: Concern[State, Desired], params: Params, host: Host, remaining: Plan) -> None:
    _note_reboot(concern.name, host, remaining)
    if params["state"] == "absent":
        forget_given_back(concern, params, host)


def forget_given_back(concern: Concern[State, Desired], params: Params, host: Host) -> None:
    """Drop the record where nothing of a concern is left. Under the lock; ``params`` are those of ``state: absent``.

    Also for what brings into effect what a run of ``state: absent`` left pending, so that it takes no second one.
    """
    if _all_given_back(concern, params, host):
        before.forget(host.files, concern.name)


def _all_given_back(concern: Concern[State, Desired], params: Params, host: Host) -> bool:
    """Whether nothing of ours is left, neither now nor at boot, also when only one of the two was given back here."""
    try:
        _state, plan = look(concern, {**params, "immediate": True, "permanent": True}, host)
    except GpuFleetError:
        return False
    known = before.load(host.files, concern.name).found
    return not plan.steps and not any((setting.identity, setting.setting) in known for setting in plan.pending)


def _note_reboot(concern: str, host: Host, remaining: Plan) -> None:
    path, text = reboot_note(concern), reboot_text(remaining)
    if text == (host.files.read_optional(path) or ""):
        return
    if text:
        host.files.replace(path, text)
    else:
        host.files.remove(path)


def _journal(concern: str, change: Change, host: Host) -> None:
    host.journal(
        f"{concern}: {change.object} {change.setting}: {change.before} -> {change.after} ({change.scope})",
        {
            "GPUFLEET_CONCERN": concern,
            "GPUFLEET_OBJECT": change.object,
            "GPUFLEET_SETTING": change.setting,
            "GPUFLEET_BEFORE": str(change.before),
            "GPUFLEET_AFTER": str(change.after),
            "GPUFLEET_SCOPE": change.scope,
        },
    )
