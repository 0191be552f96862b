# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is declared of each node, and what is wrong with it before the cluster is asked. Pure."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import frozen
from ..._nvidia.sharing import misfits
from .configuration import (
    FEWEST_REPLICAS,
    GPU,
    SHARED,
    WHOLE_PROFILES,
    configuration,
    faults_of_mig,
    faults_of_replicas,
    faults_of_resources,
    is_divided,
    key_of,
    labelled,
    mig_devices,
    named,
    offered,
    text_of,
)
from .device_classes import DeclaredClass, faults_of_classes, parse_class
from .flags import DISCOVERY, MIG_STRATEGY, MIXED, NONE, TEGRA, Release, faults_of_flags, settled
from .rdma_configuration import LONGEST_INTERVAL, Resource, faults_of_rdma, parse_resource

GOAL = "configure the device plugin for {}"
RDMA_GOAL = "configure the RDMA devices of {}"
CLASS_GOAL = "create device classes for {}"
# What nodes share with others, as it is called in their notes.
RDMA, CLASSES = "rdma", "classes"
# The label by which the plugin chooses the file of its node, and what labels of ours begin with.
CONFIG_LABEL = "nvidia.com/device-plugin.config"
OWN = "gpufleet.node/"
# A name of a node is one of DNS (RFC 1123), and goes into the path of a request.
NODE_NAME = regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
LABEL_VALUE = regex(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = regex(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
# The kubelet writes these itself, and programs that manage GPUs act on those: a wrong one changes a MIG layout.
OF_THE_KUBELET = "kubernetes.io/"
OF_OTHERS = ("nvidia.com/mig.config", "nvidia.com/gpu.workload.config", "nvidia.com/vgpu.config")
OF_THE_OPERATOR = "nvidia.com/gpu.deploy."
UNSET = "unset"
# A release that names MIG devices in the old way.
OLD: Release = (WHOLE_PROFILES[0], WHOLE_PROFILES[1] - 1)
NO_SCHEDULE, PREFER, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
EFFECTS = (NO_SCHEDULE, PREFER)


@frozen
class Taint:
    key: str
    value: str
    effect: str

    @property
    def place(self) -> str:
        """A node has one taint of a key and an effect."""
        return f"{self.key}:{self.effect}"


@frozen
class Entry:
    """A node as it is to be. ``config`` is the key of its file, None where nothing is said to the plugin.

    ``replicas`` are by the resource as it is called before it is shared. ``gpus`` are those that the driver told of.
    ``rdma_interval`` is in seconds, None where nothing is said of it.
    """

    name: str
    config: Optional[str]
    text: str
    flags: Mapping[str, Any]
    sharing: Optional[str]
    replicas: Mapping[str, int]
    rename: bool
    fail_requests_greater_than_one: bool
    labels: Mapping[str, str]
    taints: Tuple[Taint, ...]
    gpus: Tuple[Mapping[str, Any], ...]
    rdma: Tuple[Resource, ...]
    rdma_interval: Optional[int]
    classes: Tuple[DeclaredClass, ...]

    @property
    def uses(self) -> Dict[str, Tuple[str, ...]]:
        """The names of what it shares with other nodes."""
        return {
            RDMA: tuple(sorted(one.name for one in self.rdma)),
            CLASSES: tuple(sorted(one.name for one in self.classes)),
        }

    def expected(self, mig_strategy: str, release: Optional[Release], tegra: bool) -> Dict[str, int]:
        """The resources that the kubelet has to offer; empty where the GPUs are not known. The arguments are those in
        effect.
        """
        found: Dict[str, int] = {}
        for name, number in offered(self.gpus, mig_strategy, release=release, tegra=tegra).items():
            replicas = self.replicas.get(name, 1)
            found[f"{name}{SHARED}" if self.rename and replicas > 1 else name] = number * replicas
        return found


def parse_entries(entries: Sequence[Mapping[str, Any]]) -> Tuple[Entry, ...]:
    """Raises ``DeclarationError`` with the first cause, and all nodes that it is about."""
    names = [str(entry["name"]) for entry in entries]
    _refuse(GOAL, entries, lambda entry: _faults(entry, names))
    parsed = tuple(_entry(entry) for entry in entries)
    of_rdma, of_classes = _clashes(parsed, lambda one: one.rdma), _clashes(parsed, lambda one: one.classes)
    by_name = {one.name: one for one in parsed}
    intervals = sorted({one.rdma_interval for one in parsed if one.rdma and one.rdma_interval is not None})
    _refuse(RDMA_GOAL, entries, lambda entry: _faults_of_rdma(by_name[entry["name"]], of_rdma, intervals))
    _refuse(CLASS_GOAL, entries, lambda entry: _faults_of_classes(by_name[entry["name"]], of_classes))
    return parsed


def _refuse(
    goal: str, entries: Sequence[Mapping[str, Any]], faults: Callable[[Mapping[str, Any]], Iterator[str]]
) -> None:
    causes: Dict[str, List[str]] = {}
    for entry in entries:
        for cause in faults(entry):
            causes.setdefault(cause, []).append(str(entry["name"]))
    for cause, where in causes.items():
        others = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
        raise DeclarationError(goal, object=", ".join(dict.fromkeys(where)), cause=f"{cause}{others}")


def _clashes(entries: Sequence[Entry], shared: Callable[[Entry], Sequence[Any]]) -> Set[str]:
    """The names of what there is once for all nodes, and is not declared alike on all that declare it."""
    first: Dict[str, Any] = {}
    return {one.name for entry in entries for one in shared(entry) if first.setdefault(one.name, one) != one}


def _faults_of_rdma(entry: Entry, clashes: Set[str], intervals: Sequence[int]) -> Iterator[str]:
    yield from faults_of_rdma(entry.rdma)
    for one in entry.rdma:
        if one.name in clashes:
            yield f"the RDMA resource {one.name} is not declared alike on all of them, and one file serves all nodes"
    if entry.rdma and entry.rdma_interval is not None:
        if not 0 <= entry.rdma_interval <= LONGEST_INTERVAL:
            yield f"rdma_update_interval is {entry.rdma_interval}, and must be from 0 to {LONGEST_INTERVAL}"
        if len(intervals) > 1:
            said = ", ".join(map(str, intervals))
            yield f"rdma_update_interval is not the same on all of them ({said}), and one file serves all nodes"


def _faults_of_classes(entry: Entry, clashes: Set[str]) -> Iterator[str]:
    yield from faults_of_classes(entry.classes)
    for one in entry.classes:
        if one.name in clashes:
            yield f"the class {one.name} is not declared alike on all of them, and there is one for all nodes"


def _faults(entry: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    if not NODE_NAME.fullmatch(str(entry["name"])):
        yield "that is not the name of a node"
    if names.count(entry["name"]) > 1:
        yield "the node is named twice"
    wrong = list(faults_of_flags(entry["flags"]))
    yield from wrong
    if not wrong:
        flags = settled(entry["flags"])
        if entry["mig_strategy"] != UNSET and MIG_STRATEGY in flags:
            yield f"mig_strategy and flags.{MIG_STRATEGY} are the same thing, and only one may be set"
        yield from _faults_of_sharing(entry, flags)
    for key, value in entry["labels"].items():
        yield from _faults_of_label(str(key), value)
    for taint in entry["taints"]:
        yield from _faults_of_taint(taint)
    places = [f"{taint['key']}:{taint['effect']}" for taint in entry["taints"]]
    yield from (f"the taint {place} is declared twice" for place in places if places.count(place) > 1)


def _faults_of_sharing(entry: Mapping[str, Any], flags: Mapping[str, Any]) -> Iterator[str]:
    strategy, replicas, rename = entry["strategy"], entry["replicas"], entry["rename"]
    known = _known(entry["gpus"])
    if replicas < 1:
        yield f"replicas is {replicas}, and must be at least {FEWEST_REPLICAS}, or 1 for GPUs that are not shared"
        return
    resources = [(named(str(one["name"])), one["replicas"]) for one in entry["resources"]]
    if resources and replicas > 1:
        yield "replicas and resources are the same thing, and only one may be set"
    yield from faults_of_resources(resources, rename=rename)
    if entry["memory_mib"] < 0:
        yield f"memory_mib is {entry['memory_mib']}, and must be 0 or more"
    most = max([replicas, *(number for _name, number in resources)])
    mig_strategy = _mig_strategy(entry, flags) or NONE
    # A plugin that was told to discover a Tegra asks no driver for MIG devices.
    discovered = [] if flags.get(DISCOVERY) == TEGRA else known
    yield from faults_of_mig(discovered, strategy=mig_strategy, sharing=strategy if most > 1 else None)
    if most > 1:
        yield from faults_of_replicas(known, strategy=strategy, replicas=most)
        if mig_strategy == MIXED and not resources and not known:
            yield "with migStrategy mixed and GPUs that are not known, resources must name what is shared"
    for gpu in known:
        own = max([replicas, *(dict(resources).get(name, 1) for name in offered([gpu], mig_strategy))])
        if own > 1:
            yield from misfits([gpu], strategy=strategy, replicas=own, memory_mib=entry["memory_mib"])


def _faults_of_label(key: str, value: Any) -> Iterator[str]:
    if not LABEL_KEY.fullmatch(key):
        yield f"{key} is not the name of a label"
    elif key == CONFIG_LABEL or key.startswith(OWN):
        yield f"the label {key} is set by this module itself"
    elif key.startswith(OF_THE_KUBELET):
        yield f"the label {key} belongs to the kubelet"
    elif key in OF_OTHERS or key.startswith(OF_THE_OPERATOR):
        yield f"the label {key} makes the GPU Operator change the node, which would conflict with this collection"
    if not isinstance(value, str) or not LABEL_VALUE.fullmatch(value):
        right = "a string of up to 63 letters, digits, -, _ and dots"
        yield f"the label {key} cannot have the value {value!r}: it must be {right}"


def _faults_of_taint(taint: Mapping[str, Any]) -> Iterator[str]:
    if not LABEL_KEY.fullmatch(taint["key"]):
        yield f"{taint['key']} is not the name of a taint"
    if not LABEL_VALUE.fullmatch(taint["value"]):
        yield f"the taint {taint['key']} cannot have the value {taint['value']!r}"
    if taint["effect"] not in EFFECTS:
        cause = "it would evict running pods" if taint["effect"] == NO_EXECUTE else "there is no such effect"
        yield f"the taint {taint['key']} has the effect {taint['effect']}: {cause}. Use {' or '.join(EFFECTS)}"


def _known(gpus: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Those that a driver has; one that is passed through is not offered to pods."""
    return [gpu for gpu in gpus if gpu.get("model")]


def _mig_strategy(entry: Mapping[str, Any], flags: Mapping[str, Any]) -> Optional[str]:
    declared: str = entry["mig_strategy"]
    return declared if declared != UNSET else flags.get(MIG_STRATEGY)


def _entry(entry: Mapping[str, Any]) -> Entry:
    known = _known(entry["gpus"])
    replicas: int = entry["replicas"]
    flags = settled(entry["flags"])
    mig_strategy = _mig_strategy(entry, flags)
    flags.update({MIG_STRATEGY: mig_strategy} if mig_strategy else {})
    resources = [(named(str(one["name"])), int(one["replicas"])) for one in entry["resources"]]
    if replicas > 1:
        names = (
            [GPU] if mig_strategy != MIXED else sorted({*offered(known, MIXED), *offered(known, MIXED, release=OLD)})
        )
        resources = [(name, replicas) for name in names]
    content = configuration(
        flags=flags,
        sharing=entry["strategy"],
        resources=resources,
        rename=entry["rename"],
        fail_requests_greater_than_one=entry["fail_requests_greater_than_one"],
    )
    told = bool(flags or resources)
    most = max((number for _name, number in resources), default=1)
    key = key_of(content, entry["strategy"], most) if told else None
    sharing = entry["strategy"] if resources else None
    labels = dict(entry["labels"])
    if entry["fact_labels"]:
        labels.update(labels_of(known, sharing=sharing, replicas=most))
    if key is not None:
        labels[CONFIG_LABEL] = key
    return Entry(
        name=entry["name"],
        config=key,
        text=text_of(content),
        flags=flags,
        sharing=sharing,
        replicas=dict(resources),
        rename=entry["rename"],
        fail_requests_greater_than_one=entry["fail_requests_greater_than_one"],
        labels=labels,
        taints=tuple(Taint(one["key"], one["value"], one["effect"]) for one in entry["taints"]),
        gpus=tuple(known),
        rdma=tuple(map(parse_resource, entry["rdma_resources"])),
        rdma_interval=entry["rdma_update_interval"],
        classes=tuple(map(parse_class, entry["device_classes"])),
    )


def labels_of(gpus: Sequence[Mapping[str, Any]], *, sharing: Optional[str], replicas: int) -> Dict[str, str]:
    """What the facts say, for who has to place a pod. Nothing of a node whose driver told of no GPU."""
    if not gpus:
        return {}
    profiles = [profile for gpu in gpus for profile in mig_devices(gpu)]
    divided = sum(map(is_divided, gpus))
    found = {
        "mig": "disabled" if not divided else "enabled" if divided == len(gpus) else "mixed",
        "sharing": (sharing or NONE).replace("_", "-"),
        "replicas": str(replicas),
        **{f"mig-{labelled(profile)}": str(profiles.count(profile)) for profile in sorted(set(profiles))},
    }
    numa = {gpu["numa_node"] for gpu in gpus if gpu.get("numa_node") is not None}
    if numa:
        found["gpu-numa-nodes"] = str(len(numa))
    domains = {gpu["nvlink_domain"] for gpu in gpus if gpu.get("nvlink_domain")}
    if len(domains) == 1:
        found["nvlink-domain"] = domains.pop()
    return {f"{OWN}{name}": value for name, value in found.items()}
