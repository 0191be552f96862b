# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How Kubernetes allocates GPUs: ``device_plugin``. It works on the cluster, once for all of its nodes.

A procedure and no concern, for none of it is on a node: the boot service could not apply it, and the look at a node
could not see it. What we found is noted on the objects themselves, so that any controller can give it back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Change
from ..._core.errors import CannotLook, GpuFleetError, NotInEffect, Refused
from ..._core.journal import journal
from ..._core.procedure import refusal, refuse_senseless_times, turns
from ..._core.regex import regex
from ..._core.value import frozen
from ..._machine.kubernetes_client import CONFLICT, INVALID, Refusal, connect, refused
from . import dra, rdma
from .cluster import SHARED_BY_NODES, ApiServer, Cluster, Uses
from .decision import Seen, absent, ignored, not_yet, of_node, others_files, present, readers, used_by_any
from .declaration import CLASSES, RDMA, Entry, parse_entries
from .options import OPTIONS
from .order import Order, Place, Places

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from ..._machine.kubernetes_client import Ask

NAME = "device_plugin"
PRESENT, ABSENT = "present", "absent"
OBJECT_NAME = regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# How often a node may be changed by others between the look and the patch. The kubelet does so with every report.
CONFLICTS = 5


@frozen
class Options:
    """``names`` are those of all nodes, ``entries`` what is declared of them. ``timeout`` and ``poll`` are seconds."""

    state: str
    names: Tuple[str, ...]
    entries: Tuple[Entry, ...]
    places: Places
    timeout: int
    poll: int
    access: Mapping[str, Any]

    def uses(self) -> Dict[str, Uses]:
        """What the nodes share with others after it."""
        return {**{name: {} for name in self.names}, **{entry.name: entry.uses for entry in self.entries}}


@frozen
class State:
    """``needed``: whether a node of this run shares some of it with others, by ``SHARED_BY_NODES``."""

    server: ApiServer
    seen: Seen
    needed: Mapping[str, bool]


@frozen
class Result:
    """``seen`` is what was seen last."""

    options: Options
    seen: Seen
    changes: Tuple[Change, ...] = ()
    error: Optional[GpuFleetError] = None

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def report(self) -> Dict[str, Any]:
        entries = self.options.entries
        configs: Dict[str, int] = {}
        for entry in entries:
            if entry.config is not None:
                configs[entry.config] = configs.get(entry.config, 0) + 1
        cluster = self.seen.cluster
        files = cluster.config_map
        return {
            "config_map": str(self.options.places.files),
            "configs": configs,
            "pending": [found for found in (not_yet(cluster, entry) for entry in entries) if found],
            "ignored": [{"name": entry.name, "what": what} for entry in entries for what in ignored(cluster, entry)],
            "unverified": [entry.name for entry in entries if entry.config is not None and not entry.gpus],
            "owner": files.owner if files is not None else "",
            "left": self._left(),
            "rdma": self._rdma(),
            "dra": self.seen.dra.report(cluster.nodes, self.options.names),
            "changes": [change.as_dict() for change in self.changes],
        }

    def _left(self) -> str:
        cluster, place = self.seen.cluster, self.options.places.files
        files = cluster.config_map
        if self.options.state == PRESENT or files is None or not files.ours:
            return ""
        others, reading = others_files(cluster), readers(cluster, place)
        if others:
            return f"the ConfigMap {place} has keys of others: {', '.join(others)}"
        return f"the ConfigMap {place} is read by {', '.join(reading)}" if reading else ""

    def _rdma(self) -> Dict[str, Any]:
        place, found = self.options.places.rdma, self.seen.rdma
        files = found.config_map
        used = used_by_any(self.seen.cluster, self.options.uses(), RDMA)
        return {
            "config_map": str(place),
            "resources": sorted(found.note(place).entries),
            "owner": files.owner if files is not None and (used or files.note is not None) else "",
            "left": "" if used else found.left(place),
        }


class DevicePlugin:
    """``procedure.Procedure`` for the device plugin. ``connect`` makes of ``Options.access`` what asks."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS

    def __init__(self, connect: Callable[[Mapping[str, Any]], Ask]) -> None:
        self._connect = connect

    def parse(self, params: Mapping[str, Any]) -> Options:
        for option in ("namespace", "config_map", "rdma_namespace", "rdma_config_map"):
            if not OBJECT_NAME.fullmatch(params[option]):
                raise refusal(option, "it must be a name in Kubernetes", params[option])
        refuse_senseless_times(params["timeout"], params["poll"])
        files = Place(params["namespace"], params["config_map"])
        of_rdma = Place(params["rdma_namespace"], params["rdma_config_map"])
        if of_rdma == files:
            cause = (
                "it must be another ConfigMap than that of the device plugin, which would take its file for a node's"
            )
            raise refusal("rdma_config_map", cause, str(files))
        return Options(
            state=params["state"],
            names=tuple(str(entry["name"]) for entry in params["nodes"]),
            entries=parse_entries(params["nodes"]) if params["state"] == PRESENT else (),
            places=Places(files, of_rdma, params["rdma_restart"]),
            timeout=params["timeout"],
            poll=params["poll"],
            access=params,
        )

    def look(self, host: Host, options: Options) -> State:
        server = ApiServer(self._connect(options.access))
        cluster = server.cluster(options.places.files)
        needed = {kind: _needed(cluster, options, kind) for kind in SHARED_BY_NODES}
        of_rdma = rdma.look(server, options.places.rdma, needed=needed[RDMA])
        return State(server, Seen(cluster, of_rdma, dra.look(server, needed=needed[CLASSES])), needed)

    def decide(self, state: State, options: Options) -> Tuple[Order, ...]:
        return _decide(state.seen, options)

    def predict(self, host: Host, options: Options, state: State, decision: Tuple[Order, ...]) -> Result:
        """The API server is asked whether it would accept each request."""
        work = _Work(options, state, host, check_mode=True)
        error = work.take(decision)
        return Result(options, state.seen, tuple(work.changes), error)

    def perform(self, host: Host, options: Options, state: State, decision: Tuple[Order, ...]) -> Result:
        work = _Work(options, state, host, check_mode=False)
        work.ask_first(decision)
        error = work.take(decision)
        seen = state.seen
        if error is None:
            try:
                seen, error = work.look_again(seen)
            except GpuFleetError as failure:
                error = failure
        if error is not None and not work.changes:
            raise error
        return Result(options, seen, tuple(work.changes), error)


PROCEDURE = DevicePlugin(lambda access: connect(access, sys.executable))


def _decide(seen: Seen, options: Options) -> Tuple[Order, ...]:
    if options.state == ABSENT:
        return absent(seen, options.names, options.places)
    return present(seen, options.entries, options.places)


def _needed(cluster: Cluster, options: Options, kind: str) -> bool:
    """Whether a node of this run shares some of it with others, before it or after."""
    declared = any(entry.uses[kind] for entry in options.entries)
    return declared or any(cluster.nodes[name].uses[kind] for name in options.names if name in cluster.nodes)


class _Work:
    """One run. ``changes`` are those that were made, or in check mode would be."""

    def __init__(self, options: Options, state: State, host: Host, *, check_mode: bool) -> None:
        self._options = options
        self._server = state.server
        self._needed = state.needed
        self._host = host
        self._check_mode = check_mode
        self._entries = {entry.name: entry for entry in options.entries}
        self.changes: List[Change] = []

    def ask_first(self, orders: Sequence[Order]) -> None:
        """Before anything changes, ask the API server about what only it can judge. Raises ``GpuFleetError``."""
        for order in orders:
            if order.judged_there:
                try:
                    self._server.send(order.method, order.path, order.body, dry_run=True)
                except Refusal as refusal:
                    raise _refused(order, refusal) from None

    def take(self, orders: Sequence[Order]) -> Optional[GpuFleetError]:
        """Send the requests in their order, up to the first that fails."""
        for order in orders:
            try:
                self._send(order)
            except GpuFleetError as error:
                return error
        return None

    def _send(self, order: Order) -> None:
        said = ""
        for attempt in range(CONFLICTS + 1):
            if attempt:
                again = self._again(order)
                if again is None:
                    return
                order = again
            try:
                self._server.send(order.method, order.path, order.body, dry_run=self._check_mode)
            except Refusal as refusal:
                if refusal.code != CONFLICT:
                    raise _refused(order, refusal) from None
                said = refusal.message
                continue
            self.changes.extend(order.changes)
            if not self._check_mode:
                journal(self._host, NAME, order.changes)
            return
        cause, hint = said.rstrip("."), "check whether someone else works on it, then run again"
        raise CannotLook("change {} in Kubernetes", object=order.changes[0].object, cause=cause, hint=hint)

    def _again(self, order: Order) -> Optional[Order]:
        """The request for what the node is now."""
        if order.node is None:
            return order
        node = self._server.node(order.node)
        return None if node is None else of_node(node, self._entries.get(order.node))

    def look_again(self, seen: Seen) -> Tuple[Seen, Optional[GpuFleetError]]:
        """Wait until the kubelets offer what is declared. What is still pending then is no error, and is told."""
        options = self._options
        for number, _turn in enumerate(turns(options.timeout, options.poll)):
            if number or self.changes:
                seen = self._look(seen)
            left = _decide(seen, options)
            if left:
                return seen, _undone(left)
            if not any(not_yet(seen.cluster, entry) for entry in options.entries):
                break
        return seen, None

    def _look(self, seen: Seen) -> Seen:
        places = self._options.places
        cluster = self._server.cluster(places.files)
        of_rdma = rdma.look(self._server, places.rdma, needed=self._needed[RDMA])
        # Who may not list the classes, and needs none, has found none.
        classes = dra.look_again(self._server, seen.dra) if self._needed[CLASSES] or seen.dra.found else seen.dra
        return Seen(cluster, of_rdma, classes)


def _refused(order: Order, refusal: Refusal) -> GpuFleetError:
    if refusal.code == INVALID:
        cause, hint = refusal.message.rstrip("."), "correct what is declared of it"
        return Refused("change {} in Kubernetes", object=order.changes[0].object, cause=cause, hint=hint)
    return refused(f"change {order.changes[0].object} in Kubernetes", refusal, order.right)


def _undone(left: Sequence[Order]) -> GpuFleetError:
    change = left[0].changes[0]
    return NotInEffect(
        f"keep {change.setting} of {{}}",
        object=change.object,
        cause="the API server accepted it, and does not have it any more",
        found=change.before,
        wanted=change.after,
        hint="check for a webhook or another program that changes it, such as the GPU Operator or Argo CD",
    )
