# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG profiles and instances of a GPU as NVML lists them, with its handles.

Profiles are asked for by an enumeration that grows with releases, and known by their ids afterwards: they differ.
"""

from __future__ import annotations

from ctypes import byref, c_uint
from math import ceil
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .driver import FUNCTION_NOT_FOUND, NOT_SUPPORTED, RUN_NVML, TOO_OLD, Gpu, is_current
from .errors import GOAL, NoBinding

# nvmlReturn_t
INVALID_ARGUMENT = 2
# More than any release of NVML has.
PROFILES = 64
# More instances, placements and compute instances than any GPU has. The driver's own counts were wrong for the A30.
MOST = 32
MIB, GIB = 1 << 20, 1 << 30
# NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, the only one there is.
SHARED = 0


class NvmlProfile(NamedTuple):
    """What a GPU instance can be. ``kind`` is the number in the enumeration (nvmlGpuInstanceProfile_t), ``number`` the
    id. ``name`` is empty where the driver is too old to name it, ``slices`` are compute slices.
    """

    kind: int
    number: int
    name: str
    slices: int
    most: int
    memory_mib: int


class NvmlComputeInstance(NamedTuple):
    """A compute instance: its compute slices in the GPU instance, and the driver's number."""

    start: int
    slices: int
    number: int
    handle: Any


class NvmlInstance(NamedTuple):
    """A GPU instance: its memory slices, the driver's number, and its compute instances by their start."""

    start: int
    size: int
    number: int
    profile: NvmlProfile
    parts: Tuple[NvmlComputeInstance, ...]
    handle: Any


def profiles(gpu: Gpu) -> Tuple[NvmlProfile, ...]:
    """Those that the driver lists; some drivers list nothing until MIG is on. Raises ``NoBinding`` for one too old."""
    if not is_current(gpu.driver.nvml):
        raise NoBinding(GOAL, cause=TOO_OLD, hint=RUN_NVML, state="too old")
    ask = gpu.driver.nvml.nvmlDeviceGetGpuInstanceProfileInfo

    def listed(version: int) -> List[Tuple[int, Any]]:
        return _enumerated(gpu, lambda kind: ask(gpu.handle, kind, version))

    # Only the second version of the answer has a name, and older drivers do not know it.
    return tuple(
        NvmlProfile(
            kind=kind,
            number=info.id,
            name=_text(getattr(info, "name", "")).replace("MIG ", "", 1),
            slices=info.sliceCount,
            most=info.instanceCount,
            memory_mib=info.memorySizeMB,
        )
        for kind, info in listed(2) or listed(1)
    )


def plain_name(gpu: Gpu, profile: NvmlProfile) -> str:
    """The name without what it has beside slices: the eighths of the memory that it takes, of the GPU's GiB."""
    if profile.name:
        # 1g.10gb+me, 1g.24gb-me
        return profile.name.partition("+")[0].partition("-")[0]
    # As go-nvlib has it.
    total = gpu.driver.nvml.nvmlDeviceGetMemoryInfo(gpu.handle).total
    gigabytes = ceil(profile.memory_mib * MIB * 8 / total) * ceil(total / GIB) / 8
    return f"{profile.slices}g.{int(gigabytes + 0.5)}gb"


def placements(gpu: Gpu, profile: NvmlProfile) -> Optional[Tuple[Tuple[int, int], ...]]:
    """Where an instance may lie, whatever there is now: first memory slice and size. None: the driver is too old."""
    nvml = gpu.driver.nvml
    ask = nvml.nvmlDeviceGetGpuInstancePossiblePlacements
    try:
        places = _array(nvml.c_nvmlGpuInstancePlacement_t, ask, gpu.handle, profile.number)
    except nvml.NVMLError as error:
        if error.value != FUNCTION_NOT_FOUND:
            raise
        return None
    return tuple(sorted((place.start, place.size) for place in places))


def instances(gpu: Gpu, known: Sequence[NvmlProfile]) -> Tuple[NvmlInstance, ...]:
    """Every instance of a GPU whose MIG mode is on, by its start, those without a compute instance too."""
    nvml = gpu.driver.nvml
    found: List[NvmlInstance] = []
    for profile in known:
        slices: Dict[int, int] = {}
        for handle in _array(nvml.c_nvmlGpuInstance_t, nvml.nvmlDeviceGetGpuInstances, gpu.handle, profile.number):
            slices = slices or compute_profiles(gpu, handle)
            info = nvml.nvmlGpuInstanceGetInfo(handle)
            place = info.placement
            found.append(NvmlInstance(place.start, place.size, info.id, profile, _parts(nvml, handle, slices), handle))
    return tuple(sorted(found, key=lambda listed: listed[:3]))


def devices(gpu: Gpu) -> Iterator[Tuple[Any, Optional[int], Optional[int]]]:
    """Every MIG device: its handle, and the numbers of its GPU instance and its compute instance."""
    read = gpu.driver.read
    for index in range(gpu.read("nvmlDeviceGetMaxMigDeviceCount").value or 0):
        handle = gpu.read("nvmlDeviceGetMigDeviceHandleByIndex", index).value
        if handle is not None:
            instance = read("nvmlDeviceGetGpuInstanceId", handle).value
            yield handle, instance, read("nvmlDeviceGetComputeInstanceId", handle).value


def compute_profiles(gpu: Gpu, instance: Any) -> Dict[int, int]:
    """The slices of every compute profile of a GPU instance by its id, the plain ones first."""
    ask = gpu.driver.nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def listed(version: int) -> List[Tuple[int, Any]]:
        return _enumerated(gpu, lambda kind: ask(instance, kind, SHARED, version))

    return {info.id: info.sliceCount for _kind, info in listed(2) or listed(1)}


def _parts(nvml: Any, instance: Any, slices: Mapping[int, int]) -> Tuple[NvmlComputeInstance, ...]:
    found = []
    for profile, count in slices.items():
        for handle in _array(nvml.c_nvmlComputeInstance_t, nvml.nvmlGpuInstanceGetComputeInstances, instance, profile):
            info = nvml.nvmlComputeInstanceGetInfo_v2(handle)
            found.append(NvmlComputeInstance(info.placement.start, count, info.id, handle))
    return tuple(sorted(found, key=lambda part: part[:3]))


def _enumerated(gpu: Gpu, ask: Callable[[int], Any]) -> List[Tuple[int, Any]]:
    """What there is of an enumeration: the driver refuses what this GPU lacks, and in another way what nobody has."""
    found = []
    for number in range(PROFILES):
        try:
            found.append((number, ask(number)))
        except gpu.driver.nvml.NVMLError as error:
            if error.value in (INVALID_ARGUMENT, FUNCTION_NOT_FOUND):
                break
            if error.value != NOT_SUPPORTED:
                raise
    return found


def _array(kind: Any, ask: Callable[..., Any], *arguments: Any) -> List[Any]:
    """What a function puts into an array, and counts."""
    room, count = (kind * MOST)(), c_uint(MOST)
    ask(*arguments, room, byref(count))
    return list(room[: count.value])


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
