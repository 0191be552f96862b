# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG instances of a GPU as facts, asked for in the driver's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from ..._nvidia import mig
from ..._nvidia.driver import NO_PERMISSION
from .fields import ROOT_ONLY, Facts, Fields

if TYPE_CHECKING:
    from ..._nvidia.driver import Gpu


def instances(gpu: Gpu) -> Tuple[Optional[List[Facts]], str]:
    """Every GPU instance in the order of its memory, those without a compute instance too."""
    try:
        listed = mig.instances(gpu, mig.profiles(gpu))
    except gpu.driver.nvml.NVMLError as error:
        if error.value != NO_PERMISSION:
            raise
        return None, ROOT_ONLY
    uuids = _uuids(gpu)
    return [_instance(instance, uuids) for instance in listed], ""


def _instance(instance: mig.NvmlInstance, uuids: Dict[Tuple[int, int], str]) -> Facts:
    fields = Fields(
        gpu_instance=instance.number,
        profile_id=instance.profile.number,
        start=instance.start,
        size=instance.size,
        memory_mib=instance.profile.memory_mib,
        compute_instances=[
            _compute_instance(part, uuids.get((instance.number, part.number))) for part in instance.parts
        ],
    )
    fields.add("profile", instance.profile.name or None, "this driver does not name profiles")
    return fields.facts


def _compute_instance(part: mig.NvmlComputeInstance, uuid: Optional[str]) -> Facts:
    fields = Fields(compute_instance=part.number, slices=part.slices, start=part.start)
    fields.add("uuid", uuid, "the driver lists no device for it")
    return fields.facts


def _uuids(gpu: Gpu) -> Dict[Tuple[int, int], str]:
    """The UUIDs of the MIG devices, by the numbers of GPU instance and compute instance."""
    found: Dict[Tuple[int, int], str] = {}
    for device, instance, compute in mig.devices(gpu):
        uuid = gpu.driver.read("nvmlDeviceGetUUID", device).value
        if instance is not None and compute is not None and uuid is not None:
            found[instance, compute] = uuid
    return found
