# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG instances of a GPU, as the driver lists them. Imported only in the driver's process, where MIG is on."""

from __future__ import annotations

from ctypes import byref, c_uint
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .info_fields import ROOT_ONLY, Facts, Fields

if TYPE_CHECKING:
    from .._host.nvml_driver import Gpu

# Profiles are asked for by an enumeration that grows with releases.
PROFILES = 32
MOST_INSTANCES = 16


def instances(gpu: Gpu) -> Tuple[Optional[List[Facts]], str]:
    """Every GPU instance in the order of its memory, those without a compute instance too."""
    nvml = gpu.driver.nvml
    uuids = _uuids(gpu)
    found: List[Facts] = []
    for number in range(PROFILES):
        profile = gpu.read("nvmlDeviceGetGpuInstanceProfileInfo", number, 2).value
        if profile is None:
            profile = gpu.read("nvmlDeviceGetGpuInstanceProfileInfo", number, 1).value
        if profile is None:
            continue
        room, count = (nvml.c_nvmlGpuInstance_t * MOST_INSTANCES)(), c_uint(MOST_INSTANCES)
        answer = gpu.read("nvmlDeviceGetGpuInstances", profile.id, room, byref(count))
        if answer.lacking == ROOT_ONLY:
            return None, ROOT_ONLY
        if answer.value is not None:
            found.extend(_instance(gpu, handle, profile, uuids) for handle in list(room)[: count.value])
    return sorted(found, key=lambda facts: (facts["start"], facts["gpu_instance"])), ""


def _instance(gpu: Gpu, handle: Any, profile: Any, uuids: Dict[Tuple[int, int], str]) -> Facts:
    nvml = gpu.driver.nvml
    info = nvml.nvmlGpuInstanceGetInfo(handle)
    fields = Fields(
        gpu_instance=info.id,
        profile_id=profile.id,
        start=info.placement.start,
        size=info.placement.size,
        memory_mib=profile.memorySizeMB,
        compute_instances=_compute_instances(gpu, handle, info.id, uuids),
    )
    name = getattr(profile, "name", None)
    text = name.decode() if isinstance(name, bytes) else name
    fields.add("profile", text.replace("MIG ", "", 1) if text else None, "this driver does not name profiles")
    return fields.facts


def _compute_instances(gpu: Gpu, handle: Any, number: int, uuids: Dict[Tuple[int, int], str]) -> List[Facts]:
    nvml = gpu.driver.nvml
    found = []
    for profile in range(PROFILES):
        shared = 0
        info = gpu.driver.read("nvmlGpuInstanceGetComputeInstanceProfileInfo", handle, profile, shared).value
        if info is None:
            continue
        room, count = (nvml.c_nvmlComputeInstance_t * MOST_INSTANCES)(), c_uint(MOST_INSTANCES)
        if gpu.driver.read("nvmlGpuInstanceGetComputeInstances", handle, info.id, room, byref(count)).value is None:
            continue
        for instance in list(room)[: count.value]:
            own = nvml.nvmlComputeInstanceGetInfo_v2(instance)
            fields = Fields(compute_instance=own.id, slices=info.sliceCount, start=own.placement.start)
            fields.add("uuid", uuids.get((number, own.id)), "the driver lists no device for it")
            found.append(fields.facts)
    return sorted(found, key=lambda facts: (facts["start"], facts["compute_instance"]))


def _uuids(gpu: Gpu) -> Dict[Tuple[int, int], str]:
    """The UUIDs of the MIG devices, by the numbers of GPU instance and compute instance."""
    found: Dict[Tuple[int, int], str] = {}
    read = gpu.driver.read
    for index in range(gpu.read("nvmlDeviceGetMaxMigDeviceCount").value or 0):
        device = gpu.read("nvmlDeviceGetMigDeviceHandleByIndex", index).value
        if device is not None:
            instance = read("nvmlDeviceGetGpuInstanceId", device).value
            compute = read("nvmlDeviceGetComputeInstanceId", device).value
            uuid = read("nvmlDeviceGetUUID", device).value
            if instance is not None and compute is not None and uuid is not None:
                found[instance, compute] = uuid
    return found
