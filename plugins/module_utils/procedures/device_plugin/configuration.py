# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of the NVIDIA device plugin for a node, and what the node has to offer with it. Pure.

The rules are those of api/config/v1, internal/rm and cmd/nvidia-device-plugin of the plugin, releases 0.14 to 0.20.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.regex import regex
from ..._nvidia.sharing import MPS, TIME_SLICING, capability_of
from .flags import MIXED, NONE, SINGLE, Release, named_release

PREFIX = "nvidia.com/"
GPU = f"{PREFIX}gpu"
SHARED = ".shared"
MIG_RESOURCE = f"{PREFIX}mig-"
# A subdomain of DNS behind the prefix, and both together no longer than this: api/config/v1/resources.go. What the
# plugin appends to the name of a shared resource does not count.
RESOURCE = regex(r"nvidia\.com/[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LONGEST_RESOURCE = 63
# Since then, a MIG device must have the very profile that its resource is named after. Before, it was one of the first
# profile that its own contains: 1c.3g.40gb and 3g.40gb+me were both mig-3g.40gb.
WHOLE_PROFILES: Release = (0, 20)
# Since then, a GPU with MIG and without instances is only logged with migStrategy mixed.
EMPTY_GPUS: Release = (0, 16)
MPS_SINCE: Release = (0, 15)
# Since then, MPS obeys failRequestsGreaterThanOne. Before, it refused such requests whatever it was.
MPS_REQUESTS: Release = (0, 20)
FEWEST_REPLICAS = 2
# cmd/mps-control-daemon/mps/device.go, where what is called Volta begins with Turing.
MPS_CLIENTS, MPS_CLIENTS_BEFORE, TURING = 48, 16, (7, 5)
# The plugin sends the kubelet its devices in one message, which gRPC takes up to 4 MiB. An entry is a UUID with the
# number of the replica, its health and its NUMA node.
LARGEST_MESSAGE, ENTRY = 4 << 20, 80
SECTIONS = {TIME_SLICING: "timeSlicing", MPS: "mps"}

Gpus = Sequence[Mapping[str, Any]]


def named(resource: str) -> str:
    """The whole name of a resource, as the plugin completes it."""
    return resource if resource.startswith(PREFIX) else f"{PREFIX}{resource}"


def faults_of_resources(resources: Sequence[Tuple[str, int]], *, rename: bool) -> Iterator[str]:
    """Of resources by their whole names, with their replicas."""
    seen = set()
    for name, replicas in resources:
        if not RESOURCE.fullmatch(name) or len(name) > LONGEST_RESOURCE:
            yield f"{name} is not the name of a resource"
        if name in seen:
            yield f"the resource {name} is named twice"
        if rename and name.endswith(SHARED):
            yield f"the resource {name} would be renamed twice, to {name}{SHARED}: leave out {SHARED}"
        if replicas < FEWEST_REPLICAS:
            yield f"{name} has {replicas} replicas, and the plugin takes no fewer than {FEWEST_REPLICAS}"
        seen.add(name)


def faults_of_replicas(gpus: Gpus, *, strategy: str, replicas: int) -> Iterator[str]:
    """Why there may not be so many on these GPUs."""
    if strategy == MPS:
        for gpu in gpus:
            capability = gpu.get("cuda_capability")
            most = MPS_CLIENTS_BEFORE if capability and capability_of(capability) < TURING else MPS_CLIENTS
            if replicas > most:
                yield f"GPU {gpu['pci_address']}: MPS has {most} clients at most, and {replicas} replicas are too many"
    most = LARGEST_MESSAGE // ENTRY // max(1, sum(map(_devices, gpus)))
    if replicas > most:
        yield f"{replicas} replicas are too many: the kubelet takes {most} of each device of this node at most"


def _devices(gpu: Mapping[str, Any]) -> int:
    return max(1, len(mig_devices(gpu)))


def faults_of_mig(gpus: Gpus, *, strategy: str, sharing: Optional[str]) -> Iterator[str]:
    """What the plugin makes nothing of. ``strategy`` is that of MIG, ``sharing`` None where nothing is shared."""
    divided = [gpu for gpu in gpus if is_divided(gpu)]
    if sharing == MPS and strategy == MIXED:
        yield "the plugin has no MPS with migStrategy mixed"
    elif sharing == MPS and divided and strategy == SINGLE:
        yield f"the plugin has no MPS on MIG devices, and GPU {divided[0]['pci_address']} has MIG enabled"
    if strategy != SINGLE or not divided:
        return
    whole = [gpu for gpu in gpus if not is_divided(gpu)]
    kinds = sorted({profile for gpu in divided for profile in mig_devices(gpu)})
    empty = [gpu for gpu in divided if not mig_devices(gpu)]
    if whole:
        first, other = divided[0]["pci_address"], whole[0]["pci_address"]
        yield f"migStrategy single takes MIG on all GPUs or on none, and it is on {first} and not on {other}"
    elif empty:
        yield f"migStrategy single takes no GPU with MIG and without instances, as {empty[0]['pci_address']}"
    elif len(kinds) > 1:
        yield f"migStrategy single takes instances of one profile, and there are {', '.join(kinds)}: use mixed"


def faults_of_mig_by_release(gpus: Gpus, *, strategy: str, release: Optional[Release]) -> Iterator[str]:
    """MIG devices at which a plugin of this release exits. None is an unknown release, and counts as a new one."""
    if strategy != MIXED:
        return
    for gpu in gpus:
        parts = [one for one in mig_devices(gpu) if "c." in one]
        if parts and (release is None or release >= WHOLE_PROFILES):
            yield (
                f"the plugin has no resource for {parts[0]}, a part of a GPU instance, and GPU {gpu['pci_address']} "
                "has one: with migStrategy mixed it exits, and offers no GPU of this node"
            )
        if is_divided(gpu) and not mig_devices(gpu) and release is not None and release < EMPTY_GPUS:
            cause = f"the plugin exits at a GPU with MIG and without instances, such as {gpu['pci_address']}"
            yield f"before release {named_release(EMPTY_GPUS)}, {cause}"


def is_divided(gpu: Mapping[str, Any]) -> bool:
    return bool((gpu.get("mig") or {}).get("current"))


def mig_devices(gpu: Mapping[str, Any]) -> List[str]:
    """The profiles of its MIG devices, such as ``1g.10gb``, or ``1c.3g.40gb`` for a part of an instance."""
    found = []
    for instance in (gpu.get("mig") or {}).get("instances") or ():
        profile = str(instance.get("profile") or "")
        whole = profile.partition("g.")[0]
        for compute in instance.get("compute_instances") or ():
            slices = str(compute.get("slices"))
            found.append(profile if slices == whole else f"{slices}c.{profile}")
    return found


def offered(gpus: Gpus, strategy: str, *, release: Optional[Release] = None, tegra: bool = False) -> Dict[str, int]:
    """The resources that the plugin makes of GPUs that are not shared, and how many of each there are.

    ``tegra``: it is set to discover one of those, asks no driver, and offers one GPU (internal/rm/tegra_devices.go).
    """
    if tegra:
        return {GPU: 1} if gpus else {}
    found: Dict[str, int] = {}
    for gpu in gpus:
        divided = strategy != NONE and is_divided(gpu)
        names = [GPU]
        if divided:
            names = [_resource_of(one, release) if strategy == MIXED else GPU for one in mig_devices(gpu)]
        for name in names:
            found[name] = found.get(name, 0) + 1
    return found


def _resource_of(profile: str, release: Optional[Release]) -> str:
    if release is not None and release < WHOLE_PROFILES:
        profile = profile.rpartition("c.")[2].partition("+")[0].partition("-")[0]
    return f"{MIG_RESOURCE}{labelled(profile)}"


def labelled(profile: str) -> str:
    """A profile as part of a name in Kubernetes, which has no ``+``: internal/rm/rm.go of the plugin."""
    return profile.replace("+", ".")


def configuration(
    *,
    flags: Mapping[str, Any],
    sharing: str,
    resources: Sequence[Tuple[str, int]],
    rename: bool,
    fail_requests_greater_than_one: bool,
) -> Dict[str, Any]:
    """The file of a node; ``resources`` are empty where nothing is shared."""
    found: Dict[str, Any] = {"version": "v1"}
    if flags:
        found["flags"] = dict(flags)
    if resources:
        found["sharing"] = {
            SECTIONS[sharing]: {
                "renameByDefault": rename,
                "failRequestsGreaterThanOne": fail_requests_greater_than_one,
                "resources": [{"name": name, "replicas": replicas} for name, replicas in resources],
            }
        }
    return found


def text_of(content: Mapping[str, Any]) -> str:
    """As the file is written: JSON, which is YAML too."""
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


# What a key of ours looks like. The name has what the file says, so that another file is another key: the plugin looks
# again when the label of its node changes, and not when the content behind a key does.
KEY = regex(r"gpufleet-[a-z]+(-[0-9]+)?-[0-9a-f]{10}")


def key_of(content: Mapping[str, Any], sharing: str, replicas: int) -> str:
    """The key of a file in the ConfigMap, which is the value of the node's label as well."""
    word = {TIME_SLICING: "timesliced", MPS: "mps"}[sharing] if replicas >= FEWEST_REPLICAS else "whole"
    number = f"-{replicas}" if replicas >= FEWEST_REPLICAS else ""
    digest = hashlib.sha256(text_of(content).encode()).hexdigest()[:10]
    return f"gpufleet-{word}{number}-{digest}"
