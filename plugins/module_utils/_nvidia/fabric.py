# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVLink fabric of a GPU as the driver tells it: a part of questions that are asked in its process."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Tuple

from .._core.value import frozen
from .driver import Answer

if TYPE_CHECKING:
    from .driver import Gpu

# nvmlGpuFabricState_t.
NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = range(4)
STATES = {
    NOT_SUPPORTED: "not_supported",
    NOT_STARTED: "not_started",
    IN_PROGRESS: "in_progress",
    COMPLETED: "completed",
}
# Compute nodes of GB200 and GB300 NVL72: their switches are in trays of their own, and only there a cluster has a UUID.
RACK_GPUS = ("2941", "31c2", "31c3")
NO_FABRIC = "not supported by this GPU"

# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: the shift of a field, the value that is a fault, and what that is.
_FLAGS = (
    (0, 1, "degraded bandwidth"),
    (2, 1, "route recovery in progress"),
    (4, 1, "unhealthy route"),
    (6, 1, "access timeout recovery in progress"),
    (12, 2, "no partition assigned"),
    (14, 2, "global fabric manager disconnected"),
)
_FLAG_WIDTH = 0x3
_CONFIGURATION_SHIFT = 8
_CONFIGURATION_WIDTH = 0xF
# NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*; 0 is not supported, 1 is none.
_CONFIGURATIONS = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "wrong location",
    8: "GPU in an invalid state",
}
# NVML_GPU_FABRIC_HEALTH_SUMMARY_*.
_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}


@frozen
class FabricReading:
    """``status`` is an nvmlReturn_t, which counts once the state is completed. ``faults`` are the words of the health.

    ``cluster`` are the 16 bytes of the UUID, all zero where the fabric is one machine.
    """

    state: int
    status: int
    cluster: bytes
    clique: int
    faults: Tuple[str, ...] = ()

    @property
    def state_name(self) -> str:
        return STATES.get(self.state, str(self.state))

    def is_ready(self, pci_ids: Tuple[str, ...]) -> bool:
        """Whether CUDA starts on this GPU, which has these ids (``10de:2330``)."""
        return self.state == COMPLETED and self.status == 0 and (any(self.cluster) or not is_in_rack(pci_ids))


def is_in_rack(pci_ids: Tuple[str, ...]) -> bool:
    """Whether this is a GPU of a compute node whose NVSwitches are elsewhere in the rack."""
    return bool(pci_ids) and pci_ids[0].rpartition(":")[2] in RACK_GPUS


def faults_of(mask: int, summary: int = 0) -> Tuple[str, ...]:
    """What a health mask says is wrong, in words. A summary that says more than the mask is the last of them."""
    found: List[str] = [text for shift, bad, text in _FLAGS if mask >> shift & _FLAG_WIDTH == bad]
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_WIDTH
    if configuration > 1:
        found.append(f"incorrect configuration ({_CONFIGURATIONS.get(configuration, configuration)})")
    if not found and summary in _SUMMARIES:
        found.append(_SUMMARIES[summary])
    return tuple(found)


def read(gpu: Gpu) -> Answer[FabricReading]:
    """The newest form that the driver has: with a summary of the health, with its mask, or without health."""
    import ctypes

    nvml = gpu.driver.nvml
    lacking = NO_FABRIC
    for name, function in (
        ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
    ):
        structure = getattr(nvml, name, None)
        if structure is None:
            continue
        info = structure()
        answer = gpu.read(function, ctypes.byref(info))
        if not answer.lacking:
            if info.state == NOT_SUPPORTED:
                return Answer(None, NO_FABRIC)
            mask, summary = getattr(info, "healthMask", 0), getattr(info, "healthSummary", 0)
            cluster = bytes(info.clusterUuid)
            return Answer(FabricReading(info.state, info.status, cluster, info.cliqueId, faults_of(mask, summary)))
        lacking = answer.lacking
    return Answer(None, lacking)
