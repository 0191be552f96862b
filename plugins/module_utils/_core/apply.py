# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The second half of the road, for a run that has something to do: the steps, and the look that proves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from . import before
from .change import Change, Plan
from .errors import GpuFleetError, NotInEffect, NotPermitted
from .road import Concern, Desired, Outcome, Params, State, look, outcome, reboot_note, reboot_text

if TYPE_CHECKING:
    from .._host.protocols import Host

LOCK = "/run/gpufleet/lock"
LOCK_TIMEOUT_SECONDS = 60.0


def carry_out(concern: Concern[State, Desired], params: Params, host: Host) -> Outcome:
    """Look again under the lock, for another run may have been faster, and take the steps.

    Raises ``GpuFleetError`` before anything changed; a failure after that is in ``Outcome.error``.
    """
    try:
        with host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS):
            return _carry_out_locked(concern, params, host)
    except TimeoutError as error:
        raise NotPermitted(
            f"change {concern.name}",
            object=LOCK,
            cause=str(error),
            hint="wait until the other run has ended, then run again",
        ) from error
    except OSError as error:
        raise _cannot_write(concern.name, error) from error


def _carry_out_locked(concern: Concern[State, Desired], params: Params, host: Host) -> Outcome:
    state, plan = look(concern, params, host)
    if params["state"] == "present":
        before.remember(host.files, concern.name, plan.settings, plan.steps)
    done: List[Change] = []
    failure: Optional[GpuFleetError] = None
    try:
        for step in plan.steps:
            concern.perform(step, host)
            done.extend(step.changes)
            for change in step.changes:
                _journal(concern.name, change, host)
    except GpuFleetError as error:
        failure = error
    except OSError as error:
        failure = _cannot_write(concern.name, error)
    remaining = plan
    try:
        state, remaining = look(concern, params, host)
        failure = failure or _not_in_effect(remaining)
        if failure is None:
            _finish(concern, params, host, remaining)
        else:
            _note_reboot(concern.name, host, remaining)
    except GpuFleetError as error:
        failure = failure or error
    except OSError as error:
        failure = failure or _cannot_write(concern.name, error)
    return outcome(concern, plan=plan, changes=tuple(done), state=state, remaining=remaining, error=failure)


def _cannot_write(concern: str, error: OSError) -> NotPermitted:
    return NotPermitted(f"change {concern}", object=str(error.filename or ""), cause=error.strerror or str(error))


def _not_in_effect(remaining: Plan) -> Optional[GpuFleetError]:
    """The first change that was made and that the machine does not confirm."""
    if not remaining.changes:
        return None
    change = remaining.changes[0]
    return NotInEffect(
        f"bring {change.setting} into effect",
        object=change.object,
        cause="the value was written, and the machine says another one",
        found=change.before,
        wanted=change.after,
        hint="look at conflicts in the result for another owner of the setting",
    )


def _finish(concern: Concern[State, Desired], params: Params, host: Host, remaining: Plan) -> None:
    _note_reboot(concern.name, host, remaining)
    if params["state"] == "absent" and not remaining.needs:
        before.forget(host.files, concern.name)


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
