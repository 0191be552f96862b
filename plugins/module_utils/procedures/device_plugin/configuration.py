# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of the NVIDIA device plugin for a node, and what the node has to offer with it. Pure.

The keys and values are those of api/config/v1 and cmd/nvidia-device-plugin of the plugin, release 0.20. The plugin
reads its file without strictness: it ignores a key that it does not know, and so a misspelt one.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.nearest import nearest
from ..._core.regex import regex
from ..._nvidia.sharing import MPS, TIME_SLICING, capability_of

MIG_STRATEGY = "migStrategy"
NONE, SINGLE, MIXED = "none", "single", "mixed"
# What a value of a flag may be: one of a choice, a list of a choice, or a type.
LISTS = (("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),)
FLAGS: Mapping[str, Any] = {
    MIG_STRATEGY: (NONE, SINGLE, MIXED),
    "failOnInitError": bool,
    "mpsRoot": str,
    "nvidiaDriverRoot": str,
    "nvidiaDevRoot": str,
    "gdrcopyEnabled": bool,
    "gdsEnabled": bool,
    "mofedEnabled": bool,
    "useNodeFeatureAPI": bool,
    "deviceDiscoveryStrategy": ("auto", "nvml", "tegra"),
    "plugin": {
        "passDeviceSpecs": bool,
        "deviceListStrategy": LISTS,
        "deviceIDStrategy": ("uuid", "index"),
        "cdiAnnotationPrefix": str,
        "nvidiaCTKPath": str,
        "containerDriverRoot": str,
        "sharedDevicesAllocationPolicy": ("distributed", "packed"),
    },
    "gfd": {
        "oneshot": bool,
        "noTimestamp": bool,
        "sleepInterval": str,
        "outputFile": str,
        "machineTypeFile": str,
    },
}
# A variable in the DaemonSet, which values of Helm set, beats the file.
ENVIRONMENT: Mapping[str, Tuple[str, ...]] = {
    "MIG_STRATEGY": (MIG_STRATEGY,),
    "FAIL_ON_INIT_ERROR": ("failOnInitError",),
    "MPS_ROOT": ("mpsRoot",),
    "NVIDIA_DRIVER_ROOT": ("nvidiaDriverRoot",),
    "NVIDIA_DEV_ROOT": ("nvidiaDevRoot",),
    "GDRCOPY_ENABLED": ("gdrcopyEnabled",),
    "GDS_ENABLED": ("gdsEnabled",),
    "MOFED_ENABLED": ("mofedEnabled",),
    "DEVICE_DISCOVERY_STRATEGY": ("deviceDiscoveryStrategy",),
    "PASS_DEVICE_SPECS": ("plugin", "passDeviceSpecs"),
    "DEVICE_LIST_STRATEGY": ("plugin", "deviceListStrategy"),
    "DEVICE_ID_STRATEGY": ("plugin", "deviceIDStrategy"),
    "CDI_ANNOTATION_PREFIX": ("plugin", "cdiAnnotationPrefix"),
    "NVIDIA_CTK_PATH": ("plugin", "nvidiaCTKPath"),
    "CONTAINER_DRIVER_ROOT": ("plugin", "containerDriverRoot"),
    "SHARED_DEVICES_ALLOCATION_POLICY": ("plugin", "sharedDevicesAllocationPolicy"),
}

PREFIX = "nvidia.com/"
GPU = f"{PREFIX}gpu"
SHARED = ".shared"
MIG_RESOURCE = f"{PREFIX}mig-"
RESOURCE = regex(r"nvidia\.com/[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
LONGEST_RESOURCE = 63
FEWEST_REPLICAS = 2
# cmd/mps-control-daemon/mps/device.go, where what is called Volta begins with Turing.
MPS_CLIENTS, MPS_CLIENTS_BEFORE, TURING = 48, 16, (7, 5)
# The plugin sends the kubelet its devices in one message, which gRPC takes up to 4 MiB. An entry is a UUID with the
# number of the replica, its health and its NUMA node.
LARGEST_MESSAGE, ENTRY = 4 << 20, 80
SECTIONS = {TIME_SLICING: "timeSlicing", MPS: "mps"}

Gpus = Sequence[Mapping[str, Any]]


def faults_of_flags(flags: Any, schema: Mapping[str, Any], where: str = "flags") -> Iterator[str]:
    """What the plugin would ignore or refuse."""
    if not isinstance(flags, dict):
        yield f"{where} is not a mapping"
        return
    for key, value in flags.items():
        if key not in schema:
            near = nearest(str(key), schema)
            yield f"{where}.{key} is unknown to the plugin, which would ignore it" + (
                f". Did you mean {near}?" if near else ""
            )
            continue
        kind = schema[key]
        if isinstance(kind, dict):
            yield from faults_of_flags(value, kind, f"{where}.{key}")
            continue
        said = _wanted_instead(value, kind)
        if said:
            yield f"{where}.{key} is {json.dumps(value)}, and must be {said}"


def _wanted_instead(value: Any, kind: Any) -> str:
    """What a value must be; empty where it is."""
    if kind is LISTS:
        (choices,) = LISTS
        values = value if isinstance(value, list) else [value]
        right = bool(values) and all(one in choices for one in values)
        return "" if right else f"a list of {', '.join(choices)}"
    if isinstance(kind, tuple):
        return "" if value in kind else f"one of {', '.join(kind)}"
    if kind is bool:
        return "" if isinstance(value, bool) else "true or false"
    return "" if isinstance(value, str) and value else "a string"


def named(resource: str) -> str:
    """The whole name of a resource, as the plugin completes it."""
    return resource if resource.startswith(PREFIX) else f"{PREFIX}{resource}"


def faults_of_resources(resources: Sequence[Tuple[str, int]], *, rename: bool) -> Iterator[str]:
    """Of resources by their whole names, with their replicas."""
    seen = set()
    for name, replicas in resources:
        if not RESOURCE.fullmatch(name) or len(name) > LONGEST_RESOURCE - (len(SHARED) if rename else 0):
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


def offered(gpus: Gpus, strategy: str) -> Dict[str, int]:
    """The resources that the plugin makes of GPUs that nobody shares, and how many of each there are."""
    found: Dict[str, int] = {}
    for gpu in gpus:
        divided = strategy != NONE and is_divided(gpu)
        mixed = strategy == MIXED
        names = [f"{MIG_RESOURCE}{labelled(one)}" if mixed else GPU for one in mig_devices(gpu)] if divided else [GPU]
        for name in names:
            found[name] = found.get(name, 0) + 1
    return found


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
