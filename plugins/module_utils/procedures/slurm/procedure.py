# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Out of service and back: ``slurm_node``. A procedure, no concern: nothing of it is declared on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Tuple, Union

from ..._core.change import Change
from ..._core.errors import CannotLook, GpuFleetError, InUse, NotInEffect, OwnedByAnother, Refused
from ..._core.journal import journal
from ..._core.procedure import DRAINED, IN_SERVICE, MARK, NOBODYS, OURS, THEIRS, refusal, refuse_senseless_times, turns
from ..._core.regex import regex
from ..._core.setting import EFFECTIVE
from ..._core.value import frozen
from ..._machine.slurm_answers import (
    DOWN,
    ERROR,
    FAIL,
    FUTURE,
    INVALID,
    NOT_RESPONDING,
    POWERING_UP,
    UNKNOWN,
    Job,
    SlurmNode,
    named,
)
from ..._machine.slurmctld import Controller
from .options import OPTIONS

if TYPE_CHECKING:
    from ..._core.protocols import Host

NAME = "slurm_node"
BROKEN = (DOWN, ERROR, FUTURE, UNKNOWN)
# One node, not a list or range of them, which scontrol would take as well.
ONE_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ALL = "all"
# Without our mark: Slurm adds to a reason that is there when it drains a node itself, and that drain is not ours.
AFTERWARDS = "resumed by gpufleet"


@frozen
class DrainOptions:
    """The options. ``timeout`` and ``poll`` are in seconds."""

    name: str
    state: str
    reason: str
    timeout: int
    poll: int
    update_reason: bool = False


@frozen
class DrainResult:
    """``node`` and ``jobs`` are as seen last."""

    node: SlurmNode
    jobs: Tuple[Job, ...] = ()
    changes: Tuple[Change, ...] = ()
    error: Optional[GpuFleetError] = None

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def report(self) -> Dict[str, Any]:
        node = self.node
        return {
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
        }


class SlurmDrain:
    """``procedure.Procedure`` for a node of Slurm."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS

    def parse(self, params: Mapping[str, Any]) -> DrainOptions:
        options = DrainOptions(**params)
        _refuse_senseless(options)
        return options

    def look(self, host: Host, options: DrainOptions) -> SlurmNode:
        return Controller(host.commands).node(options.name)

    def decide(self, state: SlurmNode, options: DrainOptions) -> Tuple[Change, ...]:
        if options.state == DRAINED:
            _refuse_trouble(state)
            reason = f"{MARK}{options.reason}"
            if state.owner == OURS and options.update_reason and state.reason != reason:
                return (Change(state.name, "reason", state.reason, reason, EFFECTIVE),)
            return _changes(state, DRAINED, reason) if state.owner == NOBODYS else ()
        if state.left_over:
            # The mark is left where a run was cut off after the resume.
            return (Change(state.name, "reason", state.reason, None, EFFECTIVE),)
        if state.owner != OURS:
            return ()
        _refuse_reboot(state, "resume {}", "a reboot is requested in Slurm")
        return _changes(state, IN_SERVICE, None)

    def predict(self, host: Host, options: DrainOptions, state: SlurmNode, decision: Tuple[Change, ...]) -> DrainResult:
        jobs = _jobs_of(Controller(host.commands), state) if options.state == DRAINED else ()
        return DrainResult(state, jobs, decision)

    def perform(self, host: Host, options: DrainOptions, state: SlurmNode, decision: Tuple[Change, ...]) -> DrainResult:
        controller = Controller(host.commands)
        if options.state == DRAINED:
            return _drain(options, state, controller, host, decision)
        return _resume(options, state, controller, host, decision) if decision else DrainResult(state)


PROCEDURE = SlurmDrain()


def drained_nodes(host: Host) -> Dict[str, Any]:
    """Which nodes of the cluster are drained with our mark: the result of ``slurm_drained_info``."""
    nodes = [
        {
            "name": node.name,
            "node_state": node.state,
            "reason": node.reason,
            "drained_by": node.user,
            "since": node.since,
        }
        for node in Controller(host.commands).marked()
    ]
    return {"changed": False, "nodes": nodes}


def _refuse_senseless(options: DrainOptions) -> None:
    if not ONE_NAME.fullmatch(options.name) or options.name.lower() == ALL:
        raise refusal("name", "it must be the name of one node", options.name)
    # scontrol takes quotes away at the ends, and what is not printable ends up in the logs of others.
    if not options.reason.strip() or not options.reason.isprintable() or '"' in options.reason:
        raise refusal("reason", "it must be one line of text without double quotes", repr(options.reason))
    refuse_senseless_times(options.timeout, options.poll)


# --- drained ----------------------------------------------------------------------------------------------------------


def _drain(
    options: DrainOptions, node: SlurmNode, controller: Controller, host: Host, changes: Tuple[Change, ...]
) -> DrainResult:
    if changes:
        controller.drain(options.name, f"{MARK}{options.reason}")
        journal(host, NAME, changes)
        try:
            node = controller.node(options.name)
        except GpuFleetError as error:
            return DrainResult(node, changes=changes, error=error)
        if node.owner != OURS:
            return DrainResult(node, changes=changes, error=_not_taken("drain", node))
    if options.timeout == 0:
        return DrainResult(node, _jobs_of(controller, node), changes)
    return _wait_until_idle(options, node, changes, controller)


def _refuse_trouble(node: SlurmNode) -> None:
    """Refuse a node that would not be out of service in a way that lasts, or is so already for a reason of its own."""
    _refuse_reboot(node, "drain {}", "a reboot is requested in Slurm, and it resumes after that")
    away = _why_away(node)
    if away:
        raise Refused(
            "drain {}",
            object=node.name,
            cause=f"{away}, which must be fixed first",
            hint="resume it, or drain it yourself",
        )


def _refuse_reboot(node: SlurmNode, goal: str, cause: str) -> None:
    if node.rebooting:
        hint = "wait for it, or scontrol cancel_reboot"
        raise Refused(goal, object=node.name, cause=cause, found=node.state, hint=hint)


def _wait_until_idle(
    options: DrainOptions, node: SlurmNode, changes: Tuple[Change, ...], controller: Controller
) -> DrainResult:
    away: Optional[CannotLook] = None
    jobs: Tuple[Job, ...] = ()
    for seen in _polled(options, controller):
        if isinstance(seen, CannotLook):
            away = seen
            continue
        node, jobs, away = seen, (), None
        if not node.drained:
            return DrainResult(node, changes=changes, error=_returned(node))
        if node.occupied:
            continue
        # Only here, for every squeue costs slurmctld all jobs of the cluster. A suspended one leaves a node idle.
        try:
            jobs = controller.jobs(options.name)
        except CannotLook as error:
            away = error
            continue
        if not jobs:
            return DrainResult(node, changes=changes)
    if away is None:
        jobs = jobs or _jobs_of(controller, node)
    return DrainResult(node, jobs, changes, away or _still_there(options, node, jobs))


def _returned(node: SlurmNode) -> GpuFleetError:
    return OwnedByAnother(
        "wait for the jobs of {}",
        object=node.name,
        cause="someone else resumed it meanwhile",
        found=node.state,
        hint="coordinate with them, then run again",
    )


def _still_there(options: DrainOptions, node: SlurmNode, jobs: Tuple[Job, ...]) -> GpuFleetError:
    return InUse(
        "wait any longer for the jobs of {}",
        object=options.name,
        cause=f"after {options.timeout} seconds there {'is' if len(jobs) == 1 else 'are'} {named(jobs)}",
        found=node.state,
        hint="it stays drained: run again to keep waiting, or end them",
    )


def _jobs_of(controller: Controller, node: SlurmNode) -> Tuple[Job, ...]:
    """Those to be named. That they cannot be is no reason to forget what was done before."""
    try:
        return controller.jobs(node.name)
    except CannotLook:
        return ()


# --- in service -------------------------------------------------------------------------------------------------------


def _resume(
    options: DrainOptions, node: SlurmNode, controller: Controller, host: Host, changes: Tuple[Change, ...]
) -> DrainResult:
    if node.left_over:
        controller.clear_reason(options.name, AFTERWARDS)
        journal(host, NAME, changes)
        return DrainResult(node, changes=changes)
    node = _await_slurmd(options, node, controller)
    if node.owner != OURS:
        return DrainResult(node)
    controller.resume(options.name)
    journal(host, NAME, changes)
    return _await_service(options, node, changes, controller)


def _await_slurmd(options: DrainOptions, node: SlurmNode, controller: Controller) -> SlurmNode:
    """Wait until the node could take jobs, or is not ours any more. Raises ``Refused``, with nothing touched."""
    seen: Look = node
    for seen in _polled(options, controller):
        if isinstance(seen, SlurmNode) and (seen.owner != OURS or not _why_not_yet(seen)):
            return seen
    if isinstance(seen, CannotLook):
        raise seen
    raise Refused(
        "resume {}",
        object=options.name,
        cause=_why_not_yet(seen),
        found=seen.state,
        hint="check slurmd on the node; it stays drained",
    )


def _await_service(
    options: DrainOptions, node: SlurmNode, changes: Tuple[Change, ...], controller: Controller
) -> DrainResult:
    """Take the mark where it is still there, and wait until slurmctld has heard of slurmd once more."""
    error: GpuFleetError = _not_taken("resume", node)
    for seen in _polled(options, controller):
        if isinstance(seen, CannotLook):
            error = seen
            continue
        node, error = seen, _not_taken("resume", seen)
        if node.left_over:
            controller.clear_reason(options.name, AFTERWARDS)
        if node.drained or _why_away(node):
            return DrainResult(node, changes=changes, error=error)
        if not _why_not_yet(node):
            return DrainResult(node, changes=changes)
    served = options.timeout == 0 and not node.drained
    return DrainResult(node, changes=changes, error=None if served else error)


def _why_not_yet(node: SlurmNode) -> str:
    """What keeps a node from jobs that will be over by itself; empty where nothing does."""
    if node.has(NOT_RESPONDING):
        return "its slurmd does not respond"
    if node.has(INVALID):
        return f"its slurmd registers with less than slurm.conf defines{f': {node.reason}' if node.reason else ''}"
    if node.has(POWERING_UP):
        return "it is still starting"
    return ""


def _why_away(node: SlurmNode) -> str:
    """Why a node that nobody has drained is not in service all the same; empty where it is."""
    if not node.drained and (node.base in BROKEN or node.has(FAIL)):
        return f"it is {node.state}{f': {node.reason}' if node.reason else ''}"
    return ""


# --- both -------------------------------------------------------------------------------------------------------------


Look = Union[SlurmNode, CannotLook]


def _polled(options: DrainOptions, controller: Controller) -> Iterator[Look]:
    """The node, again and again until ``timeout``; what kept us from a look, as when slurmctld is restarted."""
    for _turn in turns(options.timeout, options.poll):
        try:
            yield controller.node(options.name)
        except CannotLook as error:
            yield error


def _changes(node: SlurmNode, after: str, reason: Optional[str]) -> Tuple[Change, ...]:
    before = DRAINED if node.drained else IN_SERVICE
    return (
        Change(node.name, "state", before, after, EFFECTIVE),
        Change(node.name, "reason", node.reason if node.drained else None, reason, EFFECTIVE),
    )


def _whose(node: SlurmNode) -> str:
    by = f" by {node.user}" if node.user else ""
    since = f" since {node.since}" if node.since else ""
    return f"it is drained{by}{since}: {node.reason or 'no reason given'}"


def _not_taken(what: str, node: SlurmNode) -> NotInEffect:
    now = _whose(node) if node.drained else _why_away(node) or _why_not_yet(node) or "it does not show it"
    return NotInEffect(
        f"{what} {{}}",
        object=node.name,
        cause=f"slurmctld accepted the change, but {now}",
        found=node.state,
        hint="check slurmd on the node, and whether someone else works on it",
    )
