# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module does: parse, observe, resolve, plan, perform, observe again."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import baseline, targets
from .assessment import assess
from .change import Change, Plan, RemoveFile, ReplaceFile, RoomAction, Step
from .contract import LOCK, AnyConcern, Outcome, Params, outcome, reboot_note, reboot_text
from .errors import CannotLook, GpuFleetError, InUse, NotInEffect, NotPermitted
from .journal import journal
from .protocols import temporary_of
from .setting import DRIFTED, EFFECTIVE, Setting
from .value import replace

if TYPE_CHECKING:
    from .protocols import Host


def converge(
    concern: AnyConcern,
    params: Params,
    host: Host,
    *,
    check_mode: bool,
    may_wait: bool = True,
    diff: bool = False,
) -> Outcome:
    """All five steps. ``check_mode`` is asked here and nowhere else. ``may_wait``: for what is in the way to go.

    ``diff``: also say how foreign files change.
    Raises ``GpuFleetError`` before anything changed; a failure after that is in ``Outcome.error``.
    """
    try:
        state, plan = assess(concern, params, host)
        unfinished = not plan.steps and plan.status == DRIFTED
        seen: Optional[GpuFleetError] = None
    except GpuFleetError as caught:
        unfinished, seen = True, caught
    if unfinished and not check_mode and host.may_change and host.files.exists(LOCK):
        # What looks wrong may be another run in the middle of its work: it is wrong when it still is under the lock.
        # Where there is no lock there was no other run since the boot, and a refusal leaves none behind.
        state, plan = assess_alone(concern, params, host, seen)
    elif seen is not None:
        raise seen
    if check_mode:
        error = plan.blocker.error if plan.blocker is not None and plan.blocker.fatal else None
        files = _file_diffs(plan, host) if diff else ()
        return outcome(concern, plan=plan, changes=plan.changes, state=state, remaining=plan, error=error, files=files)
    with as_not_permitted(f"change {concern.name}"):
        is_done = not plan.steps and not _left_over(concern.name, params, host, plan)
    if is_done:
        if plan.status != DRIFTED:
            return outcome(concern, plan=plan, changes=(), state=state, remaining=plan)
        return outcome(concern, plan=plan, changes=(), state=state, remaining=plan, error=not_in_effect(plan))
    if not host.may_change:
        raise NotPermitted(f"change {concern.name}", cause="not running as root", hint="run the task with become: true")
    return execute(concern, params, host, may_wait=may_wait, diff=diff)


def _file_diffs(plan: Plan, host: Host) -> Sequence[Mapping[str, str]]:
    # Only diff mode pays for importing it.
    from .file_diff import file_diffs

    return file_diffs(plan.steps, host.files)


def _left_over(concern: str, params: Params, host: Host, plan: Plan) -> bool:
    """Whether a run that has no step left something of ours behind: a record to drop, reasons that no longer hold."""
    if params["state"] == "absent":
        path = baseline.path_of(concern)
        if host.files.exists(path) or host.files.exists(temporary_of(path)) or baseline.empty_folder(host.files):
            return True
    return (host.files.read_optional(reboot_note(concern)) or "") != reboot_text(plan)


LOCK_TIMEOUT_SECONDS = 60.0
# What is in use is left as it is then.
SKIP = "skip"
# How often a run that waits looks again.
POLL_SECONDS = 5.0


@contextlib.contextmanager
def _locked(host: Host) -> Iterator[None]:
    """The lock. Who has to wait for it lets go of the driver first: the other run may be about to reset a GPU."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(host.files.lock(LOCK, 0.0))
        except TimeoutError:
            host.nvml.close()
            held.enter_context(host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS))
        yield


@contextlib.contextmanager
def as_not_permitted(goal: str) -> Iterator[None]:
    """Around the lock and what is done under it: ``NotPermitted`` where it cannot be had, or a file not written."""
    try:
        yield
    except TimeoutError as error:
        hint = "wait until the other run has ended, then run again"
        raise NotPermitted(goal, object=LOCK, cause=str(error), hint=hint) from error
    except OSError as error:
        raise _not_permitted(goal, error) from error


def assess_alone(concern: AnyConcern, params: Params, host: Host, seen: Optional[GpuFleetError]) -> Tuple[Any, Plan]:
    """Look again while no other run changes anything. Where that cannot be had, what was ``seen`` first counts.

    Raises ``GpuFleetError`` as ``assess`` does.
    """
    try:
        with _locked(host):
            return assess(concern, params, host)
    except OSError:
        if seen is not None:
            raise seen from None
        return assess(concern, params, host)


def execute(concern: AnyConcern, params: Params, host: Host, *, may_wait: bool, diff: bool) -> Outcome:
    """Look again under the lock, for another run may have been faster, and take the steps.

    While something is in the way the lock is free, and every look makes a new plan. Raises ``GpuFleetError`` before
    anything changed; a failure after that is in ``Outcome.error``.
    """
    given_up: Optional[float] = None
    while True:
        with as_not_permitted(f"change {concern.name}"), _locked(host):
            state, plan = assess(concern, params, host)
            if plan.blocker is not None and plan.blocker.recovery_step is not None:
                concern.perform(plan.blocker.recovery_step, host)
                state, plan = assess(concern, params, host)
            if plan.blocker is None:
                return _execute_locked(concern, params, host, state=state, plan=plan, diff=diff)
        if given_up is None:
            given_up = time.monotonic() + (plan.blocker.timeout if may_wait else 0.0)
        left = given_up - time.monotonic()
        if left <= 0:
            raise plan.blocker.error
        time.sleep(min(POLL_SECONDS, left))


# How many plans a run makes where somebody takes into use what the one before was about to change.
PLANS = 3


def _execute_locked(concern: AnyConcern, params: Params, host: Host, *, state: Any, plan: Plan, diff: bool) -> Outcome:
    files = _file_diffs(plan, host) if diff else ()
    first, new = plan, _save(concern, params, host, plan)
    done: List[Change] = []
    acted: List[Change] = []
    for _plan in range(PLANS):
        tried, in_part, failure = _take_steps(concern, host, plan, done)
        acted.extend(in_part)
        if not (isinstance(failure, InUse) and failure.late and params.get("when_busy") == SKIP):
            break
        # With what is in use now the next plan waits. What is free again by then is changed after all.
        try:
            plan = assess(concern, params, host)[1]
            new |= _save(concern, params, host, plan)
        except (GpuFleetError, OSError):
            break
    acted.extend(done)
    remaining = plan
    now: Optional[Plan] = None
    try:
        state, remaining = assess(concern, params, host)
        now = remaining
        made = _actual_changes(tried, done, remaining)
        acted.extend(made)
        known = frozenset(done)
        journal(host, concern.name, (change for change in made if change not in known))
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
        keys = _Keys((*first.settings, *settings))
        unsettled = _prune_baseline(
            concern.name, host, changed=keys.of(acted), untried=new - keys.of(tried), now=settings
        )
        failure = failure or unsettled
    if files and (failure is not None or plan is not first):
        # What still differs from what was planned was not written.
        left = [one["path"] for one in _file_diffs(first, host)]
        files = [one for one in files if one["path"] not in left]
    return outcome(
        concern, plan=first, changes=tuple(done), state=state, remaining=remaining, error=failure, files=files
    )


def _save(concern: AnyConcern, params: Params, host: Host, plan: Plan) -> FrozenSet[baseline.Key]:
    if params["state"] != "present":
        return frozenset()
    return baseline.save(host.files, concern.name, plan.settings, plan.feasible)


def _take_steps(
    concern: AnyConcern, host: Host, plan: Plan, done: List[Change]
) -> Tuple[List[Change], Sequence[Change], Optional[GpuFleetError]]:
    """Take the steps up to the first that fails, and add what they changed to ``done``.

    Returns what was tried in all, what the steps that were taken are a part of, and what went wrong.
    """
    tried = list(done)
    failure: Optional[GpuFleetError] = None
    noted: Dict[str, Optional[str]] = {}
    # Such as the first of several files.
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
            journal(host, concern.name, changes)
    except GpuFleetError as error:
        failure = error
    except OSError as error:
        failure = _cannot_write(concern.name, error)
    if failure is not None and noted:
        _restore_notes(noted, plan.steps[number], host)
    return tried, in_part, failure


def _restore_notes(noted: Mapping[str, Optional[str]], failed: Step, host: Host) -> None:
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

    def of(self, changes: Sequence[Change]) -> FrozenSet[baseline.Key]:
        names = [(change.object, change.setting) for change in changes]
        return frozenset(self._keys.get(name, name) for name in names)


def _prune_baseline(
    concern: str,
    host: Host,
    *,
    changed: FrozenSet[baseline.Key],
    untried: FrozenSet[baseline.Key],
    now: Sequence[Setting],
) -> Optional[GpuFleetError]:
    """Leave in the record what was changed. Returns the error that kept it as it is, with more in it than that."""
    try:
        baseline.prune(host.files, concern, changed=changed, untried=untried, now=now)
    except GpuFleetError as error:
        return error
    except OSError as error:
        return _cannot_write(concern, error)
    return None


def _cannot_write(concern: str, error: OSError) -> NotPermitted:
    return _not_permitted(f"change {concern}", error)


def _not_permitted(goal: str, error: OSError) -> NotPermitted:
    path, cause = str(error.filename or ""), error.strerror or str(error)
    return NotPermitted(goal, object=path, cause=cause, hint=targets.remedy(error))


def not_in_effect(plan: Plan) -> Optional[GpuFleetError]:
    """The first setting that the machine does not have as it is wanted, and that no step of the plan is for.

    What is in the way of it, where the plan knows that.
    """
    if plan.blocker is not None and plan.blocker.fatal and not plan.steps:
        return plan.blocker.error
    for setting in plan.settings:
        if setting.status == DRIFTED:
            at_boot = not setting.effective_matters or setting.effective == setting.wanted
            return NotInEffect(
                f"apply {setting.setting}{' at boot' if at_boot else ''}",
                object=setting.object,
                cause="it is in effect now, but would not survive a reboot"
                if at_boot and setting.effective_matters
                else "the machine reports another value than the one written",
                found=setting.boot if at_boot else setting.effective,
                wanted=setting.wanted,
                hint="check conflicts in the result for another owner of the setting",
            )
    return None


def _actual_changes(tried: Sequence[Change], done: Sequence[Change], remaining: Plan) -> List[Change]:
    """What really changed, by the last look: a step that failed may have done a part, one that did not may have too."""
    settings = {(setting.object, setting.setting): setting for setting in remaining.settings}
    taken = frozenset(done)
    made = []
    for change in tried:
        setting = settings.get((change.object, change.setting))
        if setting is None:
            made.extend([change] if change in taken else [])
            continue
        now = setting.effective if change.scope == EFFECTIVE else setting.boot
        if now != change.before:
            made.append(replace(change, after=now))
    return made


def _finish(concern: AnyConcern, params: Params, host: Host, remaining: Plan) -> None:
    _note_reboot(concern.name, host, remaining)
    if params["state"] != "absent":
        return
    try:
        is_restored = _all_restored(concern, params, host)
    except GpuFleetError as error:
        if not (isinstance(error, CannotLook) and params["immediate"] and params["permanent"]):
            # Only of the half that this run was not about: its own was looked at just before.
            return
        raise CannotLook(
            "read back whether all of {} is restored",
            object=concern.name,
            cause=str(error).rstrip("."),
            hint="run again once it can be read; what was there before stays recorded until then",
        ) from error
    if is_restored:
        baseline.drop(host.files, concern.name)


def drop_if_restored(concern: AnyConcern, params: Params, host: Host) -> None:
    """Drop the record where nothing of a concern is left. Under the lock; ``params`` are those of ``state: absent``.

    Also for what brings into effect what a run of ``state: absent`` left pending, so that it takes no second one.
    """
    with contextlib.suppress(GpuFleetError):
        if _all_restored(concern, params, host):
            baseline.drop(host.files, concern.name)


def _all_restored(concern: AnyConcern, params: Params, host: Host) -> bool:
    """Whether nothing is left to restore, neither now nor at boot, also when only one of the two was restored here.

    Raises ``GpuFleetError`` as ``assess`` does.
    """
    _state, plan = assess(concern, {**params, "immediate": True, "permanent": True}, host)
    known = baseline.load(host.files, concern.name).values
    return not plan.steps and not any((setting.identity, setting.setting) in known for setting in plan.pending)


def _note_reboot(concern: str, host: Host, remaining: Plan) -> None:
    path, text = reboot_note(concern), reboot_text(remaining)
    if text == (host.files.read_optional(path) or ""):
        return
    if text:
        host.files.replace(path, text)
    else:
        host.files.remove(path)
