# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Kubernetes hands out of the GPUs: ``device_plugin``. It works on the cluster, once for all of its nodes.

A procedure and no concern, for none of it is on a node: the boot service could not apply it, and the look at a node
could not see it. What we found is noted on the objects themselves, so that any controller can give it back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Change
from ..._core.errors import CannotLook, GpuFleetError, NotInEffect
from ..._core.journal import journal
from ..._core.procedure import refusal, refuse_senseless_times, turns
from ..._core.regex import regex
from ..._core.value import frozen
from ..._machine.kubernetes_client import CONFLICT, Refusal, connect, refused
from .cluster import ApiServer, Cluster
from .decision import Order, Place, absent, not_yet, of_node, others_files, present, readers
from .declaration import Entry, parse_entries
from .dra import Dra, look
from .options import OPTIONS

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
    place: Place
    timeout: int
    poll: int
    access: Mapping[str, Any]


@frozen
class State:
    server: ApiServer
    cluster: Cluster
    dra: Dra


@frozen
class Result:
    """``cluster`` is as seen last."""

    options: Options
    cluster: Cluster
    dra: Dra
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
        files = self.cluster.config_map
        return {
            "config_map": str(self.options.place),
            "configs": configs,
            "pending": [found for found in (not_yet(self.cluster, entry) for entry in entries) if found],
            "unverified": [entry.name for entry in entries if entry.config is not None and not entry.gpus],
            "owner": files.owner if files is not None else "",
            "left": self._left(),
            "dra": self.dra.report(self.cluster.nodes, self.options.names),
            "changes": [change.as_dict() for change in self.changes],
        }

    def _left(self) -> str:
        files, place = self.cluster.config_map, self.options.place
        if self.options.state == PRESENT or files is None or not files.ours:
            return ""
        others, reading = others_files(self.cluster), readers(self.cluster, place)
        if others:
            return f"the ConfigMap {place} has keys of others: {', '.join(others)}"
        return f"the ConfigMap {place} is read by {', '.join(reading)}" if reading else ""


class DevicePlugin:
    """``procedure.Procedure`` for the device plugin. ``connect`` makes of ``Options.access`` what asks."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS

    def __init__(self, connect: Callable[[Mapping[str, Any]], Ask]) -> None:
        self._connect = connect

    def parse(self, params: Mapping[str, Any]) -> Options:
        for option in ("namespace", "config_map"):
            if not OBJECT_NAME.fullmatch(params[option]):
                raise refusal(option, "it must be a name in Kubernetes", params[option])
        refuse_senseless_times(params["timeout"], params["poll"])
        return Options(
            state=params["state"],
            names=tuple(str(entry["name"]) for entry in params["nodes"]),
            entries=parse_entries(params["nodes"]) if params["state"] == PRESENT else (),
            place=Place(params["namespace"], params["config_map"]),
            timeout=params["timeout"],
            poll=params["poll"],
            access=params,
        )

    def look(self, host: Host, options: Options) -> State:
        server = ApiServer(self._connect(options.access), options.place.namespace, options.place.config_map)
        return State(server, server.cluster(), look(server))

    def decide(self, state: State, options: Options) -> Tuple[Order, ...]:
        return _decide(state.cluster, options)

    def predict(self, host: Host, options: Options, state: State, decision: Tuple[Order, ...]) -> Result:
        """The API server is asked whether it would accept each request."""
        work = _Work(options, state.server, host, check_mode=True)
        error = work.take(decision)
        return Result(options, state.cluster, state.dra, tuple(work.changes), error)

    def perform(self, host: Host, options: Options, state: State, decision: Tuple[Order, ...]) -> Result:
        work = _Work(options, state.server, host, check_mode=False)
        error = work.take(decision)
        cluster = state.cluster
        if error is None:
            try:
                cluster, error = work.look_again(cluster)
            except GpuFleetError as failure:
                error = failure
        if error is not None and not work.changes:
            raise error
        return Result(options, cluster, state.dra, tuple(work.changes), error)


PROCEDURE = DevicePlugin(lambda access: connect(access, sys.executable))


def _decide(cluster: Cluster, options: Options) -> Tuple[Order, ...]:
    if options.state == ABSENT:
        return absent(cluster, options.names, options.place)
    return present(cluster, options.entries, options.place)


class _Work:
    """One run. ``changes`` are those that were made, or in check mode would be."""

    def __init__(self, options: Options, server: ApiServer, host: Host, *, check_mode: bool) -> None:
        self._options = options
        self._server = server
        self._host = host
        self._check_mode = check_mode
        self._entries = {entry.name: entry for entry in options.entries}
        self.changes: List[Change] = []

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
                    raise refused(f"change {order.changes[0].object} in Kubernetes", refusal, order.right) from None
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

    def look_again(self, cluster: Cluster) -> Tuple[Cluster, Optional[GpuFleetError]]:
        """Wait until the kubelets offer what is declared. What is still pending then is no error, and is told."""
        for number, _turn in enumerate(turns(self._options.timeout, self._options.poll)):
            if number or self.changes:
                cluster = self._server.cluster()
            left = _decide(cluster, self._options)
            if left:
                return cluster, _undone(left)
            if not any(not_yet(cluster, entry) for entry in self._options.entries):
                break
        return cluster, None


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
