# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The road every module takes: observe, normalise, plan, apply, observe again."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Protocol, Tuple, TypeVar

from . import declared
from .change import DIFFERS, EFFECTIVE, INVALID, UNKNOWN, Change, Plan, Step
from .errors import CannotLook, DeclarationError, GpuFleetError, NotPermitted

if TYPE_CHECKING:
    from .._host.protocols import Host
    from .before import Before

State = TypeVar("State")
Desired = TypeVar("Desired")
Params = Mapping[str, Any]

LOCK = "/run/gpufleet/lock"
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
    apply_at_boot: bool
    """Whether the boot service applies the declaration, because nothing else carries it across a reboot."""

    def observe(self, host: Host, params: Params) -> State:
        """What is in effect and what the next boot will bring. ``params`` only narrows what is read."""

    def normalise(self, params: Params, state: State) -> Desired:
        """The declaration resolved against this machine. Raises ``DeclarationError`` on wrong input."""

    def restore(self, params: Params, found: Before, state: State) -> Desired:
        """What ``state: absent`` wants: the values from before the first change, and no file of ours.

        Of ``params`` only ``immediate`` and ``permanent`` count.
        """

    def plan(self, state: State, desired: Desired) -> Plan:
        """Pure: the settings three ways and the steps from here to there, complete and in order."""

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        """One step. The room imports what it needs for it only here.

        None when it made its changes, or the changes that it made, where the machine let it make others than those.
        """

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """The state in the module's own words: in effect, and at boot."""


@dataclass(frozen=True)
class Outcome:
    """What a look or a run found and did; ``as_dict`` is the contract of every module."""

    status: str
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
            "reboot_required": bool(self.remaining.reboot_reasons),
            "reboot_reasons": list(self.remaining.reboot_reasons),
            "effective": dict(self.effective),
            "boot": dict(self.boot),
        }
        if self.error is not None:
            result.update(failed=True, msg=str(self.error), failure=self.error.failure())
        return result


def status_of(error: GpuFleetError) -> str:
    """What is declared wrong is invalid, what could not be read unknown; a refused node is not as declared."""
    if isinstance(error, DeclarationError):
        return INVALID
    return UNKNOWN if isinstance(error, CannotLook) and not error.settings else DIFFERS


def refused(error: GpuFleetError) -> Outcome:
    """The outcome of a run that failed before its first change."""
    return Outcome(status_of(error), (), {}, {}, Plan(error.settings), error)


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
            from . import before

            plan = concern.plan(state, concern.restore(params, before.load(host.files, concern.name), state))
            if not params["permanent"]:
                return state, plan
            declaration, step = declared.plan_absent(host.files, concern.name)
            return state, plan.with_setting(declaration, (*plan.steps, *step))
        plan = concern.plan(state, concern.normalise(params, state))
        # What cannot even begin is not declared either.
        if not params["permanent"] or (plan.obstacle is not None and plan.obstacle.final and not plan.steps):
            return state, plan
        declaration, step = declared.plan_present(host.files, concern, params, SHARED_OPTIONS)
        # With the rest of the next boot: a room that writes that last leaves no declaration of what the kernel refused.
        boot, running = plan.split()
        return state, plan.with_setting(declaration, (*boot, *step, *running))
    except OSError as error:
        raise CannotLook(
            f"look at {concern.name}",
            object=error.filename or "",
            cause=error.strerror or str(error),
            hint="run as root, or with become: true" if error.errno in (errno.EACCES, errno.EPERM) else "",
        ) from error


def converge(
    concern: Concern[State, Desired], params: Params, host: Host, *, check_mode: bool, may_wait: bool = True
) -> Outcome:
    """All five steps. ``check_mode`` is asked here and nowhere else. ``may_wait``: for what is in the way to go.

    Raises ``GpuFleetError`` before anything changed; a failure after that is in ``Outcome.error``.
    """
    try:
        state, plan = look(concern, params, host)
        unfinished = not plan.steps and plan.status == DIFFERS
        seen: Optional[GpuFleetError] = None
    except GpuFleetError as caught:
        unfinished, seen = True, caught
    if unfinished and not check_mode and host.may_change and host.files.exists(LOCK):
        # What looks wrong may be another run in the middle of its work: it is wrong when it still is under the lock.
        # Where there is no lock there was no other run since the boot, and a refusal leaves none behind.
        from .apply import look_alone

        state, plan = look_alone(concern, params, host, seen)
    elif seen is not None:
        raise seen
    if check_mode:
        error = plan.obstacle.error if plan.obstacle is not None and plan.obstacle.final else None
        return outcome(concern, plan=plan, changes=plan.changes, state=state, remaining=plan, error=error)
    if not plan.steps and not _left_over(concern.name, params, host, plan):
        if plan.status != DIFFERS:
            return outcome(concern, plan=plan, changes=(), state=state, remaining=plan)
        from .apply import not_in_effect

        return outcome(concern, plan=plan, changes=(), state=state, remaining=plan, error=not_in_effect(plan))
    if not host.may_change:
        raise NotPermitted(f"change {concern.name}", cause="not running as root", hint="run the task with become: true")
    from .apply import carry_out

    return carry_out(concern, params, host, may_wait=may_wait)


def outcome(
    concern: Concern[State, Desired],
    *,
    plan: Plan,
    changes: Tuple[Change, ...],
    state: State,
    remaining: Plan,
    error: Optional[GpuFleetError] = None,
) -> Outcome:
    effective, boot = concern.report(state)
    return Outcome(plan.status, changes, effective, boot, remaining, error)


def reboot_note(concern: str) -> str:
    """Where the reasons for a reboot are kept, so that the next boot clears them by itself."""
    return f"{REBOOT_FOLDER}/{concern}"


def reboot_text(plan: Plan) -> str:
    return "".join(f"{reason}\n" for reason in plan.reboot_reasons)


def _left_over(concern: str, params: Params, host: Host, plan: Plan) -> bool:
    """Whether a run that has no step left something of ours behind: a record to drop, reasons that no longer hold."""
    if params["state"] == "absent":
        from .._host.files import temporary_of
        from . import before

        path = before.path_of(concern)
        if host.files.exists(path) or host.files.exists(temporary_of(path)):
            return True
    return (host.files.read_optional(reboot_note(concern)) or "") != reboot_text(plan)
