# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node and its pods as the API server has them, and what a drain asks of them. Pure.

Which pods must go, which stay, and which would lose something, are the rules of ``kubectl drain``
(staging/src/k8s.io/kubectl/pkg/drain/filters.go).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import CannotLook
from ..._core.procedure import NOBODYS, OURS, THEIRS
from ..._core.value import frozen

# A cordon is ours when it came with this annotation; an annotation without one is left over.
ANNOTATION = "gpufleet.node/drained-by"
MIRROR = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
DAEMONSET = "DaemonSet"


@frozen
class Node:
    """``version`` is the resourceVersion; ``mark`` what our annotation says, None where there is none."""

    name: str
    version: str
    cordoned: bool
    mark: Optional[str]

    @property
    def owner(self) -> str:
        """Whose the cordon is: ``ours``, ``theirs``, or ``nobody`` where there is none."""
        if not self.cordoned:
            return NOBODYS
        return THEIRS if self.mark is None else OURS


def parse_node(answer: Mapping[str, Any]) -> Node:
    """A node of core/v1. Raises ``CannotLook`` on anything else."""
    try:
        metadata = answer["metadata"]
        return Node(
            name=metadata["name"],
            version=metadata["resourceVersion"],
            cordoned=bool((answer.get("spec") or {}).get("unschedulable")),
            mark=(metadata.get("annotations") or {}).get(ANNOTATION),
        )
    except (AttributeError, KeyError, TypeError):
        raise CannotLook(
            "ask the API server for a node", cause="it returned something else", found=str(answer)[:200]
        ) from None


def patch(node: Node, mark: Optional[str]) -> Dict[str, Any]:
    """A merge patch that brings cordon and mark, or takes them both where ``mark`` is None.

    The API server refuses it when somebody has changed the node since it was looked at.
    """
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "resourceVersion": node.version, "annotations": {ANNOTATION: mark}},
        "spec": {"unschedulable": mark is not None},
    }


@frozen
class Pod:
    """``owners`` are kind and name; ``mirror``: kubelet runs it from a file; ``local_data``: it has an emptyDir."""

    namespace: str
    name: str
    uid: str
    phase: str
    owners: Tuple[Tuple[str, str], ...]
    mirror: bool
    ending: bool
    local_data: bool

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def of_daemonset(self) -> bool:
        return any(kind == DAEMONSET for kind, _name in self.owners)

    @property
    def stays(self) -> bool:
        """Whether a drained node may have it."""
        return self.mirror or self.finished or self.of_daemonset

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        what = [f"{kind} {name}" for kind, name in self.owners] or ["without an owner"]
        return f"{self.path} ({', '.join([*what, *(['ending'] if self.ending else [])])})"

    def as_dict(self) -> Dict[str, Any]:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "phase": self.phase,
            "owners": [f"{kind} {name}" for kind, name in self.owners],
            "ending": self.ending,
        }


@frozen
class Rules:
    """What may be lost: pods that nothing starts elsewhere, local data; and whether pods of DaemonSets are no error."""

    force: bool
    ignore_daemonsets: bool
    delete_emptydir_data: bool


def parse_pods(answer: Mapping[str, Any]) -> Tuple[Pod, ...]:
    """A list of pods of core/v1, in its order. Raises ``CannotLook`` on anything else."""
    try:
        return tuple(_pod(item) for item in answer["items"])
    except (AttributeError, KeyError, TypeError):
        raise CannotLook(
            "ask the API server for pods", cause="it returned something else", found=str(answer)[:200]
        ) from None


def _pod(item: Mapping[str, Any]) -> Pod:
    metadata = item["metadata"]
    volumes = (item.get("spec") or {}).get("volumes") or ()
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        phase=(item.get("status") or {}).get("phase", ""),
        owners=tuple((owner["kind"], owner["name"]) for owner in metadata.get("ownerReferences") or ()),
        mirror=MIRROR in (metadata.get("annotations") or {}),
        ending=bool(metadata.get("deletionTimestamp")),
        local_data=any("emptyDir" in volume for volume in volumes),
    )


def to_evict(pods: Sequence[Pod]) -> List[Pod]:
    """Those that are asked to go: what has finished too, for nothing else takes it away."""
    return [pod for pod in pods if not pod.mirror and (pod.finished or not pod.of_daemonset)]


def losing(pods: Sequence[Pod], rules: Rules) -> str:
    """Why the pods may not be evicted; empty where they may. What ends already loses nothing more."""
    there = [pod for pod in pods if not (pod.mirror or pod.finished or pod.ending)]
    own = [pod for pod in there if not pod.of_daemonset]
    wrong = (
        (
            rules.ignore_daemonsets,
            "DaemonSet-managed Pods (set ignore_daemonsets)",
            [pod for pod in there if pod.of_daemonset],
        ),
        (
            rules.delete_emptydir_data,
            "Pods with local storage (set delete_emptydir_data)",
            [pod for pod in own if pod.local_data],
        ),
        (rules.force, "Pods not managed by a controller (set force)", [pod for pod in own if not pod.owners]),
    )
    return "; ".join(
        f"cannot delete {what}: {', '.join(pod.path for pod in found)}"
        for allowed, what, found in wrong
        if found and not allowed
    )
