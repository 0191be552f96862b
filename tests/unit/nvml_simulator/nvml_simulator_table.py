# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every function that the NVML simulator exports: how to call it through nvidia-ml-py, and what comes back."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_uint
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import pynvml as nvml
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    compute_instances,
    compute_placements,
    create,
    gpu,
    instances,
    placements,
)

NOT_SUPPORTED = nvml.NVML_ERROR_NOT_SUPPORTED
INVALID_ARGUMENT = nvml.NVML_ERROR_INVALID_ARGUMENT
VERSION_MISMATCH = nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


class Bench:
    """An HGX H100 with MIG on GPU 1: one 3g instance, and in it one compute instance of 2 slices and one of 1."""

    def __init__(self) -> None:
        self.gpu = gpu(0)
        self.peer = gpu(2)
        self.mig = gpu(1)
        nvml.nvmlDeviceSetMigMode(self.mig, 1)
        self.mig = gpu(1)
        self.gi = create(self.mig, 9)
        nvml.nvmlGpuInstanceCreateComputeInstance(self.gi, 1)
        self.ci = nvml.nvmlGpuInstanceCreateComputeInstance(self.gi, 0)
        self.device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.mig, 0)


class Error(NamedTuple):
    """The function refuses with this error."""

    code: int


class OneOf(NamedTuple):
    values: Tuple[Any, ...]


Call = Callable[[Bench], Any]


def raw(name: str, *arguments: Any) -> int:
    """Call a function that pynvml does not wrap, or wraps without showing what comes back."""
    code = getattr(nvml.nvmlLib, name)(*arguments)
    if code:
        raise nvml.NVMLError(code)
    return int(code)


def number(name: str, *before: Any) -> int:
    value = c_uint()
    raw(name, *before, byref(value))
    return value.value


def text(name: str, *before: Any) -> str:
    room = ctypes.create_string_buffer(96)
    raw(name, *before, room, c_uint(96))
    return room.value.decode()


def struct(made: Any, call: Callable[[Any], Any]) -> Any:
    call(made)
    return made


def handle(name: str, *before: Any) -> Any:
    found = nvml.c_nvmlDevice_t()
    raw(name, *before, byref(found))
    return found


def pci(name: str, device: Any) -> Any:
    return struct(nvml.nvmlPciInfo_t(), lambda info: raw(name, device, byref(info)))


def field(device: Any, number_of_field: int) -> Any:
    (value,) = nvml.nvmlDeviceGetFieldValues(device, [number_of_field])
    return value


DEVICE = nvml.c_nvmlDevice_t
UUID = r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
BUS_ID = r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0"
VERSION = r"\d+(\.\d+)+"
BOOLEAN = OneOf((0, 1))
DONE = OneOf((None, 0))

# What a GPU for data centres refuses whatever it is asked with.
REFUSED = (
    *("nvmlDeviceGetClockOffsets", "nvmlDeviceGetClkMonStatus", "nvmlDeviceGetPowerMizerMode_v1"),
    *("nvmlDeviceGetCoolerInfo", "nvmlDeviceGetHostname_v1"),
    *(f"nvmlDevice{verb}NvLinkUtilizationControl" for verb in ("Get", "Set")),
    *(f"nvmlDevice{verb}NvLinkUtilizationCounter" for verb in ("Get", "Freeze", "Reset")),
    *("nvmlDeviceGetNvLinkInfo", "nvmlDeviceGetNvlinkBwMode", "nvmlDeviceGetNvlinkSupportedBwModes"),
    *("nvmlDeviceGetDramEncryptionMode", "nvmlDeviceGetConfComputeGpuAttestationReport"),
    *(f"nvmlDeviceGet{what}Vgpus" for what in ("Supported", "Creatable", "Active")),
    *(f"nvmlDeviceGetVgpu{what}" for what in ("Utilization", "ProcessUtilization", "Metadata")),
    *(f"nvmlDeviceGetVgpu{what}" for what in ("Capabilities", "HeterogeneousMode")),
    *(f"nvmlDeviceGetVgpuScheduler{what}" for what in ("Capabilities", "Log", "State")),
    "nvmlDeviceGetPgpuMetadataString",
    *(f"nvmlDeviceGetGridLicensableFeatures{version}" for version in ("", "_v2", "_v3")),
    *(f"nvmlDeviceWorkloadPowerProfileGet{what}Profiles{more}" for what, more in (("", "Info"), ("Current", ""))),
)

# Symbol -> how to call it, and the type, the pattern of the text, the value, the struct or the error that comes back.
# A list is a list of them.
ROWS: Dict[str, List[Tuple[Call, Any]]] = {
    # Library and system
    "nvmlInit": [(lambda on: raw("nvmlInit"), 0)],
    "nvmlInit_v2": [(lambda on: raw("nvmlInit_v2"), 0)],
    "nvmlInitWithFlags": [(lambda on: nvml.nvmlInitWithFlags(0), None)],
    "nvmlShutdown": [(lambda on: raw("nvmlShutdown"), 0)],
    "nvmlErrorString": [(lambda on: nvml.nvmlErrorString(nvml.NVML_ERROR_IN_USE), r"\w.*")],
    "nvmlSystemGetDriverVersion": [(lambda on: nvml.nvmlSystemGetDriverVersion(), VERSION)],
    "nvmlSystemGetDriverBranch": [
        (lambda on: nvml.nvmlSystemGetDriverBranch(), nvml.c_nvmlSystemDriverBranchInfo_v1_t),
    ],
    "nvmlSystemGetNVMLVersion": [(lambda on: nvml.nvmlSystemGetNVMLVersion(), VERSION)],
    "nvmlSystemGetCudaDriverVersion": [(lambda on: nvml.nvmlSystemGetCudaDriverVersion(), int)],
    "nvmlSystemGetCudaDriverVersion_v2": [(lambda on: nvml.nvmlSystemGetCudaDriverVersion_v2(), int)],
    "nvmlSystemGetProcessName": [(lambda on: nvml.nvmlSystemGetProcessName(os.getpid()), str)],
    "nvmlSystemGetConfComputeState": [
        (lambda on: nvml.nvmlSystemGetConfComputeState(), nvml.c_nvmlConfComputeSystemState_t),
    ],
    "nvmlSystemGetConfComputeCapabilities": [
        (lambda on: nvml.nvmlSystemGetConfComputeCapabilities(), nvml.c_nvmlConfComputeSystemCaps_t),
    ],
    "nvmlSystemGetConfComputeGpusReadyState": [(lambda on: nvml.nvmlSystemGetConfComputeGpusReadyState(), int)],
    "nvmlSystemSetConfComputeGpusReadyState": [
        (lambda on: nvml.nvmlSystemSetConfComputeGpusReadyState(1), Error(NOT_SUPPORTED)),
    ],
    "nvmlSystemGetConfComputeSettings": [
        (
            lambda on: nvml.nvmlSystemGetConfComputeSettings(byref(nvml.c_nvmlSystemConfComputeSettings_v1_t())),
            0,
        ),
    ],
    "nvmlSystemGetHicVersion": [(lambda on: nvml.nvmlSystemGetHicVersion(), [])],
    "nvmlGetExcludedDeviceCount": [(lambda on: nvml.nvmlGetExcludedDeviceCount(), 0)],
    "nvmlGetExcludedDeviceInfoByIndex": [
        (lambda on: nvml.nvmlGetExcludedDeviceInfoByIndex(0), Error(INVALID_ARGUMENT)),
    ],
    "nvmlSystemGetTopologyGpuSet": [(lambda on: nvml.nvmlSystemGetTopologyGpuSet(0), [DEVICE])],
    "nvmlUnitGetCount": [(lambda on: nvml.nvmlUnitGetCount(), 0)],
    "nvmlUnitGetHandleByIndex": [(lambda on: nvml.nvmlUnitGetHandleByIndex(0), Error(INVALID_ARGUMENT))],
    # Finding devices
    "nvmlDeviceGetCount": [(lambda on: number("nvmlDeviceGetCount"), 8)],
    "nvmlDeviceGetCount_v2": [(lambda on: nvml.nvmlDeviceGetCount(), 8)],
    "nvmlDeviceGetHandleByIndex": [(lambda on: handle("nvmlDeviceGetHandleByIndex", 7), DEVICE)],
    "nvmlDeviceGetHandleByIndex_v2": [
        (lambda on: nvml.nvmlDeviceGetHandleByIndex(7), DEVICE),
        (lambda on: nvml.nvmlDeviceGetHandleByIndex(8), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetHandleByUUID": [
        (lambda on: nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(on.gpu)), DEVICE),
        (lambda on: nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(on.device)), DEVICE),
        (lambda on: nvml.nvmlDeviceGetHandleByUUID("GPU-0"), Error(nvml.NVML_ERROR_NOT_FOUND)),
    ],
    "nvmlDeviceGetHandleByUUIDV": [
        (
            lambda on: nvml.nvmlDeviceGetHandleByUUIDV(
                nvml.nvmlDeviceGetUUID(on.gpu).encode(), nvml.NVML_UUID_TYPE_ASCII
            ),
            DEVICE,
        ),
        (
            lambda on: nvml.nvmlDeviceGetHandleByUUIDV(
                bytes.fromhex(nvml.nvmlDeviceGetUUID(on.gpu)[4:].replace("-", "")), nvml.NVML_UUID_TYPE_BINARY
            ),
            DEVICE,
        ),
        (
            lambda on: nvml.nvmlDeviceGetHandleByUUIDV(b"GPU-0", nvml.NVML_UUID_TYPE_ASCII),
            Error(nvml.NVML_ERROR_NOT_FOUND),
        ),
    ],
    "nvmlDeviceGetHandleBySerial": [
        (lambda on: nvml.nvmlDeviceGetHandleBySerial(nvml.nvmlDeviceGetSerial(on.gpu)), DEVICE),
        (lambda on: nvml.nvmlDeviceGetHandleBySerial("none"), Error(nvml.NVML_ERROR_NOT_FOUND)),
    ],
    "nvmlDeviceGetHandleByPciBusId": [
        (lambda on: handle("nvmlDeviceGetHandleByPciBusId", nvml.nvmlDeviceGetPciInfo(on.gpu).busId.encode()), DEVICE),
    ],
    "nvmlDeviceGetHandleByPciBusId_v2": [
        (lambda on: nvml.nvmlDeviceGetHandleByPciBusId(nvml.nvmlDeviceGetPciInfo(on.gpu).busId), DEVICE),
        (lambda on: nvml.nvmlDeviceGetHandleByPciBusId("00000000:FF:1F.0"), Error(nvml.NVML_ERROR_NOT_FOUND)),
        (lambda on: nvml.nvmlDeviceGetHandleByPciBusId("no address"), Error(INVALID_ARGUMENT)),
    ],
    # Identity
    "nvmlDeviceGetName": [(lambda on: nvml.nvmlDeviceGetName(on.gpu), "NVIDIA H100 80GB HBM3")],
    "nvmlDeviceGetBrand": [(lambda on: nvml.nvmlDeviceGetBrand(on.gpu), nvml.NVML_BRAND_NVIDIA)],
    "nvmlDeviceGetArchitecture": [(lambda on: nvml.nvmlDeviceGetArchitecture(on.gpu), nvml.NVML_DEVICE_ARCH_HOPPER)],
    "nvmlDeviceGetIndex": [(lambda on: nvml.nvmlDeviceGetIndex(on.peer), 2)],
    "nvmlDeviceGetSerial": [(lambda on: nvml.nvmlDeviceGetSerial(on.gpu), r"\d{13}")],
    "nvmlDeviceGetUUID": [
        (lambda on: nvml.nvmlDeviceGetUUID(on.gpu), UUID),
        (lambda on: nvml.nvmlDeviceGetUUID(on.device), UUID.replace("GPU", "MIG")),
    ],
    "nvmlDeviceGetMinorNumber": [(lambda on: nvml.nvmlDeviceGetMinorNumber(on.gpu), int)],
    "nvmlDeviceGetModuleId": [(lambda on: nvml.nvmlDeviceGetModuleId(on.gpu), int)],
    "nvmlDeviceGetBoardId": [(lambda on: nvml.nvmlDeviceGetBoardId(on.gpu), int)],
    "nvmlDeviceGetMultiGpuBoard": [(lambda on: nvml.nvmlDeviceGetMultiGpuBoard(on.gpu), 0)],
    "nvmlDeviceOnSameBoard": [(lambda on: nvml.nvmlDeviceOnSameBoard(on.gpu, on.peer), 0)],
    "nvmlDeviceGetBoardPartNumber": [(lambda on: nvml.nvmlDeviceGetBoardPartNumber(on.gpu), r"[\w-]+")],
    "nvmlDeviceGetVbiosVersion": [(lambda on: nvml.nvmlDeviceGetVbiosVersion(on.gpu), r"[0-9A-F.]{14}")],
    "nvmlDeviceGetInforomImageVersion": [(lambda on: nvml.nvmlDeviceGetInforomImageVersion(on.gpu), str)],
    "nvmlDeviceGetInforomVersion": [
        (lambda on: nvml.nvmlDeviceGetInforomVersion(on.gpu, nvml.NVML_INFOROM_OEM), str),
        (lambda on: nvml.nvmlDeviceGetInforomVersion(on.gpu, 99), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetInforomConfigurationChecksum": [
        (lambda on: nvml.nvmlDeviceGetInforomConfigurationChecksum(on.gpu), int),
    ],
    "nvmlDeviceValidateInforom": [(lambda on: nvml.nvmlDeviceValidateInforom(on.gpu), DONE)],
    "nvmlDeviceGetGspFirmwareVersion": [(lambda on: nvml.nvmlDeviceGetGspFirmwareVersion(on.gpu).decode(), VERSION)],
    "nvmlDeviceGetGspFirmwareMode": [
        (lambda on: raw("nvmlDeviceGetGspFirmwareMode", on.gpu, byref(c_uint()), byref(c_uint())), 0),
    ],
    "nvmlDeviceGetPciInfo_v3": [
        (lambda on: nvml.nvmlDeviceGetPciInfo(on.gpu), nvml.nvmlPciInfo_t),
        (lambda on: nvml.nvmlDeviceGetPciInfo(on.gpu).busId, BUS_ID),
        (lambda on: nvml.nvmlDeviceGetPciInfo(on.gpu).pciDeviceId, 0x233010DE),
    ],
    "nvmlDeviceGetPciInfo_v2": [(lambda on: pci("nvmlDeviceGetPciInfo_v2", on.gpu).pciSubSystemId, 0x16C110DE)],
    "nvmlDeviceGetPciInfo": [(lambda on: pci("nvmlDeviceGetPciInfo", on.gpu).pciDeviceId, 0x233010DE)],
    "nvmlDeviceGetPciInfoExt": [
        (
            lambda on: (
                struct(
                    nvml.nvmlPciInfoExt_v1_t(version=nvml.nvmlPciInfoExt_v1),
                    lambda info: nvml.nvmlDeviceGetPciInfoExt(on.gpu, byref(info)),
                ).baseClass
            ),
            3,
        ),
    ],
    "nvmlDeviceGetCudaComputeCapability": [(lambda on: nvml.nvmlDeviceGetCudaComputeCapability(on.gpu), (9, 0))],
    "nvmlDeviceGetBridgeChipInfo": [(lambda on: nvml.nvmlDeviceGetBridgeChipInfo(on.gpu), Error(NOT_SUPPORTED))],
    "nvmlDeviceGetC2cModeInfoV": [(lambda on: nvml.nvmlDeviceGetC2cModeInfoV(on.gpu).isC2cEnabled, 0)],
    "nvmlDeviceGetCapabilities": [
        (lambda on: nvml.nvmlDeviceGetCapabilities(on.gpu, byref(nvml.c_nvmlDeviceCapabilities_v1_t())), 0),
    ],
    "nvmlDeviceGetGpuOperationMode": [(lambda on: nvml.nvmlDeviceGetGpuOperationMode(on.gpu), Error(NOT_SUPPORTED))],
    "nvmlDeviceGetConfComputeMemSizeInfo": [
        (lambda on: nvml.nvmlDeviceGetConfComputeMemSizeInfo(on.gpu), nvml.c_nvmlConfComputeMemSizeInfo_t),
    ],
    "nvmlGpmQueryDeviceSupport": [(lambda on: nvml.nvmlGpmQueryDeviceSupport(on.gpu).isSupportedDevice, 1)],
    "nvmlDeviceGetNumGpuCores": [(lambda on: nvml.nvmlDeviceGetNumGpuCores(on.gpu), int)],
    "nvmlDeviceGetMemoryBusWidth": [(lambda on: nvml.nvmlDeviceGetMemoryBusWidth(on.gpu), int)],
    "nvmlDeviceGetBusType": [(lambda on: nvml.nvmlDeviceGetBusType(on.gpu), nvml.NVML_BUS_TYPE_PCIE)],
    "nvmlDeviceGetIrqNum": [(lambda on: nvml.nvmlDeviceGetIrqNum(on.gpu), int)],
    "nvmlDeviceGetVirtualizationMode": [(lambda on: nvml.nvmlDeviceGetVirtualizationMode(on.gpu), 0)],
    "nvmlDeviceGetHostVgpuMode": [(lambda on: nvml.nvmlDeviceGetHostVgpuMode(on.gpu), Error(NOT_SUPPORTED))],
    "nvmlDeviceGetGridLicensableFeatures_v4": [
        (lambda on: nvml.nvmlDeviceGetGridLicensableFeatures(on.gpu).isGridLicenseSupported, 0),
    ],
    "nvmlDeviceGetPlatformInfo": [
        (
            lambda on: raw("nvmlDeviceGetPlatformInfo", on.gpu, byref(nvml.c_nvmlPlatformInfo_v2_t())),
            Error(NOT_SUPPORTED),
        ),
    ],
    "nvmlDeviceGetDisplayMode": [(lambda on: nvml.nvmlDeviceGetDisplayMode(on.gpu), BOOLEAN)],
    "nvmlDeviceGetDisplayActive": [(lambda on: nvml.nvmlDeviceGetDisplayActive(on.gpu), 0)],
    # Memory
    "nvmlDeviceGetMemoryInfo": [(lambda on: nvml.nvmlDeviceGetMemoryInfo(on.gpu), nvml.c_nvmlMemory_t)],
    "nvmlDeviceGetMemoryInfo_v2": [
        (lambda on: nvml.nvmlDeviceGetMemoryInfo(on.gpu, version=nvml.nvmlMemory_v2), nvml.c_nvmlMemory_v2_t),
    ],
    "nvmlDeviceGetBAR1MemoryInfo": [(lambda on: nvml.nvmlDeviceGetBAR1MemoryInfo(on.gpu), nvml.c_nvmlBAR1Memory_t)],
    # Settings
    "nvmlDeviceGetPersistenceMode": [(lambda on: nvml.nvmlDeviceGetPersistenceMode(on.gpu), 0)],
    "nvmlDeviceSetPersistenceMode": [
        (lambda on: nvml.nvmlDeviceSetPersistenceMode(on.gpu, 1), None),
        (lambda on: nvml.nvmlDeviceSetPersistenceMode(on.gpu, 2), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetComputeMode": [(lambda on: nvml.nvmlDeviceGetComputeMode(on.gpu), nvml.NVML_COMPUTEMODE_DEFAULT)],
    "nvmlDeviceSetComputeMode": [
        (lambda on: nvml.nvmlDeviceSetComputeMode(on.peer, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS), None),
        (lambda on: nvml.nvmlDeviceSetComputeMode(on.peer, 9), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetEccMode": [(lambda on: nvml.nvmlDeviceGetEccMode(on.gpu), [int, int])],
    "nvmlDeviceGetDefaultEccMode": [(lambda on: nvml.nvmlDeviceGetDefaultEccMode(on.gpu), [1])],
    "nvmlDeviceSetEccMode": [
        (lambda on: nvml.nvmlDeviceSetEccMode(on.gpu, 1), None),
        (lambda on: nvml.nvmlDeviceSetEccMode(on.gpu, 2), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetPowerManagementMode": [(lambda on: nvml.nvmlDeviceGetPowerManagementMode(on.gpu), 1)],
    "nvmlDeviceGetPowerManagementLimit": [(lambda on: nvml.nvmlDeviceGetPowerManagementLimit(on.gpu), 700_000)],
    "nvmlDeviceSetPowerManagementLimit": [
        (lambda on: nvml.nvmlDeviceSetPowerManagementLimit(on.peer, 500_000), None),
        (lambda on: nvml.nvmlDeviceSetPowerManagementLimit(on.peer, 700_001), Error(INVALID_ARGUMENT)),
        (lambda on: nvml.nvmlDeviceSetPowerManagementLimit(on.peer, 1), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceSetPowerManagementLimit_v2": [
        (lambda on: nvml.nvmlDeviceSetPowerManagementLimit_v2(on.peer, nvml.NVML_POWER_SCOPE_GPU, 500_000), 0),
    ],
    "nvmlDeviceGetPowerManagementLimitConstraints": [
        (lambda on: nvml.nvmlDeviceGetPowerManagementLimitConstraints(on.gpu), [200_000, 700_000]),
    ],
    "nvmlDeviceGetPowerManagementDefaultLimit": [
        (lambda on: nvml.nvmlDeviceGetPowerManagementDefaultLimit(on.gpu), 700_000),
    ],
    "nvmlDeviceGetEnforcedPowerLimit": [(lambda on: nvml.nvmlDeviceGetEnforcedPowerLimit(on.gpu), 700_000)],
    "nvmlDeviceGetPowerUsage": [(lambda on: nvml.nvmlDeviceGetPowerUsage(on.gpu), int)],
    "nvmlDeviceGetTotalEnergyConsumption": [(lambda on: nvml.nvmlDeviceGetTotalEnergyConsumption(on.gpu), int)],
    "nvmlDeviceSetGpuLockedClocks": [
        (lambda on: nvml.nvmlDeviceSetGpuLockedClocks(on.peer, 1000, 1500), None),
        (lambda on: nvml.nvmlDeviceSetGpuLockedClocks(on.peer, 1500, 1000), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceResetGpuLockedClocks": [(lambda on: nvml.nvmlDeviceResetGpuLockedClocks(on.peer), None)],
    "nvmlDeviceSetMemoryLockedClocks": [(lambda on: nvml.nvmlDeviceSetMemoryLockedClocks(on.peer, 1593, 2619), None)],
    "nvmlDeviceResetMemoryLockedClocks": [(lambda on: nvml.nvmlDeviceResetMemoryLockedClocks(on.peer), None)],
    "nvmlDeviceGetClockInfo": [
        (lambda on: nvml.nvmlDeviceGetClockInfo(on.gpu, nvml.NVML_CLOCK_SM), int),
        (lambda on: nvml.nvmlDeviceGetClockInfo(on.gpu, 9), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetMaxClockInfo": [(lambda on: nvml.nvmlDeviceGetMaxClockInfo(on.gpu, nvml.NVML_CLOCK_SM), 1980)],
    "nvmlDeviceGetMaxCustomerBoostClock": [
        (lambda on: nvml.nvmlDeviceGetMaxCustomerBoostClock(on.gpu, nvml.NVML_CLOCK_GRAPHICS), 1980),
    ],
    "nvmlDeviceGetClock": [
        (
            lambda on: nvml.nvmlDeviceGetClock(on.gpu, nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_ID_CURRENT),
            int,
        ),
    ],
    "nvmlDeviceGetApplicationsClock": [
        (lambda on: nvml.nvmlDeviceGetApplicationsClock(on.gpu, nvml.NVML_CLOCK_MEM), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetDefaultApplicationsClock": [
        (lambda on: nvml.nvmlDeviceGetDefaultApplicationsClock(on.gpu, nvml.NVML_CLOCK_MEM), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceSetApplicationsClocks": [
        (lambda on: nvml.nvmlDeviceSetApplicationsClocks(on.peer, 2619, 1500), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceResetApplicationsClocks": [
        (lambda on: nvml.nvmlDeviceResetApplicationsClocks(on.peer), Error(NOT_SUPPORTED))
    ],
    "nvmlDeviceGetSupportedMemoryClocks": [(lambda on: nvml.nvmlDeviceGetSupportedMemoryClocks(on.gpu), [int])],
    "nvmlDeviceGetSupportedGraphicsClocks": [
        (
            lambda on: nvml.nvmlDeviceGetSupportedGraphicsClocks(
                on.gpu, nvml.nvmlDeviceGetSupportedMemoryClocks(on.gpu)[0]
            ),
            [int],
        ),
        (lambda on: nvml.nvmlDeviceGetSupportedGraphicsClocks(on.gpu, 1), Error(nvml.NVML_ERROR_NOT_FOUND)),
    ],
    "nvmlDeviceGetAutoBoostedClocksEnabled": [
        (lambda on: nvml.nvmlDeviceGetAutoBoostedClocksEnabled(on.gpu), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetAccountingMode": [(lambda on: nvml.nvmlDeviceGetAccountingMode(on.gpu), 0)],
    "nvmlDeviceSetAccountingMode": [(lambda on: nvml.nvmlDeviceSetAccountingMode(on.peer, 1), DONE)],
    "nvmlDeviceGetAccountingBufferSize": [(lambda on: nvml.nvmlDeviceGetAccountingBufferSize(on.gpu), int)],
    "nvmlDeviceGetAccountingPids": [(lambda on: nvml.nvmlDeviceGetAccountingPids(on.gpu), list)],
    "nvmlDeviceClearAccountingPids": [(lambda on: nvml.nvmlDeviceClearAccountingPids(on.gpu), DONE)],
    "nvmlDeviceGetDriverModel": [
        (lambda on: raw("nvmlDeviceGetDriverModel", on.gpu, byref(c_uint()), byref(c_uint())), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetDriverModel_v2": [(lambda on: nvml.nvmlDeviceGetDriverModel(on.gpu), Error(NOT_SUPPORTED))],
    # Readings and health
    "nvmlDeviceGetTemperature": [
        (lambda on: nvml.nvmlDeviceGetTemperature(on.gpu, nvml.NVML_TEMPERATURE_GPU), int),
        (lambda on: nvml.nvmlDeviceGetTemperature(on.gpu, 9), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetTemperatureV": [(lambda on: nvml.nvmlDeviceGetTemperatureV(on.gpu, nvml.NVML_TEMPERATURE_GPU), int)],
    "nvmlDeviceGetTemperatureThreshold": [
        (lambda on: nvml.nvmlDeviceGetTemperatureThreshold(on.gpu, nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN), int),
    ],
    "nvmlDeviceGetFanSpeed": [(lambda on: nvml.nvmlDeviceGetFanSpeed(on.gpu), Error(NOT_SUPPORTED))],
    "nvmlDeviceGetFanSpeed_v2": [
        (lambda on: nvml.nvmlDeviceGetFanSpeed_v2(on.gpu, 0), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetMarginTemperature": [(lambda on: nvml.nvmlDeviceGetMarginTemperature(on.gpu), int)],
    "nvmlDeviceGetNumFans": [(lambda on: nvml.nvmlDeviceGetNumFans(on.gpu), OneOf((0, NOT_SUPPORTED)))],
    "nvmlDeviceGetPerformanceState": [(lambda on: nvml.nvmlDeviceGetPerformanceState(on.gpu), int)],
    "nvmlDeviceGetPowerState": [(lambda on: nvml.nvmlDeviceGetPowerState(on.gpu), int)],
    "nvmlDeviceGetUtilizationRates": [
        (lambda on: nvml.nvmlDeviceGetUtilizationRates(on.gpu), nvml.c_nvmlUtilization_t),
        (lambda on: nvml.nvmlDeviceGetUtilizationRates(on.mig), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetProcessUtilization": [
        (lambda on: number("nvmlDeviceGetProcessUtilization", on.gpu, None), Error(nvml.NVML_ERROR_NOT_FOUND)),
        (lambda on: number("nvmlDeviceGetProcessUtilization", on.mig, None), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetEncoderUtilization": [(lambda on: nvml.nvmlDeviceGetEncoderUtilization(on.gpu), [int, int])],
    "nvmlDeviceGetDecoderUtilization": [(lambda on: nvml.nvmlDeviceGetDecoderUtilization(on.gpu), [int, int])],
    "nvmlDeviceGetJpgUtilization": [(lambda on: nvml.nvmlDeviceGetJpgUtilization(on.gpu), [int, int])],
    "nvmlDeviceGetOfaUtilization": [(lambda on: nvml.nvmlDeviceGetOfaUtilization(on.gpu), [int, int])],
    "nvmlDeviceGetCurrentClocksThrottleReasons": [
        (lambda on: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(on.gpu), int),
    ],
    "nvmlDeviceGetCurrentClocksEventReasons": [
        (lambda on: nvml.nvmlDeviceGetCurrentClocksEventReasons(on.gpu), int),
    ],
    "nvmlDeviceGetSupportedClocksThrottleReasons": [
        (lambda on: nvml.nvmlDeviceGetSupportedClocksThrottleReasons(on.gpu), int),
    ],
    "nvmlDeviceGetSupportedClocksEventReasons": [
        (lambda on: nvml.nvmlDeviceGetSupportedClocksEventReasons(on.gpu), int),
    ],
    "nvmlDeviceGetTotalEccErrors": [
        (
            lambda on: nvml.nvmlDeviceGetTotalEccErrors(
                on.gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            0,
        ),
        (lambda on: nvml.nvmlDeviceGetTotalEccErrors(on.gpu, 7, 0), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetMemoryErrorCounter": [
        (
            lambda on: nvml.nvmlDeviceGetMemoryErrorCounter(
                on.gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_AGGREGATE_ECC, nvml.NVML_MEMORY_LOCATION_DRAM
            ),
            0,
        ),
    ],
    "nvmlDeviceGetDetailedEccErrors": [
        (lambda on: nvml.nvmlDeviceGetDetailedEccErrors(on.gpu, 0, 0), nvml.c_nvmlEccErrorCounts_t),
    ],
    "nvmlDeviceClearEccErrorCounts": [
        (lambda on: nvml.nvmlDeviceClearEccErrorCounts(on.gpu, nvml.NVML_VOLATILE_ECC), DONE),
    ],
    "nvmlDeviceGetRetiredPages": [
        (
            lambda on: nvml.nvmlDeviceGetRetiredPages(on.gpu, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
            Error(NOT_SUPPORTED),
        ),
    ],
    "nvmlDeviceGetRetiredPages_v2": [
        (
            lambda on: nvml.nvmlDeviceGetRetiredPages_v2(on.gpu, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
            Error(NOT_SUPPORTED),
        ),
    ],
    "nvmlDeviceGetRetiredPagesPendingStatus": [
        (lambda on: nvml.nvmlDeviceGetRetiredPagesPendingStatus(on.gpu), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetRemappedRows": [(lambda on: nvml.nvmlDeviceGetRemappedRows(on.gpu), (0, 0, 0, 0))],
    "nvmlDeviceGetRowRemapperHistogram": [
        (lambda on: nvml.nvmlDeviceGetRowRemapperHistogram(on.gpu), nvml.c_nvmlRowRemapperHistogramValues),
    ],
    "nvmlDeviceGetFieldValues": [
        (lambda on: field(on.gpu, nvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED).value.uiVal, 1),
        (lambda on: field(on.gpu, nvml.NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE).value.uiVal, 1),
        (lambda on: field(on.gpu, nvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED).nvmlReturn, 0),
        (lambda on: field(on.gpu, nvml.NVML_FI_DEV_NVLINK_LINK_COUNT).value.uiVal, 18),
        (lambda on: field(on.gpu, nvml.NVML_FI_DEV_REMAPPED_FAILURE).value.uiVal, 0),
        (lambda on: field(on.gpu, nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER).nvmlReturn, 0),
        (lambda on: field(on.gpu, 9999).nvmlReturn, OneOf((INVALID_ARGUMENT, NOT_SUPPORTED))),
    ],
    "nvmlDeviceClearFieldValues": [(lambda on: nvml.nvmlDeviceClearFieldValues(on.gpu, [1]), object)],
    "nvmlDeviceGetSramEccErrorStatus": [
        (
            lambda on: nvml.nvmlDeviceGetSramEccErrorStatus(on.gpu, byref(nvml.c_nvmlEccSramErrorStatus_v1_t())),
            DONE,
        ),
    ],
    "nvmlDeviceGetViolationStatus": [
        (
            lambda on: nvml.nvmlDeviceGetViolationStatus(on.gpu, nvml.NVML_PERF_POLICY_POWER),
            nvml.c_nvmlViolationTime_t,
        ),
        (lambda on: nvml.nvmlDeviceGetViolationStatus(on.gpu, 99), Error(INVALID_ARGUMENT)),
    ],
    # Processes
    **{
        f"nvmlDeviceGet{what}RunningProcesses": [
            (lambda on, call=f"nvmlDeviceGet{what}RunningProcesses": raw(call, on.gpu, byref(c_uint(0)), None), 0)
        ]
        for what in ("Compute", "Graphics", "MPSCompute")
    },
    "nvmlDeviceGetRunningProcessDetailList": [
        (
            lambda on: nvml.nvmlDeviceGetRunningProcessDetailList(
                on.gpu, nvml.nvmlProcessDetailList_v1, nvml.NVML_PROCESS_MODE_COMPUTE
            ),
            [],
        ),
        (lambda on: nvml.nvmlDeviceGetRunningProcessDetailList(on.gpu, 1, 0), Error(VERSION_MISMATCH)),
    ],
    **{
        f"nvmlDeviceGet{what}RunningProcesses_v{version}": [
            (lambda on, call=f"nvmlDeviceGet{what}RunningProcesses_v{version}": getattr(nvml, call)(on.gpu), [])
        ]
        for what in ("Compute", "Graphics", "MPSCompute")
        for version in (2, 3)
    },
    # Events, of which none ever comes
    "nvmlDeviceGetSupportedEventTypes": [(lambda on: nvml.nvmlDeviceGetSupportedEventTypes(on.gpu), int)],
    "nvmlEventSetCreate": [(lambda on: nvml.nvmlEventSetCreate(), nvml.c_nvmlEventSet_t)],
    "nvmlDeviceRegisterEvents": [
        (
            lambda on: nvml.nvmlDeviceRegisterEvents(
                on.gpu, nvml.nvmlEventTypeXidCriticalError, nvml.nvmlEventSetCreate()
            ),
            DONE,
        ),
        (lambda on: nvml.nvmlDeviceRegisterEvents(on.gpu, 0, nvml.nvmlEventSetCreate()), Error(INVALID_ARGUMENT)),
    ],
    "nvmlEventSetWait_v2": [
        (lambda on: nvml.nvmlEventSetWait_v2(nvml.nvmlEventSetCreate(), 1), Error(nvml.NVML_ERROR_TIMEOUT)),
    ],
    "nvmlEventSetWait": [
        (
            lambda on: raw("nvmlEventSetWait", nvml.nvmlEventSetCreate(), byref(nvml.c_nvmlEventData_t()), c_uint(1)),
            Error(nvml.NVML_ERROR_TIMEOUT),
        ),
    ],
    "nvmlEventSetFree": [(lambda on: nvml.nvmlEventSetFree(nvml.nvmlEventSetCreate()), DONE)],
    # Links and places
    "nvmlDeviceGetCurrPcieLinkGeneration": [(lambda on: nvml.nvmlDeviceGetCurrPcieLinkGeneration(on.gpu), 5)],
    "nvmlDeviceGetMaxPcieLinkGeneration": [(lambda on: nvml.nvmlDeviceGetMaxPcieLinkGeneration(on.gpu), 5)],
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": [(lambda on: nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(on.gpu), 5)],
    "nvmlDeviceGetCurrPcieLinkWidth": [(lambda on: nvml.nvmlDeviceGetCurrPcieLinkWidth(on.gpu), 16)],
    "nvmlDeviceGetMaxPcieLinkWidth": [(lambda on: nvml.nvmlDeviceGetMaxPcieLinkWidth(on.gpu), 16)],
    "nvmlDeviceGetPcieLinkMaxSpeed": [(lambda on: nvml.nvmlDeviceGetPcieLinkMaxSpeed(on.gpu), int)],
    "nvmlDeviceGetPcieSpeed": [(lambda on: nvml.nvmlDeviceGetPcieSpeed(on.gpu), int)],
    "nvmlDeviceGetPcieThroughput": [(lambda on: nvml.nvmlDeviceGetPcieThroughput(on.gpu, 0), int)],
    "nvmlDeviceGetPcieReplayCounter": [(lambda on: nvml.nvmlDeviceGetPcieReplayCounter(on.gpu), 0)],
    "nvmlDeviceGetNvLinkState": [
        (lambda on: nvml.nvmlDeviceGetNvLinkState(on.gpu, 17), nvml.NVML_FEATURE_ENABLED),
        (lambda on: nvml.nvmlDeviceGetNvLinkState(on.gpu, 18), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetNvLinkVersion": [(lambda on: nvml.nvmlDeviceGetNvLinkVersion(on.gpu, 0), int)],
    "nvmlDeviceGetNvLinkCapability": [
        (lambda on: nvml.nvmlDeviceGetNvLinkCapability(on.gpu, 0, nvml.NVML_NVLINK_CAP_P2P_SUPPORTED), 1),
    ],
    "nvmlDeviceGetNvLinkErrorCounter": [
        (lambda on: nvml.nvmlDeviceGetNvLinkErrorCounter(on.gpu, 0, nvml.NVML_NVLINK_ERROR_DL_REPLAY), 0),
    ],
    "nvmlDeviceGetNvLinkRemotePciInfo": [
        (
            lambda on: struct(
                nvml.nvmlPciInfo_t(), lambda info: raw("nvmlDeviceGetNvLinkRemotePciInfo", on.gpu, 0, byref(info))
            ),
            nvml.nvmlPciInfo_t,
        ),
    ],
    "nvmlDeviceResetNvLinkErrorCounters": [
        (lambda on: nvml.nvmlDeviceResetNvLinkErrorCounters(on.peer, 0), DONE),
    ],
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": [
        (lambda on: nvml.nvmlDeviceGetNvLinkRemotePciInfo(on.gpu, 0), nvml.nvmlPciInfo_t),
    ],
    "nvmlDeviceGetNvLinkRemoteDeviceType": [
        (lambda on: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(on.gpu, 0), nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH),
    ],
    "nvmlDeviceGetNumaNodeId": [(lambda on: nvml.nvmlDeviceGetNumaNodeId(on.gpu), Error(NOT_SUPPORTED))],
    "nvmlDeviceGetCpuAffinity": [(lambda on: list(nvml.nvmlDeviceGetCpuAffinity(on.gpu, 4)), [int])],
    "nvmlDeviceGetCpuAffinityWithinScope": [
        (
            lambda on: list(nvml.nvmlDeviceGetCpuAffinityWithinScope(on.gpu, 4, nvml.NVML_AFFINITY_SCOPE_NODE)),
            [int],
        ),
        (lambda on: nvml.nvmlDeviceGetCpuAffinityWithinScope(on.gpu, 4, 9), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetMemoryAffinity": [
        (lambda on: list(nvml.nvmlDeviceGetMemoryAffinity(on.gpu, 1, nvml.NVML_AFFINITY_SCOPE_NODE)), [1]),
    ],
    "nvmlDeviceSetCpuAffinity": [(lambda on: nvml.nvmlDeviceSetCpuAffinity(on.gpu), DONE)],
    "nvmlDeviceClearCpuAffinity": [(lambda on: nvml.nvmlDeviceClearCpuAffinity(on.gpu), DONE)],
    "nvmlDeviceGetTopologyCommonAncestor": [
        (lambda on: nvml.nvmlDeviceGetTopologyCommonAncestor(on.gpu, gpu(7)), nvml.NVML_TOPOLOGY_SYSTEM),
    ],
    "nvmlDeviceGetTopologyNearestGpus": [
        (lambda on: nvml.nvmlDeviceGetTopologyNearestGpus(on.gpu, nvml.NVML_TOPOLOGY_SYSTEM), [DEVICE]),
    ],
    "nvmlDeviceGetP2PStatus": [
        (lambda on: nvml.nvmlDeviceGetP2PStatus(on.gpu, on.peer, nvml.NVML_P2P_CAPS_INDEX_NVLINK), 0),
    ],
    "nvmlDeviceGetAddressingMode": [(lambda on: nvml.nvmlDeviceGetAddressingMode(on.gpu), int)],
    "nvmlDeviceGetGpuFabricInfo": [
        (
            lambda on: (
                struct(
                    nvml.c_nvmlGpuFabricInfo_t(), lambda info: nvml.nvmlDeviceGetGpuFabricInfo(on.gpu, byref(info))
                ).state
            ),
            nvml.NVML_GPU_FABRIC_STATE_COMPLETED,
        ),
    ],
    "nvmlDeviceGetGpuFabricInfoV": [
        (
            lambda on: (
                struct(
                    nvml.c_nvmlGpuFabricInfo_v2_t(), lambda info: nvml.nvmlDeviceGetGpuFabricInfoV(on.gpu, byref(info))
                ).state
            ),
            nvml.NVML_GPU_FABRIC_STATE_COMPLETED,
        ),
        (
            lambda on: (
                struct(
                    nvml.c_nvmlGpuFabricInfo_v3_t(), lambda info: nvml.nvmlDeviceGetGpuFabricInfoV(on.gpu, byref(info))
                ).healthSummary
            ),
            int,
        ),
    ],
    # MIG
    "nvmlDeviceGetMigMode": [
        (lambda on: nvml.nvmlDeviceGetMigMode(on.mig), [1, 1]),
        (lambda on: nvml.nvmlDeviceGetMigMode(on.gpu), [0, 0]),
    ],
    "nvmlDeviceSetMigMode": [
        (lambda on: nvml.nvmlDeviceSetMigMode(on.gpu, 0), 0),
        (lambda on: nvml.nvmlDeviceSetMigMode(on.gpu, 2), Error(INVALID_ARGUMENT)),
        (lambda on: nvml.nvmlDeviceSetMigMode(on.device, 1), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetGpuInstanceProfileInfo": [
        (
            lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfo(on.mig, 0, version=1),
            nvml.c_nvmlGpuInstanceProfileInfo_t,
        ),
        (lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfo(on.mig, 0, version=1).id, 19),
    ],
    "nvmlDeviceGetGpuInstanceProfileInfoV": [
        (lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfo(on.mig, 0), nvml.c_nvmlGpuInstanceProfileInfo_v2_t),
        (lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfo(on.mig, 5), Error(NOT_SUPPORTED)),
        (lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfo(on.mig, 99), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV": [
        (lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfoById(on.mig, 19).id, 19),
        (lambda on: nvml.nvmlDeviceGetGpuInstanceProfileInfoById(on.mig, 99), OneOf((INVALID_ARGUMENT, NOT_SUPPORTED))),
    ],
    "nvmlDeviceGetGpuInstanceRemainingCapacity": [
        (lambda on: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(on.mig, 9), 1),
    ],
    "nvmlDeviceGetGpuInstancePossiblePlacements": [
        (
            lambda on: (
                struct(
                    (nvml.c_nvmlGpuInstancePlacement_t * 8)(),
                    lambda room: raw("nvmlDeviceGetGpuInstancePossiblePlacements", on.mig, 9, room, byref(c_uint(8))),
                )[1].start
            ),
            4,
        ),
    ],
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": [(lambda on: placements(on.mig, 9), [(0, 4), (4, 4)])],
    "nvmlDeviceCreateGpuInstance": [
        (lambda on: create(on.mig, 14), nvml.c_nvmlGpuInstance_t),
        (lambda on: create(on.gpu, 14), Error(NOT_SUPPORTED)),
        (lambda on: create(on.mig, 77), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceCreateGpuInstanceWithPlacement": [
        (lambda on: create(on.mig, 19, (0, 2)), Error(INVALID_ARGUMENT)),
        (lambda on: create(on.mig, 9, (4, 4)), Error(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES)),
    ],
    "nvmlGpuInstanceDestroy": [(lambda on: nvml.nvmlGpuInstanceDestroy(on.gi), Error(nvml.NVML_ERROR_IN_USE))],
    "nvmlDeviceGetGpuInstances": [(lambda on: instances(on.mig, 9), [nvml.c_nvmlGpuInstance_t])],
    "nvmlDeviceGetGpuInstanceById": [
        (
            lambda on: nvml.nvmlDeviceGetGpuInstanceById(on.mig, nvml.nvmlGpuInstanceGetInfo(on.gi).id),
            nvml.c_nvmlGpuInstance_t,
        ),
        (lambda on: nvml.nvmlDeviceGetGpuInstanceById(on.mig, 14), Error(nvml.NVML_ERROR_NOT_FOUND)),
    ],
    "nvmlGpuInstanceGetInfo": [
        (lambda on: nvml.nvmlGpuInstanceGetInfo(on.gi), nvml.c_nvmlGpuInstanceInfo_t),
        (lambda on: nvml.nvmlGpuInstanceGetInfo(on.gi).profileId, 9),
    ],
    "nvmlGpuInstanceGetComputeInstanceProfileInfo": [
        (
            lambda on: nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(on.gi, 0, 0, version=1),
            nvml.c_nvmlComputeInstanceProfileInfo_t,
        ),
    ],
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": [
        (
            lambda on: nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(on.gi, 0, 0),
            nvml.c_nvmlComputeInstanceProfileInfo_v2_t,
        ),
        (lambda on: nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(on.gi, 4, 0), Error(NOT_SUPPORTED)),
        (lambda on: nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(on.gi, 99, 0), Error(INVALID_ARGUMENT)),
        (lambda on: nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(on.gi, 0, 9), Error(INVALID_ARGUMENT)),
    ],
    "nvmlGpuInstanceGetComputeInstanceRemainingCapacity": [
        (lambda on: nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(on.gi, 0), 0),
    ],
    "nvmlGpuInstanceGetComputeInstancePossiblePlacements": [
        (lambda on: compute_placements(on.gi, 0), [(0, 1), (1, 1), (2, 1)]),
    ],
    "nvmlGpuInstanceCreateComputeInstance": [
        (
            lambda on: nvml.nvmlGpuInstanceCreateComputeInstance(on.gi, 0),
            Error(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES),
        ),
    ],
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement": [
        (
            lambda on: nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(
                on.gi, 0, byref(nvml.c_nvmlComputeInstancePlacement_t(0, 1))
            ),
            Error(nvml.NVML_ERROR_INSUFFICIENT_RESOURCES),
        ),
        (
            lambda on: nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(
                on.gi, 0, byref(nvml.c_nvmlComputeInstancePlacement_t(0, 2))
            ),
            Error(INVALID_ARGUMENT),
        ),
    ],
    "nvmlComputeInstanceDestroy": [(lambda on: nvml.nvmlComputeInstanceDestroy(on.gi), Error(INVALID_ARGUMENT))],
    "nvmlGpuInstanceGetComputeInstances": [
        (lambda on: compute_instances(on.gi, 0), [nvml.c_nvmlComputeInstance_t]),
    ],
    "nvmlGpuInstanceGetComputeInstanceById": [
        (lambda on: nvml.nvmlGpuInstanceGetComputeInstanceById(on.gi, 0), nvml.c_nvmlComputeInstance_t),
        (lambda on: nvml.nvmlGpuInstanceGetComputeInstanceById(on.gi, 7), Error(nvml.NVML_ERROR_NOT_FOUND)),
    ],
    "nvmlComputeInstanceGetInfo": [
        (
            lambda on: (
                struct(
                    nvml.c_nvmlComputeInstanceInfo_t(),
                    lambda info: raw("nvmlComputeInstanceGetInfo", on.ci, byref(info)),
                ).profileId
            ),
            0,
        ),
    ],
    "nvmlComputeInstanceGetInfo_v2": [
        (lambda on: nvml.nvmlComputeInstanceGetInfo_v2(on.ci), nvml.c_nvmlComputeInstanceInfo_t),
    ],
    "nvmlDeviceIsMigDeviceHandle": [
        (lambda on: nvml.nvmlDeviceIsMigDeviceHandle(on.device).value, 1),
        (lambda on: nvml.nvmlDeviceIsMigDeviceHandle(on.mig).value, 0),
    ],
    "nvmlDeviceGetGpuInstanceId": [
        (lambda on: nvml.nvmlDeviceGetGpuInstanceId(on.device), int),
        (lambda on: nvml.nvmlDeviceGetGpuInstanceId(on.mig), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetComputeInstanceId": [(lambda on: nvml.nvmlDeviceGetComputeInstanceId(on.device), 0)],
    "nvmlDeviceGetMaxMigDeviceCount": [
        (lambda on: nvml.nvmlDeviceGetMaxMigDeviceCount(on.mig), 7),
    ],
    "nvmlDeviceGetMigDeviceHandleByIndex": [
        (lambda on: nvml.nvmlDeviceGetMigDeviceHandleByIndex(on.mig, 1), DEVICE),
        (lambda on: nvml.nvmlDeviceGetMigDeviceHandleByIndex(on.mig, 6), Error(nvml.NVML_ERROR_NOT_FOUND)),
        (lambda on: nvml.nvmlDeviceGetMigDeviceHandleByIndex(on.mig, 7), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": [
        (
            lambda on: nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(on.device)),
            UUID,
        ),
        (lambda on: nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(on.mig), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetAttributes": [
        (
            lambda on: (
                struct(
                    nvml.c_nvmlDeviceAttributes(), lambda room: raw("nvmlDeviceGetAttributes", on.device, byref(room))
                ).gpuInstanceSliceCount
            ),
            3,
        ),
    ],
    "nvmlDeviceGetAttributes_v2": [
        (lambda on: nvml.nvmlDeviceGetAttributes_v2(on.device), nvml.c_nvmlDeviceAttributes),
        (lambda on: nvml.nvmlDeviceGetAttributes_v2(on.device).computeInstanceSliceCount, 2),
        (lambda on: nvml.nvmlDeviceGetAttributes_v2(on.gpu), OneOf((NOT_SUPPORTED, INVALID_ARGUMENT))),
    ],
    # What monitors walk over
    "nvmlDeviceGetSamples": [
        (
            lambda on: nvml.nvmlDeviceGetSamples(on.gpu, nvml.NVML_TOTAL_POWER_SAMPLES, 0)[1][0].sampleValue.uiVal,
            71_000,
        ),
        (lambda on: nvml.nvmlDeviceGetSamples(on.mig, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0), Error(NOT_SUPPORTED)),
        (lambda on: nvml.nvmlDeviceGetSamples(on.gpu, 99, 0), Error(INVALID_ARGUMENT)),
        (
            lambda on: nvml.nvmlDeviceGetSamples(on.gpu, nvml.NVML_MEMORY_CLK_SAMPLES, 2**63),
            Error(nvml.NVML_ERROR_NOT_FOUND),
        ),
    ],
    "nvmlDeviceGetProcessesUtilizationInfo": [
        (lambda on: nvml.nvmlDeviceGetProcessesUtilizationInfo(on.gpu, 0), Error(nvml.NVML_ERROR_NOT_FOUND)),
    ],
    "nvmlDeviceGetAccountingStats": [
        (lambda on: nvml.nvmlDeviceGetAccountingStats(on.gpu, 1), OneOf((nvml.NVML_ERROR_NOT_FOUND, NOT_SUPPORTED))),
    ],
    "nvmlDeviceGetEncoderCapacity": [
        (lambda on: nvml.nvmlDeviceGetEncoderCapacity(on.gpu, 0), 100),
        (lambda on: nvml.nvmlDeviceGetEncoderCapacity(on.gpu, 2), Error(NOT_SUPPORTED)),
        (lambda on: nvml.nvmlDeviceGetEncoderCapacity(on.gpu, 9), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetEncoderStats": [(lambda on: nvml.nvmlDeviceGetEncoderStats(on.gpu), (0, 0, 0))],
    "nvmlDeviceGetEncoderSessions": [(lambda on: nvml.nvmlDeviceGetEncoderSessions(on.gpu), [])],
    "nvmlDeviceGetFBCStats": [(lambda on: nvml.nvmlDeviceGetFBCStats(on.gpu), nvml.c_nvmlFBCStats_t)],
    "nvmlDeviceGetFBCSessions": [(lambda on: nvml.nvmlDeviceGetFBCSessions(on.gpu), [])],
    "nvmlDeviceGetSupportedPerformanceStates": [
        (
            lambda on: nvml.nvmlDeviceGetSupportedPerformanceStates(on.gpu) == [nvml.NVML_PSTATE_2, nvml.NVML_PSTATE_0],
            True,
        ),
    ],
    "nvmlDeviceGetMinMaxClockOfPState": [
        (lambda on: nvml.nvmlDeviceGetMinMaxClockOfPState(on.gpu, nvml.NVML_CLOCK_GRAPHICS, 0), (345, 1980)),
        (lambda on: nvml.nvmlDeviceGetMinMaxClockOfPState(on.gpu, nvml.NVML_CLOCK_MEM, 0), (1593, 2619)),
        (lambda on: nvml.nvmlDeviceGetMinMaxClockOfPState(on.gpu, nvml.NVML_CLOCK_MEM, 5), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetDynamicPstatesInfo": [
        (lambda on: nvml.nvmlDeviceGetDynamicPstatesInfo(on.gpu), nvml.c_nvmlGpuDynamicPstatesInfo_t),
        (lambda on: nvml.nvmlDeviceGetDynamicPstatesInfo(on.mig), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetCurrentClockFreqs": [
        (lambda on: nvml.nvmlDeviceGetCurrentClockFreqs(on.gpu), r"nvclock=345, .* memclock=2619, .*"),
    ],
    "nvmlDeviceGetPerformanceModes": [(lambda on: nvml.nvmlDeviceGetPerformanceModes(on.gpu), r"perf=0, .*")],
    "nvmlDeviceGetThermalSettings": [
        (lambda on: nvml.nvmlDeviceGetThermalSettings(on.gpu, 0)[0].currentTemp, 28),
        (lambda on: nvml.nvmlDeviceGetThermalSettings(on.gpu, 4), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetPowerSource": [(lambda on: nvml.nvmlDeviceGetPowerSource(on.gpu), nvml.NVML_POWER_SOURCE_AC)],
    "nvmlDeviceGetAdaptiveClockInfoStatus": [
        (
            lambda on: nvml.nvmlDeviceGetAdaptiveClockInfoStatus(on.gpu),
            nvml.NVML_ADAPTIVE_CLOCKING_INFO_STATUS_ENABLED,
        ),
    ],
    "nvmlDeviceGetAPIRestriction": [
        (lambda on: nvml.nvmlDeviceGetAPIRestriction(on.gpu, 0), Error(NOT_SUPPORTED)),
        (lambda on: nvml.nvmlDeviceGetAPIRestriction(on.gpu, 1), nvml.NVML_FEATURE_DISABLED),
    ],
    "nvmlDeviceGetMinMaxFanSpeed": [(lambda on: nvml.nvmlDeviceGetMinMaxFanSpeed(on.gpu), Error(INVALID_ARGUMENT))],
    "nvmlDeviceGetFanSpeedRPM": [(lambda on: nvml.nvmlDeviceGetFanSpeedRPM(on.gpu), Error(INVALID_ARGUMENT))],
    "nvmlDeviceGetTargetFanSpeed": [(lambda on: nvml.nvmlDeviceGetTargetFanSpeed(on.gpu, 0), Error(NOT_SUPPORTED))],
    "nvmlDeviceGetFanControlPolicy_v2": [
        (lambda on: nvml.nvmlDeviceGetFanControlPolicy_v2(on.gpu, 0), Error(NOT_SUPPORTED)),
    ],
    "nvmlDeviceGetRepairStatus": [(lambda on: nvml.nvmlDeviceGetRepairStatus(on.gpu), [0, 0])],
    "nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts": [
        (lambda on: raw("nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts", on.gpu, None), Error(INVALID_ARGUMENT)),
    ],
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": [
        (lambda on: number("nvmlDeviceGetUnrepairableMemoryFlag_v1", on.gpu), 0),
    ],
    "nvmlDeviceGetPdi": [(lambda on: nvml.nvmlDeviceGetPdi(on.gpu) != nvml.nvmlDeviceGetPdi(on.peer), True)],
    # As an H200 was recorded to answer
    "nvmlDeviceGetGpcClkVfOffset": [(lambda on: nvml.nvmlDeviceGetGpcClkVfOffset(on.gpu), 0)],
    "nvmlDeviceGetMemClkVfOffset": [(lambda on: nvml.nvmlDeviceGetMemClkVfOffset(on.gpu), 0)],
    "nvmlDeviceGetGpcClkMinMaxVfOffset": [(lambda on: nvml.nvmlDeviceGetGpcClkMinMaxVfOffset(on.gpu), (0, 0))],
    "nvmlDeviceGetMemClkMinMaxVfOffset": [(lambda on: nvml.nvmlDeviceGetMemClkMinMaxVfOffset(on.gpu), (0, 0))],
    "nvmlDeviceGetLastBBXFlushTime": [
        (lambda on: nvml.nvmlDeviceGetLastBBXFlushTime(on.gpu), Error(nvml.NVML_ERROR_NOT_READY)),
    ],
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": [
        (lambda on: nvml.nvmlDeviceGetConfComputeProtectedMemoryUsage(on.gpu).total, 0),
    ],
    "nvmlDeviceGetConfComputeGpuCertificate": [
        (lambda on: nvml.nvmlDeviceGetConfComputeGpuCertificate(on.gpu), Error(nvml.NVML_ERROR_UNKNOWN)),
    ],
    "nvmlSystemGetConfComputeKeyRotationThresholdInfo": [
        (lambda on: nvml.nvmlSystemGetConfComputeKeyRotationThresholdInfo().attackerAdvantage, 60),
    ],
    "nvmlSystemGetNvlinkBwMode": [(lambda on: nvml.nvmlSystemGetNvlinkBwMode(), 0)],
    "nvmlGetVgpuVersion": [(lambda on: nvml.nvmlGetVgpuVersion(), Error(NOT_SUPPORTED))],
    **{
        symbol: [(lambda on, symbol=symbol: raw(symbol, on.gpu, None, None, None, None), Error(NOT_SUPPORTED))]
        for symbol in REFUSED
    },
}
