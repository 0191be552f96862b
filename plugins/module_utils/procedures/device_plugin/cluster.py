# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The device plugin of a cluster and its nodes, as the API server has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.record import MALFORMED, listed, optional_text, parse
from ..._core.regex import regex
from ..._core.value import frozen
from ..._machine.kubernetes_client import NOT_FOUND, Refusal, refused
from .declaration import CLASSES, RDMA, Taint
from .flags import Release

if TYPE_CHECKING:
    from ..._machine.kubernetes_client import Ask
    from .order import Place

# What we set on a node and what was there before, beside it: labels and taints by their place. And the names of what
# the node shares with others, so that this goes with the last of them.
ANNOTATION = "gpufleet.node/device-plugin"
LABELS, TAINTS = "labels", "taints"
SHARED_BY_NODES = (RDMA, CLASSES)
MANAGED_BY, US = "app.kubernetes.io/managed-by", "gpufleet.node"
# So many nodes in an answer: one of 2,000 would be tens of megabytes.
PAGE = "250"
PLUGIN, LABELLER, MANAGER = "nvidia-device-plugin", "gpu-feature-discovery", "config-manager"
IMAGE = regex(r"k8s-device-plugin:v?([0-9]+)\.([0-9]+)\.")
POLICY = "ClusterPolicy"
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
RIGHTS = "get, list and patch nodes"
FILES_RIGHT = "get, create, patch and delete configmaps"

Ours = Mapping[str, Mapping[str, Tuple[Optional[str], str]]]
Uses = Mapping[str, Tuple[str, ...]]


@frozen
class Node:
    """``ours`` are the labels and taints that we set: what was there before, and what we made of it.

    ``uses`` are the names of what it shares with other nodes, by ``SHARED_BY_NODES``.
    """

    name: str
    version: str
    labels: Mapping[str, str]
    taints: Tuple[Mapping[str, Any], ...]
    ours: Ours
    uses: Uses
    allocatable: Mapping[str, int]

    def taint(self, place: str) -> Optional[str]:
        """The value of the taint of a key and an effect; None where there is none."""
        return next((str(one.get("value") or "") for one in self.taints if _place(one) == place), None)


@frozen
class Plugin:
    """The DaemonSet. ``config_map`` is the one that it reads, ``policy`` the ClusterPolicy that it was made from.

    ``default`` is the key for a node without the label, and ``fallbacks`` what stands in for that. ``release`` is that
    of its image, None where the image does not say. A variable is None where its value is somewhere else.
    """

    name: str
    config_map: Optional[str]
    default: str
    fallbacks: Tuple[str, ...]
    environment: Mapping[str, Optional[str]]
    policy: Optional[str]
    release: Optional[Release]


@frozen
class ConfigMap:
    """``ours``: we made it. ``owner`` is who else says that it is theirs, empty for nobody.

    ``controller`` is the object that it is made from, such as ``NicClusterPolicy nic-cluster-policy``; empty for none.
    ``note`` is what we have noted on it; None for nothing.
    """

    data: Mapping[str, str]
    ours: bool
    owner: str
    controller: str
    note: Optional[str]
    version: str


@frozen
class Policy:
    """The part of a ClusterPolicy that names the ConfigMap. ``ours``: we have set it."""

    name: str
    config_map: Optional[str]
    ours: bool


@frozen
class Cluster:
    """``plugins`` are those of the namespace; there is one, or one for each kind of node.

    ``labellers`` are the DaemonSets of GPU feature discovery there, which read the same file.
    """

    nodes: Mapping[str, Node]
    plugins: Tuple[Plugin, ...]
    labellers: Tuple[Plugin, ...]
    config_map: Optional[ConfigMap]
    policy: Optional[Policy]


class ApiServer:
    """Every method raises ``GpuFleetError``; ``send`` raises ``Refusal``."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def cluster(self, place: Place) -> Cluster:
        plugins, labellers = self._plugins(place)
        policies = sorted({plugin.policy for plugin in plugins if plugin.policy})
        policy = self._policy(policies[0]) if policies else None
        return Cluster(self.nodes(), plugins, labellers, self.config_map(place), policy)

    def nodes(self) -> Dict[str, Node]:
        items = self.items("ask Kubernetes for its nodes", "/api/v1/nodes", {"limit": PAGE}, RIGHTS)
        return {node.name: node for node in map(parse_node, items)}

    def node(self, name: str) -> Optional[Node]:
        answer = self.get(f"ask Kubernetes for the node {name}", f"/api/v1/nodes/{name}", {}, RIGHTS)
        return None if answer is None else parse_node(answer)

    def send(self, method: str, path: str, body: Optional[Mapping[str, Any]], *, dry_run: bool) -> Mapping[str, Any]:
        return self._ask(method, path, {"dryRun": "All"} if dry_run else {}, body)

    def get(self, goal: str, path: str, query: Mapping[str, str], right: str) -> Optional[Mapping[str, Any]]:
        """The answer; None where there is no such thing."""
        try:
            return self._ask("GET", path, query, None)
        except Refusal as refusal:
            if refusal.code == NOT_FOUND:
                return None
            raise refused(goal, refusal, right) from None

    def items(self, goal: str, path: str, query: Mapping[str, str], right: str) -> Iterator[Mapping[str, Any]]:
        """All of a list, in pages of the ``limit`` in the query; none where there is no such thing."""
        following: Dict[str, str] = {}
        while True:
            answer = self.get(goal, path, {**query, **following}, right) or {}
            yield from answer.get("items") or ()
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return
            following = {"continue": token}

    def config_map(self, place: Place) -> Optional[ConfigMap]:
        answer = self.get(f"read the ConfigMap {place}", place.path, {}, FILES_RIGHT)
        return None if answer is None else parse_config_map(answer)

    def _plugins(self, place: Place) -> Tuple[Tuple[Plugin, ...], Tuple[Plugin, ...]]:
        goal = f"find the device plugin in the namespace {place.namespace}"
        items = list(self.items(goal, place.daemonsets, {}, "list daemonsets"))
        plugins, labellers = ([parse_plugin(item, program) for item in items] for program in (PLUGIN, LABELLER))
        return tuple(filter(None, plugins)), tuple(filter(None, labellers))

    def _policy(self, name: str) -> Optional[Policy]:
        goal = f"read the ClusterPolicy {name}"
        answer = self.get(goal, f"{POLICIES}/{name}", {}, "get and patch clusterpolicies of nvidia.com")
        return None if answer is None else parse_policy(answer)


def parse_node(answer: Mapping[str, Any]) -> Node:
    """A node of core/v1. Raises ``CannotLook`` on anything else."""
    try:
        metadata = answer["metadata"]
        name = str(metadata["name"])
        ours, uses = _noted(name, (metadata.get("annotations") or {}).get(ANNOTATION))
        allocatable = (answer.get("status") or {}).get("allocatable") or {}
        return Node(
            name=name,
            version=metadata["resourceVersion"],
            labels=dict(metadata.get("labels") or {}),
            taints=tuple((answer.get("spec") or {}).get("taints") or ()),
            ours=ours,
            uses=uses,
            # Other resources may be written with a suffix; those of devices are whole numbers.
            allocatable={key: int(value) for key, value in allocatable.items() if str(value).isdecimal()},
        )
    except (AttributeError, KeyError, TypeError):
        raise not_understood("a node", answer) from None


def _noted(name: str, text: Optional[str]) -> Tuple[Ours, Uses]:
    try:
        noted = parse(text or "{}")
        ours = {
            kind: {str(place): _before_and_made(pair) for place, pair in noted.get(kind, {}).items()}
            for kind in (LABELS, TAINTS)
        }
        return ours, {kind: tuple(map(str, listed(noted.get(kind, [])))) for kind in SHARED_BY_NODES}
    except MALFORMED:
        raise damaged(name, str(text)) from None


def _before_and_made(pair: Any) -> Tuple[Optional[str], str]:
    before, made = listed(pair)
    return optional_text(before), str(made)


def damaged(object: str, note: str) -> CannotLook:
    """The error for a note of ours that nobody can read any more."""
    return CannotLook(
        "read what this collection has set on {}",
        object=object,
        cause=f"its annotation {ANNOTATION} is damaged",
        found=note[:200],
        hint="remove the annotation; what it names then stays as it is",
    )


def parse_plugin(answer: Mapping[str, Any], program: str = PLUGIN) -> Optional[Plugin]:
    """A DaemonSet of apps/v1, where it is one of the device plugin, or of another program that reads its file."""
    try:
        metadata, pod = answer["metadata"], answer["spec"]["template"]["spec"]
        containers = {one["name"]: one for one in pod["containers"]}
        managers = [one for one in containers.values() if one.get("command") == [MANAGER]]
        main = [one for name, one in containers.items() if name.startswith(program) and one.get("command") != [MANAGER]]
        if not main:
            return None
        owners = metadata.get("ownerReferences") or ()
        manager = _environment(managers[0]) if managers else {}
        return Plugin(
            name=metadata["name"],
            config_map=_mounted(pod, managers[0]) if managers else None,
            default=manager.get("DEFAULT_CONFIG") or "",
            fallbacks=tuple(filter(None, (manager.get("FALLBACK_STRATEGIES") or "").split(","))),
            environment=_environment(main[0]),
            policy=next((str(one["name"]) for one in owners if one["kind"] == POLICY), None),
            release=_release(str(main[0].get("image") or "")),
        )
    except (AttributeError, KeyError, TypeError):
        raise not_understood("a DaemonSet", answer) from None


def _environment(container: Mapping[str, Any]) -> Dict[str, Optional[str]]:
    return {
        one["name"]: None if one.get("valueFrom") else str(one.get("value") or "") for one in container.get("env") or ()
    }


def _release(image: str) -> Optional[Release]:
    """Of ``nvcr.io/nvidia/k8s-device-plugin:v0.17.1-ubi9``; a digest or a tag of a mirror may say nothing."""
    match = IMAGE.search(image)
    return (int(match[1]), int(match[2])) if match else None


def _mounted(pod: Mapping[str, Any], manager: Mapping[str, Any]) -> Optional[str]:
    """The ConfigMap in the folder of files to choose from."""
    folder = _environment(manager).get("CONFIG_FILE_SRCDIR")
    volumes = {one["name"]: one for one in pod.get("volumes") or ()}
    for mount in manager.get("volumeMounts") or ():
        if mount["mountPath"] == folder:
            found: Optional[str] = (volumes[mount["name"]].get("configMap") or {}).get("name")
            return found
    return None


def parse_config_map(answer: Mapping[str, Any]) -> ConfigMap:
    try:
        metadata = answer["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        manager = str(labels.get(MANAGED_BY, ""))
        tracker = next((name for name in annotations if name.startswith("argocd.argoproj.io/")), "")
        flux = next((name for name in labels if ".toolkit.fluxcd.io/" in name), "")
        owners = metadata.get("ownerReferences") or ()
        return ConfigMap(
            data=dict(answer.get("data") or {}),
            ours=manager == US,
            owner=tracker or flux or (manager if manager != US else ""),
            controller=next((f"{one['kind']} {one['name']}" for one in owners if one.get("controller")), ""),
            note=annotations.get(ANNOTATION),
            version=str(metadata.get("resourceVersion", "")),
        )
    except (AttributeError, KeyError, TypeError):
        raise not_understood("a ConfigMap", answer) from None


def parse_policy(answer: Mapping[str, Any]) -> Policy:
    try:
        metadata = answer["metadata"]
        config = ((answer["spec"].get("devicePlugin") or {}).get("config")) or {}
        return Policy(
            name=metadata["name"],
            config_map=config.get("name") or None,
            ours=ANNOTATION in (metadata.get("annotations") or {}),
        )
    except (AttributeError, KeyError, TypeError):
        raise not_understood("a ClusterPolicy", answer) from None


def _place(taint: Mapping[str, Any]) -> str:
    return f"{taint['key']}:{taint['effect']}"


def with_taint(taints: Tuple[Mapping[str, Any], ...], place: str, value: Optional[str]) -> List[Mapping[str, Any]]:
    """The taints with another value at a place, or with none there. What else a taint has, such as its time, stays."""
    found: List[Mapping[str, Any]] = []
    for one in taints:
        if _place(one) != place:
            found.append(one)
        elif value is not None:
            found.append({**one, "value": value})
    if value is not None and all(_place(one) != place for one in taints):
        key, _colon, effect = place.rpartition(":")
        found.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    return found


def wanted_taints(taints: Tuple[Taint, ...]) -> Dict[str, str]:
    return {taint.place: taint.value for taint in taints}


def not_understood(what: str, answer: Any) -> CannotLook:
    return CannotLook(f"ask the API server for {what}", cause="it returned something else", found=str(answer)[:200])
