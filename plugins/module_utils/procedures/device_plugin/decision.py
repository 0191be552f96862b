# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be asked of the API server, and what of a declaration this cluster cannot have. Pure."""

from __future__ import annotations

import json
from typing import AbstractSet, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.change import Change
from ..._core.errors import DeclarationError, OwnedByAnother
from ..._core.setting import EFFECTIVE
from ..._core.value import frozen
from ..._nvidia.sharing import MPS
from . import dra, rdma
from .cluster import (
    ANNOTATION,
    LABELS,
    MANAGED_BY,
    POLICIES,
    SHARED_BY_NODES,
    TAINTS,
    US,
    Cluster,
    Node,
    Plugin,
    Uses,
    wanted_taints,
    with_taint,
)
from .configuration import (
    GPU,
    KEY,
    MIG_RESOURCE,
    MPS_REQUESTS,
    MPS_SINCE,
    SHARED,
    faults_of_mig,
    faults_of_mig_by_release,
    offered,
    text_of,
)
from .declaration import CLASSES, CONFIG_LABEL, GOAL, OLD, RDMA, Entry
from .dra import Dra
from .flags import (
    DISCOVERY,
    DISCOVERY_VARIABLES,
    MIG_STRATEGY,
    MPS_ROOT,
    NONE,
    SINCE,
    TEGRA,
    VARIABLES,
    Release,
    by_path,
    faults_of_release,
    faults_of_variables,
    ignored_flags,
    meaning,
    named_release,
    same,
    variable_of,
)
from .order import Order, Place, Places
from .rdma import Asked, Rdma

# The file of a node without the label. Without this key it would get the only other one there is, which is for others.
DEFAULT, DEFAULT_TEXT = "default", text_of({"version": "v1"})
SINGLE_FALLBACK = "single"
# How the changes of a node call what it shares with others.
USED = {RDMA: "RDMA resources", CLASSES: "device classes"}


@frozen
class Seen:
    """All that the API server has of it."""

    cluster: Cluster
    rdma: Rdma
    dra: Dra


def present(seen: Seen, entries: Sequence[Entry], places: Places) -> Tuple[Order, ...]:
    """The files before the labels that choose them, and what nobody chooses any more at the end."""
    cluster, place = seen.cluster, places.files
    missing = [entry.name for entry in entries if entry.name not in cluster.nodes]
    if missing:
        cause, hint = "Kubernetes has no node of this name", "list them with kubectl get nodes"
        raise DeclarationError(GOAL, object=", ".join(missing), cause=cause, hint=hint)
    configured = [entry for entry in entries if entry.config is not None]
    orders: List[Order] = []
    if configured:
        refuse_impossible(cluster, configured, place)
        orders += _files(cluster, {str(entry.config): entry.text for entry in configured}, place)
        orders += _policy(cluster, place)
    shared, stale = _shared(seen, entries, {entry.name: entry.uses for entry in entries}, places)
    orders += shared
    chosen = chosen_keys(cluster)
    for entry in entries:
        order = of_node(cluster.nodes[entry.name], entry)
        chosen[entry.name] = _label_after(cluster.nodes[entry.name], entry)
        orders += [order] if order else []
    return (*orders, *stale, *_pruned(cluster, set(chosen.values()), place))


def absent(seen: Seen, names: Sequence[str], places: Places) -> Tuple[Order, ...]:
    """What we set on the nodes, and the files when no node is left that chooses one."""
    cluster, place = seen.cluster, places.files
    shared, stale = _shared(seen, (), {name: {} for name in names}, places)
    orders: List[Order] = [*shared, *stale]
    chosen = chosen_keys(cluster)
    for name in names:
        # A node that has left the cluster took all of it along.
        if name in cluster.nodes:
            order = of_node(cluster.nodes[name], None)
            chosen[name] = _label_after(cluster.nodes[name], None)
            orders += [order] if order else []
    used = {key for key in chosen.values() if key and KEY.fullmatch(key)}
    if used:
        return (*orders, *_pruned(cluster, used, place))
    policy = cluster.policy
    if policy is not None and policy.ours:
        before = policy.config_map if policy.config_map == place.config_map else None
        orders.append(_policy_order(policy.name, before, None))
    files = cluster.config_map
    if files is not None and files.ours and not others_files(cluster) and not readers(cluster, place):
        change = Change(str(place), "ConfigMap", "present", "absent", EFFECTIVE)
        orders.append(Order("DELETE", place.path, None, (change,), "delete configmaps"))
        return tuple(orders)
    return (*orders, *_pruned(cluster, used, place))


def _shared(
    seen: Seen, entries: Sequence[Entry], after: Mapping[str, Uses], places: Places
) -> Tuple[List[Order], List[Order]]:
    """For what nodes share, and for classes that none of them has any more. ``after`` are the nodes of this run."""
    used = {kind: used_by_any(seen.cluster, after, kind) for kind in SHARED_BY_NODES}
    intervals = [entry.rdma_interval for entry in entries if entry.rdma and entry.rdma_interval is not None]
    asked = Asked(
        {one.name: one for entry in entries for one in entry.rdma},
        intervals[0] if intervals else None,
        used[RDMA],
        ", ".join(entry.name for entry in entries if entry.rdma),
    )
    of_rdma = rdma.orders(seen.rdma, places.rdma, asked, restart=places.restart_rdma)
    classes = {one.name: one for entry in entries for one in entry.classes}
    nodes = ", ".join(entry.name for entry in entries if entry.classes)
    written, stale = dra.orders(seen.dra, classes, used[CLASSES], nodes)
    return [*of_rdma, *written], stale


def used_by_any(cluster: Cluster, after: Mapping[str, Uses], kind: str) -> Set[str]:
    """The names of what some node of the cluster shares with others, when those of this run are as they are to be."""
    return {name for node in cluster.nodes.values() for name in after.get(node.name, node.uses).get(kind, ())}


def others_files(cluster: Cluster) -> List[str]:
    """The keys of the ConfigMap that are not ours."""
    data = cluster.config_map.data if cluster.config_map is not None else {}
    return [key for key in data if not KEY.fullmatch(key) and (key, data[key]) != (DEFAULT, DEFAULT_TEXT)]


def readers(cluster: Cluster, place: Place) -> List[str]:
    """The DaemonSets that keep reading the ConfigMap: without it their next pods would not start."""
    if cluster.policy is not None and cluster.policy.ours:
        return []
    return [plugin.name for plugin in cluster.plugins if plugin.config_map == place.config_map]


def chosen_keys(cluster: Cluster) -> Dict[str, Optional[str]]:
    return {name: node.labels.get(CONFIG_LABEL) for name, node in cluster.nodes.items()}


# --- what this cluster cannot have ------------------------------------------------------------------------------------


def refuse_impossible(cluster: Cluster, configured: Sequence[Entry], place: Place) -> None:
    """Raise ``GpuFleetError`` for what the device plugin of this cluster would not take, or not obey."""
    names = ", ".join(entry.name for entry in configured)
    if not cluster.plugins:
        cause = f"there is no DaemonSet of the NVIDIA device plugin in the namespace {place.namespace}"
        hint = "install it, or set namespace to the one where it is, such as gpu-operator"
        raise DeclarationError(GOAL, object=names, cause=cause, hint=hint)
    for plugin in cluster.plugins:
        read = _read_by(plugin, cluster)
        if read != place.config_map and (read is not None or plugin.policy is None):
            raise _other_config_map(plugin, read, names, place)
        for cause in faults_of_variables(plugin.environment, plugin.release):
            hint = f"correct it in {_home(plugin)}, because the DaemonSet {plugin.name} cannot start with it"
            raise DeclarationError(GOAL, object=names, cause=cause, hint=hint)
        for entry in configured:
            _refuse_environment(plugin, entry, VARIABLES)
        _refuse_faults(plugin, configured)
        files = cluster.config_map
        if files is not None and not files.ours and DEFAULT not in files.data and not plugin.default:
            keys = [key for key in files.data if not KEY.fullmatch(key)]
            if len(keys) == 1 and (SINGLE_FALLBACK in plugin.fallbacks or not plugin.fallbacks):
                cause = f"nodes without a label use {keys[0]}, the only key of {place}, and would have none beside ours"
                hint = f"name {keys[0]} as the default in the values of the device plugin, or set another config_map"
                raise OwnedByAnother(GOAL, object=names, cause=cause, hint=hint)
    for labeller in cluster.labellers:
        for entry in configured:
            _refuse_environment(labeller, entry, DISCOVERY_VARIABLES)


def _read_by(plugin: Plugin, cluster: Cluster) -> Optional[str]:
    if plugin.policy is not None and cluster.policy is not None:
        return cluster.policy.config_map
    return plugin.config_map


def _other_config_map(plugin: Plugin, read: Optional[str], names: str, place: Place) -> Exception:
    if read is not None:
        cause = f"{plugin.name} reads the ConfigMap {read}, and not {place.config_map}"
        return OwnedByAnother(GOAL, object=names, cause=cause, hint=f"set config_map to {read}")
    cause = f"the DaemonSet {plugin.name} reads no ConfigMap"
    hint = f"set config.name={place.config_map} in the Helm values of the device plugin, once"
    return DeclarationError(GOAL, object=names, cause=cause, hint=hint)


def _refuse_environment(plugin: Plugin, entry: Entry, variables: Mapping[str, Tuple[str, ...]]) -> None:
    for path, wanted in by_path(entry.flags).items():
        variable = variable_of(path, variables, plugin.environment, plugin.release)
        if not variable:
            continue
        found = plugin.environment[variable]
        if found is None or not same(path, meaning(found, path), wanted):
            cause = f"{variable} in the DaemonSet {plugin.name} overrides {path} of the file"
            hint = f"set it in {_home(plugin)}, or leave it out here"
            said = "a value from elsewhere" if found is None else found
            raise OwnedByAnother(GOAL, object=entry.name, cause=cause, found=said, wanted=_worded(wanted), hint=hint)


def _home(plugin: Plugin) -> str:
    """The place of the variables of a DaemonSet."""
    return "the ClusterPolicy" if plugin.policy else "the Helm values of the device plugin"


def _worded(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_faults(plugin: Plugin, configured: Sequence[Entry]) -> None:
    causes: Dict[str, List[str]] = {}
    for entry in configured:
        for cause in _faults(plugin, entry):
            causes.setdefault(cause, []).append(entry.name)
    release = f", release {named_release(plugin.release)}" if plugin.release is not None else ""
    for cause, names in causes.items():
        hint = f"the DaemonSet is {plugin.name}{release}"
        raise DeclarationError(GOAL, object=", ".join(dict.fromkeys(names)), cause=cause, hint=hint)


def _faults(plugin: Plugin, entry: Entry) -> Iterator[str]:
    """The faults at which the plugin of this cluster exits, with all that its DaemonSet sets."""
    strategy, _release, tegra = in_effect(plugin, entry)
    gpus = () if tegra else entry.gpus
    yield from faults_of_release(entry.flags, plugin.release)
    yield from _faults_of_mps(plugin, entry)
    sharing = None if _ignores_mps(plugin, entry) else entry.sharing
    yield from faults_of_mig(gpus, strategy=strategy, sharing=sharing)
    yield from faults_of_mig_by_release(gpus, strategy=strategy, release=plugin.release)


def _faults_of_mps(plugin: Plugin, entry: Entry) -> Iterator[str]:
    if entry.sharing == MPS and not _ignores_mps(plugin, entry) and _in_effect(plugin, entry, MPS_ROOT) == "":
        yield f"the plugin has no MPS without a root folder: set MPS_ROOT in the DaemonSet, or flags.{MPS_ROOT}"


def _ignores_mps(plugin: Plugin, entry: Entry) -> bool:
    return entry.sharing == MPS and plugin.release is not None and plugin.release < MPS_SINCE


def _in_effect(plugin: Plugin, entry: Entry, path: str) -> Optional[str]:
    """A flag that is a text: the variable before the file, empty for the default, None where it cannot be said."""
    if plugin.release is not None and plugin.release < SINCE.get(path, plugin.release):
        return ""
    variable = variable_of(path, VARIABLES, plugin.environment, plugin.release)
    return plugin.environment[variable] if variable else str(by_path(entry.flags).get(path, ""))


def in_effect(plugin: Optional[Plugin], entry: Entry) -> Tuple[str, Optional[Release], bool]:
    """The MIG strategy, the release, and whether a Tegra is to be discovered, by which the resources are named."""
    if plugin is None:
        return entry.flags.get(MIG_STRATEGY, NONE), None, False
    strategy = _in_effect(plugin, entry, MIG_STRATEGY) or NONE
    return strategy, plugin.release, _in_effect(plugin, entry, DISCOVERY) == TEGRA


def ignored(cluster: Cluster, entry: Entry) -> List[str]:
    """The parts of a declaration that the plugin ignores."""
    if entry.config is None or not cluster.plugins:
        return []
    plugin = cluster.plugins[0]
    strategy, release, tegra = in_effect(plugin, entry)
    found = list(ignored_flags(entry.flags, release))
    if _ignores_mps(plugin, entry):
        found.append(f"strategy mps, which only release {named_release(MPS_SINCE)} and newer have")
    elif entry.sharing == MPS and not entry.fail_requests_greater_than_one and release and release < MPS_REQUESTS:
        since = named_release(MPS_REQUESTS)
        found.append(f"fail_requests_greater_than_one false with MPS, which only release {since} and newer obey")
    if entry.gpus:
        names = {name for one in (None, OLD) for name in offered(entry.gpus, strategy, release=one, tegra=tegra)}
        left = [name for name in entry.replicas if name not in names]
        found += [f"the replicas of {name}, because it makes no such resource of the GPUs" for name in left]
    return found


# --- the files --------------------------------------------------------------------------------------------------------


def _files(cluster: Cluster, wanted: Mapping[str, str], place: Place) -> List[Order]:
    files = cluster.config_map
    if files is None:
        changes = (
            Change(str(place), "ConfigMap", "absent", "present", EFFECTIVE),
            *(Change(str(place), key, None, _one_line(text), EFFECTIVE) for key, text in sorted(wanted.items())),
        )
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": place.config_map, "namespace": place.namespace, "labels": {MANAGED_BY: US}},
            "data": {DEFAULT: DEFAULT_TEXT, **wanted},
        }
        return [Order("POST", place.all_of_them, body, changes, "create configmaps")]
    full = {**wanted, **({DEFAULT: DEFAULT_TEXT} if files.ours and DEFAULT not in files.data else {})}
    data = {key: text for key, text in sorted(full.items()) if files.data.get(key) != text}
    return [_data_order(files.data, data, place)] if data else []


def _pruned(cluster: Cluster, used: AbstractSet[Optional[str]], place: Place) -> List[Order]:
    files = cluster.config_map
    stale = [key for key in sorted(files.data) if KEY.fullmatch(key) and key not in used] if files is not None else []
    return [_data_order(files.data, dict.fromkeys(stale), place)] if files is not None and stale else []


def _data_order(found: Mapping[str, str], data: Mapping[str, Optional[str]], place: Place) -> Order:
    changes = tuple(
        Change(str(place), key, _one_line(found.get(key)), _one_line(text), EFFECTIVE) for key, text in data.items()
    )
    return Order("PATCH", place.path, {"data": dict(data)}, changes, "patch configmaps")


def _one_line(text: Optional[str]) -> Optional[str]:
    return None if text is None else " ".join(text.split())


def _policy(cluster: Cluster, place: Place) -> List[Order]:
    policy = cluster.policy
    return [_policy_order(policy.name, None, place.config_map)] if policy and policy.config_map is None else []


def _policy_order(name: str, before: Optional[str], after: Optional[str]) -> Order:
    """``before`` None and ``after`` None: somebody else has set another one since, and only our note goes."""
    setting = {"name": after, "default": DEFAULT if after else None}
    body: Dict[str, Any] = {"metadata": {"annotations": {ANNOTATION: "devicePlugin.config" if after else None}}}
    if before != after:
        body["spec"] = {"devicePlugin": {"config": setting}}
    change = Change(f"ClusterPolicy {name}", "devicePlugin.config.name", before, after, EFFECTIVE)
    noted = Change(f"ClusterPolicy {name}", ANNOTATION, "present", "absent", EFFECTIVE)
    right = "get and patch clusterpolicies of nvidia.com"
    return Order("PATCH", f"{POLICIES}/{name}", body, (change if before != after else noted,), right)


# --- the nodes --------------------------------------------------------------------------------------------------------


def of_node(node: Node, entry: Optional[Entry]) -> Optional[Order]:
    """One patch with labels, taints and the note of both; None where all is as it is to be. Without an entry all of
    ours goes. The API server refuses it when somebody has changed the node since it was looked at."""
    labels, label_changes, our_labels = _settled(
        node.labels.get, node.ours[LABELS], entry.labels if entry else {}, node.name, "label"
    )
    taints, taint_changes, our_taints = _settled(
        node.taint, node.ours[TAINTS], wanted_taints(entry.taints) if entry else {}, node.name, "taint"
    )
    uses = entry.uses if entry else {}
    all_ours: Dict[str, Any] = {LABELS: our_labels, TAINTS: our_taints, **uses}
    ours = {kind: noted for kind, noted in all_ours.items() if noted}
    before: Dict[str, Any] = {kind: noted for kind, noted in {**node.ours, **node.uses}.items() if noted}
    changes = [*label_changes, *taint_changes, *_use_changes(node, uses)]
    if ours == before and not changes:
        return None
    metadata: Dict[str, Any] = {"name": node.name, "resourceVersion": node.version}
    if labels:
        metadata["labels"] = labels
    if ours != before:
        metadata["annotations"] = {ANNOTATION: json.dumps(ours, sort_keys=True) if ours else None}
        if not changes:
            changes.append(Change(node.name, f"annotation {ANNOTATION}", len(before), len(ours), EFFECTIVE))
    body: Dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    if taints:
        kept = node.taints
        for place, value in taints.items():
            kept = tuple(with_taint(kept, place, value))
        body["spec"] = {"taints": list(kept) or None}
    path = f"/api/v1/nodes/{node.name}"
    return Order("PATCH", path, body, tuple(changes), "get, list and patch nodes", node.name)


def _use_changes(node: Node, uses: Uses) -> List[Change]:
    return [
        Change(node.name, word, ", ".join(node.uses[kind]) or None, ", ".join(uses.get(kind, ())) or None, EFFECTIVE)
        for kind, word in USED.items()
        if node.uses[kind] != uses.get(kind, ())
    ]


def _settled(
    current_of: Any, noted: Mapping[str, Tuple[Optional[str], str]], wanted: Mapping[str, str], name: str, word: str
) -> Tuple[Dict[str, Optional[str]], List[Change], Dict[str, Tuple[Optional[str], str]]]:
    """What is to be written, the changes that it makes, and what is ours then, each with what was there before us."""
    written: Dict[str, Optional[str]] = {}
    changes: List[Change] = []
    ours: Dict[str, Tuple[Optional[str], str]] = {}
    for key in sorted({*noted, *wanted}):
        current: Optional[str] = current_of(key)
        target = current
        if key in wanted:
            target = wanted[key]
            # What somebody else has set to the very same is theirs, and stays when ours goes.
            if key in noted or current != target:
                ours[key] = (noted[key][0] if key in noted else current, target)
        elif current == noted[key][1]:
            target = noted[key][0]
        if target != current:
            written[key] = target
            changes.append(Change(name, f"{word} {key}", current, target, EFFECTIVE))
    return written, changes, ours


def _label_after(node: Node, entry: Optional[Entry]) -> Optional[str]:
    order = of_node(node, entry)
    labels = ((order.body or {}).get("metadata") or {}).get("labels") or {} if order else {}
    found: Optional[str] = labels[CONFIG_LABEL] if CONFIG_LABEL in labels else node.labels.get(CONFIG_LABEL)
    return found


# --- read back --------------------------------------------------------------------------------------------------------


def not_yet(cluster: Cluster, entry: Entry) -> Optional[Dict[str, Any]]:
    """What the kubelet does not offer yet; None where it does, or where it cannot be said."""
    node = cluster.nodes.get(entry.name)
    if node is None:
        return None
    wanted = {resource.full_name: resource.most for resource in entry.rdma}
    configured = entry.config is not None and bool(entry.gpus)
    if configured:
        wanted.update(entry.expected(*in_effect(cluster.plugins[0] if cluster.plugins else None, entry)))
    # A resource that has another name now stays with 0 until the kubelet is restarted.
    found = {
        name: number
        for name, number in node.allocatable.items()
        if number and (name in wanted or (configured and _of_the_plugin(name)))
    }
    if found == wanted:
        return None
    return {"name": entry.name, "config": entry.config or "", "expected": wanted, "allocatable": found}


def _of_the_plugin(resource: str) -> bool:
    return resource in (GPU, f"{GPU}{SHARED}") or resource.startswith(MIG_RESOURCE)
