# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Out of service and back: ``slurm_node``. A procedure, no concern: nothing of it is declared on the node."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Tuple, Union

from .._core.change import EFFECTIVE, Change
from .._core.errors import CannotLook, DeclarationError, GpuFleetError, InUse, NotInEffect, OwnedByAnother, Refused
from .._core.road import diff
from .controller import Controller
from .jobs import Job, named
from .node import (
    DOWN,
    ERROR,
    FAIL,
    FUTURE,
    INVALID,
    MARK,
    NOBODYS,
    NOT_RESPONDING,
    OURS,
    POWERING_UP,
    THEIRS,
    UNKNOWN,
    Node,
)

if TYPE_CHECKING:
    from .._host.protocols import Host

DRAINED, IN_SERVICE = "drained", "in_service"
ARGUMENTS: Mapping[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": [DRAINED, IN_SERVICE], "required": True},
    "reason": {"type": "str", "default": "maintenance"},
    "timeout": {"type": "int", "default": 3600},
    "poll": {"type": "int", "default": 15},
}
FIRST_POLL_SECONDS = 1.0
BROKEN = (DOWN, ERROR, FUTURE, UNKNOWN)
# One node, not a list or range of them, which scontrol would take as well.
ONE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ALL = "all"
# Without our mark: Slurm adds to a reason that is there when it drains a node itself, and that drain is not ours.
AFTERWARDS = "returned to service by gpufleet"


@dataclass(frozen=True)
class Wish:
    """The options. ``timeout`` and ``poll`` are in seconds."""

    name: str
    state: str
    reason: str
    timeout: int
    poll: int


@dataclass(frozen=True)
class Result:
    """``node`` and ``jobs`` are as seen last."""

    node: Node
    jobs: Tuple[Job, ...] = ()
    changes: Tuple[Change, ...] = ()
    error: Optional[GpuFleetError] = None

    def as_dict(self) -> Dict[str, Any]:
        node = self.node
        result: Dict[str, Any] = {
            "changed": bool(self.changes),
            "name": node.name,
            "owner": node.owner,
            "node_state": node.state,
            "reason": node.reason if node.drained else "",
            "drained_by": node.user if node.drained else "",
            "since": node.since if node.drained else "",
            "idle": not node.occupied and not self.jobs,
            "jobs": [job.as_dict() for job in self.jobs],
            "left": _whose(node) if node.owner == THEIRS else _why_away(node),
            "changes": [change.as_dict() for change in self.changes],
            "diff": diff(self.changes),
        }
        if self.error is not None:
            result.update(failed=True, msg=str(self.error), failure=self.error.failure())
        return result


def run(params: Mapping[str, Any], host: Host, *, check_mode: bool) -> Dict[str, Any]:
    """The result of the module. Raises ``GpuFleetError`` where nothing was touched."""
    wish = Wish(**params)
    _refuse_senseless(wish)
    controller = Controller(host.commands)
    node = controller.node(wish.name)
    if wish.state == DRAINED:
        return _drain(wish, node, controller, host, check_mode=check_mode).as_dict()
    return _resume(wish, node, controller, host, check_mode=check_mode).as_dict()


def _refuse_senseless(wish: Wish) -> None:
    def refuse(option: str, cause: str, found: str) -> DeclarationError:
        return DeclarationError("change the state of a node", object=option, cause=cause, found=found)

    if not ONE_NAME.fullmatch(wish.name) or wish.name.lower() == ALL:
        raise refuse("name", "it must be the name of one node", wish.name)
    # scontrol takes quotes away at the ends, and what is not printable ends up in the logs of others.
    if not wish.reason.strip() or not wish.reason.isprintable() or '"' in wish.reason:
        raise refuse("reason", "it must be one line of text without double quotes", repr(wish.reason))
    for option, least in (("timeout", 0), ("poll", 1)):
        if getattr(wish, option) < least:
            raise refuse(option, f"it must be a number of seconds from {least} on", str(getattr(wish, option)))


# --- drained ----------------------------------------------------------------------------------------------------------


def _drain(wish: Wish, node: Node, controller: Controller, host: Host, *, check_mode: bool) -> Result:
    _refuse_trouble(node)
    changes: Tuple[Change, ...] = ()
    if node.owner == NOBODYS:
        changes = _changes(node, DRAINED, f"{MARK}{wish.reason}")
        if check_mode:
            return Result(node, _jobs_of(controller, node), changes)
        controller.drain(wish.name, f"{MARK}{wish.reason}")
        _journal(host, changes)
        try:
            node = controller.node(wish.name)
        except GpuFleetError as error:
            return Result(node, changes=changes, error=error)
        if node.owner != OURS:
            return Result(node, changes=changes, error=_not_taken("drain", node))
    if check_mode or wish.timeout == 0:
        return Result(node, _jobs_of(controller, node), changes)
    return _wait_until_idle(wish, node, changes, controller)


def _refuse_trouble(node: Node) -> None:
    """Refuse a node that would not be out of service in a way that lasts, or is so already for a reason of its own."""
    if node.rebooting:
        raise Refused(
            "drain a node",
            object=node.name,
            cause="somebody has asked Slurm to reboot it, and afterwards it is in service again",
            found=node.state,
            hint="wait for it, or scontrol cancel_reboot",
        )
    away = _why_away(node)
    if away:
        raise Refused(
            "drain a node",
            object=node.name,
            cause=f"{away}, which is for somebody else to mend",
            hint="return it to service, or drain it yourself",
        )


def _wait_until_idle(wish: Wish, node: Node, changes: Tuple[Change, ...], controller: Controller) -> Result:
    away: Optional[CannotLook] = None
    jobs: Tuple[Job, ...] = ()
    for seen in _looks(wish, controller):
        if isinstance(seen, CannotLook):
            away = seen
            continue
        node, jobs, away = seen, (), None
        if not node.drained:
            return Result(node, changes=changes, error=_returned(node))
        if node.occupied:
            continue
        # Only here, for every squeue costs slurmctld all jobs of the cluster. A suspended one leaves a node idle.
        try:
            jobs = controller.jobs(wish.name)
        except CannotLook as error:
            away = error
            continue
        if not jobs:
            return Result(node, changes=changes)
    if away is None:
        jobs = jobs or _jobs_of(controller, node)
    return Result(node, jobs, changes, away or _still_there(wish, node, jobs))


def _returned(node: Node) -> GpuFleetError:
    return OwnedByAnother(
        "wait for the jobs of a node",
        object=node.name,
        cause="somebody has returned it to service meanwhile",
        found=node.state,
        hint="agree with him, then run again",
    )


def _still_there(wish: Wish, node: Node, jobs: Tuple[Job, ...]) -> GpuFleetError:
    return InUse(
        "wait any longer for the jobs of a node",
        object=wish.name,
        cause=f"after {wish.timeout} seconds there {'is' if len(jobs) == 1 else 'are'} {named(jobs)}",
        found=node.state,
        hint="it stays drained: wait on with another run, or end them",
    )


def _jobs_of(controller: Controller, node: Node) -> Tuple[Job, ...]:
    """Those to be named. That they cannot be is no reason to forget what was done before."""
    try:
        return controller.jobs(node.name)
    except CannotLook:
        return ()


# --- in service -------------------------------------------------------------------------------------------------------


def _resume(wish: Wish, node: Node, controller: Controller, host: Host, *, check_mode: bool) -> Result:
    if node.left_over:
        return _tidy_up(wish, node, controller, host, check_mode=check_mode)
    if node.owner != OURS:
        return Result(node)
    changes = _changes(node, IN_SERVICE, None)
    if node.rebooting:
        raise Refused(
            "resume a node",
            object=node.name,
            cause="somebody has asked Slurm to reboot it",
            found=node.state,
            hint="wait for it, or scontrol cancel_reboot",
        )
    if check_mode:
        return Result(node, changes=changes)
    node = _await_slurmd(wish, node, controller)
    if node.owner != OURS:
        return Result(node)
    controller.resume(wish.name)
    _journal(host, changes)
    return _await_service(wish, node, changes, controller)


def _tidy_up(wish: Wish, node: Node, controller: Controller, host: Host, *, check_mode: bool) -> Result:
    """Take the mark that is left where a run was cut off after the resume."""
    changes = (Change(node.name, "reason", node.reason, None, EFFECTIVE),)
    if not check_mode:
        controller.forget_reason(wish.name, AFTERWARDS)
        _journal(host, changes)
    return Result(node, changes=changes)


def _await_slurmd(wish: Wish, node: Node, controller: Controller) -> Node:
    """Wait until the node could take jobs, or is not ours any more. Raises ``Refused``, with nothing touched."""
    seen: Look = node
    for seen in _looks(wish, controller):
        if isinstance(seen, Node) and (seen.owner != OURS or not _why_not_yet(seen)):
            return seen
    if isinstance(seen, CannotLook):
        raise seen
    raise Refused(
        "resume a node",
        object=wish.name,
        cause=_why_not_yet(seen),
        found=seen.state,
        hint="look at slurmd on the node; it stays drained",
    )


def _await_service(wish: Wish, node: Node, changes: Tuple[Change, ...], controller: Controller) -> Result:
    """Take the mark where it is still there, and wait until slurmctld has heard of slurmd once more."""
    error: GpuFleetError = _not_taken("resume", node)
    for seen in _looks(wish, controller):
        if isinstance(seen, CannotLook):
            error = seen
            continue
        node, error = seen, _not_taken("resume", seen)
        if node.left_over:
            controller.forget_reason(wish.name, AFTERWARDS)
        if node.drained or _why_away(node):
            return Result(node, changes=changes, error=error)
        if not _why_not_yet(node):
            return Result(node, changes=changes)
    served = wish.timeout == 0 and not node.drained
    return Result(node, changes=changes, error=None if served else error)


def _why_not_yet(node: Node) -> str:
    """What keeps a node from jobs that will be over by itself; empty where nothing does."""
    if node.has(NOT_RESPONDING):
        return "its slurmd does not answer"
    if node.has(INVALID):
        return f"its slurmd registers with less than slurm.conf says{f': {node.reason}' if node.reason else ''}"
    if node.has(POWERING_UP):
        return "it is still being started"
    return ""


def _why_away(node: Node) -> str:
    """Why a node that nobody has drained is not in service all the same; empty where it is."""
    if not node.drained and (node.base in BROKEN or node.has(FAIL)):
        return f"it is {node.state}{f': {node.reason}' if node.reason else ''}"
    return ""


# --- both -------------------------------------------------------------------------------------------------------------


Look = Union[Node, CannotLook]


def _looks(wish: Wish, controller: Controller) -> Iterator[Look]:
    """The node, again and again until ``timeout``; what kept us from a look, as when slurmctld is restarted."""
    for _seconds in _patience(wish):
        try:
            yield controller.node(wish.name)
        except CannotLook as error:
            yield error


def _patience(wish: Wish) -> Iterator[float]:
    """One turn at once and others after pauses that grow to ``poll``, until ``timeout`` is over. Yields its seconds."""
    begin = time.monotonic()
    pause = FIRST_POLL_SECONDS
    while True:
        passed = time.monotonic() - begin
        yield passed
        left = wish.timeout - (time.monotonic() - begin)
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, float(wish.poll))


def _changes(node: Node, after: str, reason: Optional[str]) -> Tuple[Change, ...]:
    before = DRAINED if node.drained else IN_SERVICE
    return (
        Change(node.name, "state", before, after, EFFECTIVE),
        Change(node.name, "reason", node.reason if node.drained else None, reason, EFFECTIVE),
    )


def _whose(node: Node) -> str:
    by = f" by {node.user}" if node.user else ""
    since = f" since {node.since}" if node.since else ""
    return f"it is drained{by}{since}: {node.reason or 'no reason given'}"


def _not_taken(what: str, node: Node) -> NotInEffect:
    now = _whose(node) if node.drained else _why_away(node) or _why_not_yet(node) or "it is not as it was told"
    return NotInEffect(
        f"{what} a node",
        object=node.name,
        cause=f"slurmctld took the order, and now {now}",
        found=node.state,
        hint="look at slurmd on the node, and for somebody else who works on it",
    )


def _journal(host: Host, changes: Tuple[Change, ...]) -> None:
    for change in changes:
        host.journal(
            f"slurm_node: {change.object} {change.setting}: {change.before} -> {change.after}",
            {
                "GPUFLEET_CONCERN": "slurm_node",
                "GPUFLEET_OBJECT": change.object,
                "GPUFLEET_SETTING": change.setting,
                "GPUFLEET_BEFORE": str(change.before),
                "GPUFLEET_AFTER": str(change.after),
            },
        )
