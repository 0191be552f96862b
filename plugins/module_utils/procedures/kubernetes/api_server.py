# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The API server of Kubernetes: what a drain asks it, and what its refusals mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from ..._core.errors import DeclarationError, GpuFleetError
from ..._core.procedure import OURS
from ..._core.value import frozen
from ..._machine.kubernetes_client import CONFLICT, NOT_FOUND, TOO_MANY, Refusal, refused
from .answers import Node, Pod, parse_node, parse_pods, patch

if TYPE_CHECKING:
    from ..._machine.kubernetes_client import Ask

BUDGET = "DisruptionBudget"


class Conflict(Exception):
    """Somebody has changed the node since it was looked at."""


class NotNow(Exception):
    """A pod may not go yet; the message says why."""


@frozen
class Eviction:
    """How pods go. ``grace_period`` is in seconds, below 0 what each pod says."""

    disable_eviction: bool
    grace_period: int


class ApiServer:
    """Every method raises ``GpuFleetError``. ``name`` is the node that errors are about."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self._name = name

    def node(self) -> Node:
        goal = f"drain or resume {self._name}"
        try:
            return parse_node(self._ask("GET", f"/api/v1/nodes/{self._name}", {}, None))
        except Refusal as refusal:
            if refusal.code == NOT_FOUND:
                cause, hint = "Kubernetes has no node of this name", "list them with kubectl get nodes"
                raise about(self._name, DeclarationError(goal, cause=cause, hint=hint)) from None
            raise self._refused(goal, refusal, "get, list and patch nodes") from None

    def mark(self, node: Node, mark: Optional[str], *, dry_run: bool) -> Node:
        """Bring cordon and mark, or take both: the node as it is then. Raises ``Conflict``."""
        query = {"dryRun": "All"} if dry_run else {}
        try:
            return parse_node(self._ask("PATCH", f"/api/v1/nodes/{node.name}", query, patch(node, mark)))
        except Refusal as refusal:
            if refusal.code == CONFLICT:
                raise Conflict(refusal.message) from None
            raise self._refused(f"drain or resume {self._name}", refusal, "get, list and patch nodes") from None

    def pods(self, selectors: Sequence[str]) -> Tuple[Pod, ...]:
        """Those on the node that all label selectors choose."""
        query = {"fieldSelector": f"spec.nodeName={self._name}"}
        if selectors:
            query["labelSelector"] = ",".join(selectors)
        try:
            return parse_pods(self._ask("GET", "/api/v1/pods", query, None))
        except Refusal as refusal:
            raise self._refused(f"list the pods of {self._name}", refusal, "list pods") from None

    def evict(self, pod: Pod, how: Eviction) -> bool:
        """Whether the pod ends now by our order; not where it has gone. Raises ``NotNow``."""
        # A pod of the same name may have come in place of this one.
        options = {
            "preconditions": {"uid": pod.uid},
            **({"gracePeriodSeconds": how.grace_period} if how.grace_period >= 0 else {}),
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            if how.disable_eviction:
                self._ask("DELETE", path, {}, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
            else:
                body = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": pod.name, "namespace": pod.namespace},
                    "deleteOptions": options,
                }
                self._ask("POST", f"{path}/eviction", {}, body)
        except Refusal as refusal:
            if refusal.code == NOT_FOUND:
                return False
            # 429 is a PodDisruptionBudget, or a server that has too much to do.
            if refusal.code in (CONFLICT, TOO_MANY):
                causes = [message for reason, message in refusal.causes if reason == BUDGET]
                raise NotNow(f"{pod.path}: {': '.join([refusal.message.rstrip('.'), *causes])}") from None
            right = "delete pods" if how.disable_eviction else "evict pods (create pods/eviction)"
            raise self._refused(f"evict a pod of {self._name}", refusal, right) from None
        return True

    def marked(self) -> Tuple[Node, ...]:
        """The nodes of the cluster that are cordoned with our mark."""
        goal = "ask Kubernetes for the cordoned nodes"
        try:
            answer = self._ask("GET", "/api/v1/nodes", {"fieldSelector": "spec.unschedulable=true"}, None)
        except Refusal as refusal:
            raise self._refused(goal, refusal, "list nodes") from None
        return tuple(node for node in map(parse_node, answer.get("items") or ()) if node.owner == OURS)

    def _refused(self, goal: str, refusal: Refusal, right: str) -> GpuFleetError:
        return about(self._name, refused(goal, refusal, right))


def about(name: str, error: GpuFleetError) -> GpuFleetError:
    """An error of which the goal names the node already."""
    error.object = name
    return error
