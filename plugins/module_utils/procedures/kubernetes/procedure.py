# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Out of service and back: ``kubernetes_node``. A procedure, no concern: nothing of it is declared on the node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.change import Change
from ..._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    InUse,
    NotInEffect,
    NotPermitted,
    OwnedByAnother,
    Refused,
)
from ..._core.journal import journal
from ..._core.procedure import DRAINED, IN_SERVICE, MARK, OURS, THEIRS, refusal, refuse_senseless_times, turns
from ..._core.regex import regex
from ..._core.setting import EFFECTIVE
from ..._core.value import frozen
from ..._machine.kubernetes_client import connect
from .answers import Node, Pod, Rules, losing, to_evict
from .api_server import ApiServer, Conflict, Eviction, NotNow
from .options import OPTIONS

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from ..._machine.kubernetes_client import Ask

NAME = "kubernetes_node"
# A name of a node is one of DNS (RFC 1123), and goes into the path of a request.
ONE_NAME = regex(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# How often a node may be changed by others between the look and the patch. The kubelet does so with every heartbeat.
CONFLICTS = 5
HOLDS = "It stays cordoned: run again to keep waiting, or end them"


@frozen
class Options:
    """``timeout`` and ``poll`` are in seconds. Of the pods only those that all ``selectors`` choose must go.

    ``access`` is the way to the API server, for ``client.connect``.
    """

    name: str
    state: str
    reason: str
    timeout: int
    poll: int
    selectors: Tuple[str, ...]
    rules: Rules
    eviction: Eviction
    access: Mapping[str, Any]
    update_reason: bool = False


@frozen
class Cluster:
    """The API server, and the node as it was when the run began."""

    server: ApiServer
    node: Node


@frozen
class Result:
    """``node`` and ``pods``, those that must go, are as seen last."""

    node: Node
    pods: Tuple[Pod, ...] = ()
    changes: Tuple[Change, ...] = ()
    error: Optional[GpuFleetError] = None

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def report(self) -> Dict[str, Any]:
        return {
            "name": self.node.name,
            "owner": self.node.owner,
            "reason": self.node.mark or "",
            "idle": not self.pods,
            "pods": [pod.as_dict() for pod in self.pods],
            "left": "it was not cordoned by this collection" if self.node.owner == THEIRS else "",
            "changes": [change.as_dict() for change in self.changes],
        }


class KubernetesDrain:
    """``procedure.Procedure`` for a node of Kubernetes. ``connect`` makes of ``Options.access`` what asks."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS

    def __init__(self, connect: Callable[[Mapping[str, Any]], Ask]) -> None:
        self._connect = connect

    def parse(self, params: Mapping[str, Any]) -> Options:
        if not ONE_NAME.fullmatch(params["name"]):
            raise refusal("name", "it must be the name of one node", params["name"])
        if not params["reason"].strip() or not params["reason"].isprintable():
            raise refusal("reason", "it must be one line of text", repr(params["reason"]))
        refuse_senseless_times(params["timeout"], params["poll"])
        return Options(
            name=params["name"],
            state=params["state"],
            reason=params["reason"],
            timeout=params["timeout"],
            poll=params["poll"],
            selectors=tuple(params["pod_selectors"]),
            rules=Rules(params["force"], params["ignore_daemonsets"], params["delete_emptydir_data"]),
            eviction=Eviction(params["disable_eviction"], params["grace_period"]),
            access=params,
            update_reason=params["update_reason"],
        )

    def look(self, host: Host, options: Options) -> Cluster:
        server = ApiServer(self._connect(options.access), options.name)
        return Cluster(server, server.node())

    def decide(self, state: Cluster, options: Options) -> Tuple[Change, ...]:
        return decide(state.node, options)

    def predict(self, host: Host, options: Options, state: Cluster, decision: Tuple[Change, ...]) -> Result:
        return _Work(options, state.server, host, check_mode=True).take(state.node, decision)

    def perform(self, host: Host, options: Options, state: Cluster, decision: Tuple[Change, ...]) -> Result:
        return _Work(options, state.server, host, check_mode=False).take(state.node, decision)


PROCEDURE = KubernetesDrain(lambda access: connect(access, sys.executable))


def cordoned_nodes(ask: Ask) -> Dict[str, Any]:
    """Which nodes of the cluster are cordoned with our mark: the result of ``kubernetes_drained_info``."""
    nodes = [{"name": node.name, "reason": node.mark} for node in ApiServer(ask, "").marked()]
    return {"changed": False, "nodes": nodes}


def decide(node: Node, options: Options) -> Tuple[Change, ...]:
    """A node is cordoned where nobody has, and uncordoned where it has our mark; a mark without a cordon goes too."""
    if options.state == DRAINED:
        told = node.cordoned and not (options.update_reason and node.mark is not None)
        return () if told else _changes(node, f"{MARK}{options.reason}")
    return () if node.mark is None else _changes(node, None)


class _Work:
    """One run. ``_changes`` are those that were made, or in check mode would be."""

    def __init__(self, options: Options, server: ApiServer, host: Host, *, check_mode: bool) -> None:
        self._options = options
        self._server = server
        self._host = host
        self._check_mode = check_mode
        self._changes: List[Change] = []
        # Those that were asked to go, by UID. They are not asked again while they end.
        self._asked: Set[str] = set()

    def take(self, node: Node, changes: Tuple[Change, ...]) -> Result:
        """Bring cordon and mark, or take them, and wait until the pods of a drained node have gone."""
        node, error = self._mark(node, changes)
        if error is not None or self._options.state != DRAINED:
            return self._result(node, error=error)
        return self._predict(node) if self._check_mode else self._empty(node)

    def _result(self, node: Node, pods: Sequence[Pod] = (), error: Optional[GpuFleetError] = None) -> Result:
        return Result(node, _left(pods), tuple(self._changes), error)

    def _note(self, *changes: Change) -> None:
        self._changes.extend(changes)
        if not self._check_mode:
            journal(self._host, NAME, changes)

    def _error(self, kind: Callable[..., GpuFleetError], goal: str, cause: str, hint: str) -> GpuFleetError:
        return kind(f"{goal} {{}}", object=self._options.name, cause=cause, hint=hint)

    # --- cordon and mark ----------------------------------------------------------------------------------------------

    def _mark(self, node: Node, changes: Tuple[Change, ...]) -> Tuple[Node, Optional[GpuFleetError]]:
        """The node with cordon and mark, or without, where that is needed: always by what it is at that moment."""
        goal, said = "drain or resume", ""
        mark = f"{MARK}{self._options.reason}" if self._options.state == DRAINED else None
        for attempt in range(CONFLICTS + 1):
            if attempt:
                node = self._server.node()
                changes = decide(node, self._options)
            if not changes:
                return node, None
            try:
                after = self._server.mark(node, mark, dry_run=self._check_mode)
            except Conflict as conflict:
                said = str(conflict)
                continue
            self._note(*changes)
            if (after.cordoned, after.mark) == (mark is not None, mark):
                return after, None
            cause = "the API server accepted the patch, but the node does not show it"
            return after, self._error(NotInEffect, goal, cause, "check for a webhook that changes nodes")
        raise self._error(CannotLook, goal, said, "check whether someone else works on it")

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _predict(self, node: Node) -> Result:
        """What would be evicted. Whether a budget lets it go is not asked."""
        pods = self._server.pods(self._options.selectors)
        if node.owner == OURS:
            cause = losing(pods, self._options.rules)
            if cause:
                return self._result(node, pods, self._held(Refused, node, pods, cause))
            self._note(*(_evicted(pod) for pod in to_evict(pods) if not pod.ending))
        return self._result(node, pods)

    def _empty(self, node: Node) -> Result:
        """Evict pods until none is in the way, or wait until somebody else has."""
        pods: Sequence[Pod] = ()
        away: Optional[CannotLook] = None
        refused: List[str] = []
        for number, _turn in enumerate(turns(self._options.timeout, self._options.poll)):
            try:
                node = self._server.node() if number else node
                if not node.cordoned:
                    return self._result(node, pods, self._uncordoned())
                pods, away, refused = self._server.pods(self._options.selectors), None, []
                # Without a cordon of ours nothing is evicted: whoever cordoned it says what becomes of its pods.
                if node.owner == OURS:
                    cause = losing(pods, self._options.rules)
                    if cause:
                        return self._result(node, pods, self._held(Refused, node, pods, cause))
                    refused = self._evict(pods)
            except CannotLook as error:
                away = error
                continue
            except NotPermitted as error:
                return self._result(node, pods, self._held(NotPermitted, node, pods, error.cause, error.hint))
            except DeclarationError as error:
                return self._result(node, pods, error)
            if not _left(pods):
                return self._result(node)
        if away is not None:
            return self._result(node, pods, self._held(CannotLook, node, pods, away.cause, away.hint))
        if self._options.timeout == 0 and not refused:
            return self._result(node, pods)
        there = "pods are still there" if node.owner == OURS else f"there are {_named(pods)}"
        cause = f"after {self._options.timeout} seconds {'; '.join(refused) or there}"
        return self._result(node, pods, self._held(InUse, node, pods, cause))

    def _evict(self, pods: Sequence[Pod]) -> List[str]:
        """Ask those that have not been asked; why some may not go yet."""
        refused = []
        for pod in to_evict(pods):
            if pod.uid in self._asked:
                continue
            try:
                ends = self._server.evict(pod, self._options.eviction)
            except NotNow as error:
                refused.append(str(error))
                continue
            self._asked.add(pod.uid)
            if ends and not pod.ending:
                self._note(_evicted(pod))
        return refused

    def _held(
        self, kind: Callable[..., GpuFleetError], node: Node, pods: Sequence[Pod], cause: str, hint: str = ""
    ) -> GpuFleetError:
        """Why a node that is cordoned does not get empty, with what is on it."""
        goal = "drain" if node.owner == OURS else "wait any longer for the pods of"
        on_it = f"On it are {_named(pods)}" if node.owner == OURS and _left(pods) else ""
        return self._error(kind, goal, cause, ". ".join(filter(None, (hint, on_it, HOLDS))))

    def _uncordoned(self) -> GpuFleetError:
        cause, hint = "someone else uncordoned it meanwhile", "coordinate with them, then run again"
        return self._error(OwnedByAnother, "wait for the pods of", cause, hint)


def _left(pods: Sequence[Pod]) -> Tuple[Pod, ...]:
    return tuple(pod for pod in pods if not pod.stays)


def _named(pods: Sequence[Pod]) -> str:
    return ", ".join(map(str, _left(pods)))


def _changes(node: Node, mark: Optional[str]) -> Tuple[Change, ...]:
    states = {True: DRAINED, False: IN_SERVICE}
    state = Change(node.name, "state", states[node.cordoned], states[mark is not None], EFFECTIVE)
    reason = Change(node.name, "reason", node.mark, mark, EFFECTIVE)
    return tuple(change for change in (state, reason) if change.before != change.after)


def _evicted(pod: Pod) -> Change:
    return Change(pod.path, "state", pod.phase.lower(), "evicted", EFFECTIVE)
