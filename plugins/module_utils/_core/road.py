# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The road every module takes: observe, normalise, plan, apply, observe again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple, TypeVar

from .._host.protocols import Host
from . import before, declared
from .before import Before
from .change import EFFECTIVE, Change, Plan, Step
from .errors import CannotLook, GpuFleetError, NotInEffect, NotPermitted

State = TypeVar("State")
Desired = TypeVar("Desired")
Params = Mapping[str, Any]

LOCK = "/run/gpufleet/lock"
LOCK_TIMEOUT_SECONDS = 60.0
REBOOT_FOLDER = "/run/gpufleet/reboot-required.d"

SHARED_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "immediate": {"type": "bool", "default": True},
    "permanent": {"type": "bool", "default": True},
    "strict": {"type": "bool", "default": False},
}


class Concern(Protocol[State, Desired]):
    """What a room offers for one concern. Every method but ``perform`` only reads."""

    name: str
    options: Mapping[str, Any]
    """The argument specification, as data, without the shared options."""

    def observe(self, host: Host, params: Params) -> State:
        """What is in effect and what the next boot will bring. ``params`` only narrows what is read."""

    def normalise(self, params: Params, state: State) -> Desired:
        """The declaration resolved against this machine. Raises ``DeclarationError`` on wrong input."""

    def restore(self, found: Before, state: State) -> Desired:
        """What ``state: absent`` wants: the values from before the first change, and no file of ours."""

    def plan(self, state: State, desired: Desired) -> Plan:
        """Pure: the settings three ways and the steps from here to there, complete and in order."""

    def perform(self, step: Step, host: Host) -> None:
        """One step. The room imports what it needs for it only here."""

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """The state in the module's own words: in effect, and at boot."""


@dataclass(frozen=True)
class Outcome:
    """What a look or a run found and did; ``as_dict`` is the contract of every module."""

    status: str
    plan: Plan
    changes: Tuple[Change, ...]
    effective: Mapping[str, Any]
    boot: Mapping[str, Any]
    remaining: Plan
    """The plan of the last look: what must still happen."""
    error: Optional[GpuFleetError] = None

    def as_dict(self) -> Dict[str, Any]:
        result: Dict[str, Any] = {
            "changed": bool(self.changes),
            "status": self.status,
            "changes": [change.as_dict() for change in self.changes],
            "diff": diff(self.changes),
            "needs": list(self.remaining.needs),
            "unmanaged": [entry.as_dict() for entry in self.remaining.unmanaged],
            "conflicts": [entry.as_dict() for entry in self.remaining.conflicts],
            "reboot_required": bool(self.remaining.needs),
            "reboot_reasons": list(self.remaining.reboot_reasons),
            "effective": dict(self.effective),
            "boot": dict(self.boot),
        }
        if self.error is not None:
            result.update(failed=True, msg=str(self.error), failure=self.error.failure())
        return result


def diff(changes: Tuple[Change, ...]) -> Dict[str, str]:
    """The changes for ``--diff``: one ``object setting: value`` a line, those for the next boot marked as such."""
    sides: Dict[str, str] = {}
    for side in ("before", "after"):
        lines = []
        for change in changes:
            scope = "" if change.scope == EFFECTIVE else " (boot)"
            value = getattr(change, side)
            lines.append(f"{change.object} {change.setting}{scope}: {'-' if value is None else value}\n")
        sides[side] = "".join(lines)
    return sides


def look(concern: Concern[State, Desired], params: Params, host: Host) -> Tuple[State, Plan]:
    """The first three steps: read the machine and plan, without a change."""
    try:
        state = concern.observe(host, params)
        if params["state"] == "absent":
            plan = concern.plan(state, concern.restore(before.load(host.files, concern.name), state))
            declaration, steps = declared.plan_absent(host.files, concern.name)
            return state, replace(plan, settings=(*plan.settings, declaration), steps=(*plan.steps, *steps))
        plan = concern.plan(state, concern.normalise(params, state))
        if not params["permanent"]:
            return state, plan
        declaration, steps = declared.plan_present(host.files, concern.name, params)
        return state, replace(plan, settings=(*plan.settings, declaration), steps=(*plan.steps, *steps))
    except OSError as error:
        raise CannotLook(
            f"look at {concern.name}", object=error.filename or "", cause=error.strerror or str(error)
        ) from error


def converge(concern: Concern[State, Desired], params: Params, host: Host, *, check_mode: bool) -> Outcome:
    """All five steps. ``check_mode`` is asked here and nowhere else.

    Raises ``GpuFleetError`` before anything changed; a failure after that is in ``Outcome.error``.
    """
    if check_mode:
        state, plan = look(concern, params, host)
        return _outcome(concern, plan=plan, changes=plan.changes, state=state, remaining=plan)
    if not host.may_change:
        state, plan = look(concern, params, host)
        if plan.steps:
            raise NotPermitted(
                f"change {concern.name}", cause="not running as root", hint="run the task with become: true"
            )
        return _outcome(concern, plan=plan, changes=(), state=state, remaining=plan)
    try:
        lock = host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS)
        with lock:
            return _converge_locked(concern, params, host)
    except TimeoutError as error:
        raise NotPermitted(
            f"change {concern.name}",
            object=LOCK,
            cause=str(error),
            hint="wait until the other run has ended, then run again",
        ) from error
    except OSError as error:
        raise _cannot_write(concern.name, error) from error


def _converge_locked(concern: Concern[State, Desired], params: Params, host: Host) -> Outcome:
    state, plan = look(concern, params, host)
    if not plan.steps:
        _finish(concern, params, host, plan)
        return _outcome(concern, plan=plan, changes=(), state=state, remaining=plan)
    if params["state"] == "present":
        try:
            before.remember(host.files, concern.name, plan.settings, plan.steps)
        except OSError as error:
            raise _cannot_write(concern.name, error) from error
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
    return _outcome(concern, plan=plan, changes=tuple(done), state=state, remaining=remaining, error=failure)


def _outcome(
    concern: Concern[State, Desired],
    *,
    plan: Plan,
    changes: Tuple[Change, ...],
    state: State,
    remaining: Plan,
    error: Optional[GpuFleetError] = None,
) -> Outcome:
    effective, boot = concern.report(state)
    return Outcome(
        status=plan.status,
        plan=plan,
        changes=changes,
        effective=effective,
        boot=boot,
        remaining=remaining,
        error=error,
    )


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
    """Keep the reasons for a reboot where the next boot clears them by itself."""
    path = f"{REBOOT_FOLDER}/{concern}"
    text = "".join(f"{reason}\n" for reason in remaining.reboot_reasons)
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
