# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the NVIDIA driver says, asked in its own process: the driver itself, and for each GPU its state and its health.

The meaning of the numbers is that of nvml.h (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple

from ..._linux import cpulist
from ..._nvidia import affinity, fabric
from ..._nvidia.gpus import COMPUTE_MODES
from . import nvlink
from .fields import Facts, Fields

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Gpu

MIB = 1024 * 1024
NO_INSTANCE = 0xFFFFFFFF

ARCHITECTURES = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
FIRST_ARCHITECTURE = 2
BRANDS = {2: "tesla", 5: "geforce", 12: "quadro_rtx", 13: "nvidia_rtx", 14: "nvidia", 15: "geforce_rtx"}
ADDRESSING_MODES = {0: "none", 1: "hmm", 2: "ats"}
VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
GPU_IDLE = 0x1
# An H200 has P0 and P2, both with all clocks of its cores: in P2 only the memory is slower.
LAST_STATE_OF_WORK = 2
# By bit, the lowest first.
THROTTLE_REASONS = (
    *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown"),
    *("hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting", "board_limit", "reliability"),
)
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


def ask(driver: Driver, parts: Collection[str]) -> Facts:
    """A question: ``driver`` and ``gpus``, of which each has what the ``parts`` need, in the driver's order."""
    return {
        "driver": _driver(driver) if "driver" in parts else {},
        "gpus": [_gpu(gpu, parts) for gpu in driver.gpus()],
    }


def _driver(driver: Driver) -> Facts:
    ask = _Asker(driver.read)
    ask("version", "nvmlSystemGetDriverVersion")
    ask("nvml_version", "nvmlSystemGetNVMLVersion")
    ask("cuda_version", "nvmlSystemGetCudaDriverVersion_v2", convert=lambda n: f"{n // 1000}.{n % 1000 // 10}")
    ask("confidential_computing", "nvmlSystemGetConfComputeState", convert=lambda state: bool(state.ccFeature))
    return ask.fields.facts


def _gpu(gpu: Gpu, parts: Collection[str]) -> Facts:
    """Identity, and ``state``, ``place`` and ``health`` where they are wanted and the GPU is not lost."""
    who = gpu.identity
    facts: Facts = {
        "index": who.index,
        "uuid": who.uuid,
        "pci_address": who.pci_address,
        "model": who.model,
        "lost": who.lost,
    }
    if who.lost:
        return facts
    facts["idle"] = _is_idle(gpu)
    facts["minor"] = gpu.read("nvmlDeviceGetMinorNumber").value
    facts["persistence"] = gpu.persistence_mode().value
    facts["pci_id"] = who.pci_ids[0]
    facts["pci_subsystem_id"] = who.pci_ids[1][len(who.pci_ids[0]) + 1 :]
    if "gpus" in parts:
        facts["state"] = _state(gpu)
    if "topology" in parts:
        told = affinity.read(gpu)
        facts["place"] = {
            "numa_node": told.own_node,
            "near_nodes": list(told.memory_nodes),
            "cpus": cpulist.render(told.cpus),
        }
    if "health" in parts:
        facts["health"] = _health(gpu)
    return facts


def _is_idle(gpu: Gpu) -> bool:
    """Whether the GPU has its clocks down because it has nothing to do."""
    reasons = gpu.read("nvmlDeviceGetCurrentClocksThrottleReasons").value or 0
    return bool(reasons & GPU_IDLE) or (gpu.read("nvmlDeviceGetPerformanceState").value or 0) > LAST_STATE_OF_WORK


def _state(gpu: Gpu) -> Facts:
    ask = _Asker(gpu.read)
    ask("serial", "nvmlDeviceGetSerial")
    ask("board_part_number", "nvmlDeviceGetBoardPartNumber")
    ask("brand", "nvmlDeviceGetBrand", convert=_word(BRANDS))
    ask("architecture", "nvmlDeviceGetArchitecture", convert=_word(dict(enumerate(ARCHITECTURES, FIRST_ARCHITECTURE))))
    ask("cuda_capability", "nvmlDeviceGetCudaComputeCapability", convert=lambda pair: f"{pair[0]}.{pair[1]}")
    ask("minor", "nvmlDeviceGetMinorNumber")
    ask("persistence", "nvmlDeviceGetPersistenceMode", convert=bool)
    ask("compute_mode", "nvmlDeviceGetComputeMode", convert=_word(dict(enumerate(COMPUTE_MODES))))
    ask("addressing_mode", "nvmlDeviceGetAddressingMode", convert=_word(ADDRESSING_MODES))
    ask("virtualization_mode", "nvmlDeviceGetVirtualizationMode", convert=_word(VIRTUALIZATION_MODES))
    ask("temperature_celsius", "nvmlDeviceGetTemperature", 0)
    ask("performance_state", "nvmlDeviceGetPerformanceState", convert=lambda number: f"P{number}")
    ask("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", convert=_throttling)
    ask("vbios", "nvmlDeviceGetVbiosVersion")
    ask("inforom", "nvmlDeviceGetInforomImageVersion")
    ask("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", convert=_text)
    ask("mig", "nvmlDeviceGetMigMode", convert=lambda pair: _mig(gpu, pair))
    ask("ecc", "nvmlDeviceGetEccMode", convert=lambda pair: {"current": bool(pair[0]), "pending": bool(pair[1])})
    ask.group("memory", _memory, gpu)
    ask.group("clocks", _clocks, gpu)
    ask.group("power", _power, gpu)
    ask.group("processes", _processes, gpu)
    return ask.fields.facts


def _memory(gpu: Gpu) -> Tuple[Facts, str]:
    ask = _Asker(gpu.read)
    # The first version of the call counts what the driver keeps for itself as used.
    answer = gpu.read("nvmlDeviceGetMemoryInfo", getattr(gpu.driver.nvml, "nvmlMemory_v2", None))
    if answer.value is None:
        answer = gpu.read("nvmlDeviceGetMemoryInfo")
    for name in ("total", "used", "reserved"):
        value = getattr(answer.value, name, None)
        ask.fields.add(f"{name}_mib", None if value is None else value // MIB, answer.lacking or "an older driver")
    return ask.fields.facts, ""


def _clocks(gpu: Gpu) -> Tuple[Facts, str]:
    ask = _Asker(gpu.read)
    for name, number in CLOCKS.items():
        ask(f"{name}_mhz", "nvmlDeviceGetClockInfo", number)
    for name, number in CLOCKS.items():
        ask(f"max_{name}_mhz", "nvmlDeviceGetMaxClockInfo", number)
    ask.fields.lack("NVML cannot tell", "locked")
    return ask.fields.facts, ""


def _power(gpu: Gpu) -> Tuple[Facts, str]:
    ask = _Asker(gpu.read)
    ask("draw_watts", "nvmlDeviceGetPowerUsage", convert=_watts)
    ask("limit_watts", "nvmlDeviceGetPowerManagementLimit", convert=_watts)
    ask("enforced_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", convert=_watts)
    ask("default_limit_watts", "nvmlDeviceGetPowerManagementDefaultLimit", convert=_watts)
    ask("min_limit_watts", "nvmlDeviceGetPowerManagementLimitConstraints", convert=lambda pair: _watts(pair[0]))
    ask("max_limit_watts", "nvmlDeviceGetPowerManagementLimitConstraints", convert=lambda pair: _watts(pair[1]))
    return ask.fields.facts, ""


def _mig(gpu: Gpu, mode: List[int]) -> Facts:
    fields = Fields(current=bool(mode[0]), pending=bool(mode[1]))
    if mode[0]:
        from .mig import instances

        fields.add("instances", *instances(gpu))
    else:
        fields.add("instances", [])
    return fields.facts


def _processes(gpu: Gpu) -> Tuple[Optional[List[Facts]], str]:
    """Those of all kinds that the driver lists. A GPU without one kind, such as MPS, has none of it."""
    found: Dict[int, Facts] = {}
    lacking: Dict[str, str] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        function = f"nvmlDeviceGet{kind}RunningProcesses"
        answer = gpu.read(f"{function}_v3")
        if answer.value is None:
            # Drivers before R510 know only this version.
            older = gpu.read(f"{function}_v2")
            answer = answer if older.value is None else older
        if answer.value is None:
            lacking[kind] = answer.lacking
        for process in answer.value or ():
            known = found.setdefault(process.pid, _process(gpu, process))
            known["types"].append({"MPSCompute": "mps"}.get(kind, kind.lower()))
    if "Compute" in lacking and not found:
        return None, lacking["Compute"]
    return [found[pid] for pid in sorted(found)], ""


def _process(gpu: Gpu, process: Any) -> Facts:
    name = gpu.driver.read("nvmlSystemGetProcessName", process.pid)
    fields = Fields(pid=process.pid, types=[])
    fields.add("name", name.value, name.lacking)
    memory = getattr(process, "usedGpuMemory", None)
    fields.add("memory_mib", None if memory is None else memory // MIB, "the driver does not report it")
    for field in ("gpuInstanceId", "computeInstanceId"):
        number = getattr(process, field, NO_INSTANCE)
        key = "gpu_instance" if field.startswith("gpu") else "compute_instance"
        fields.add(key, None if number in (None, NO_INSTANCE) else number, "it has the whole GPU")
    return fields.facts


def _health(gpu: Gpu) -> Facts:
    ask = _Asker(gpu.read)
    for period, counter in (("volatile", 0), ("aggregate", 1)):
        for name, kind in (("corrected", 0), ("uncorrected", 1)):
            ask(f"ecc_{period}_{name}", "nvmlDeviceGetTotalEccErrors", kind, counter)
    ask("remapped_rows", "nvmlDeviceGetRemappedRows", convert=_remapped)
    ask("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", convert=bool)
    ask("pcie_replays", "nvmlDeviceGetPcieReplayCounter")
    ask("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", convert=_throttling)
    ask("mig", "nvmlDeviceGetMigMode", convert=lambda pair: bool(pair[0]))
    ask.group("nvlinks", nvlink.gather, gpu)
    ask.group("fabric", _fabric, gpu)
    return ask.fields.facts


def _fabric(gpu: Gpu) -> Tuple[Optional[Facts], str]:
    answer = fabric.read(gpu)
    found = answer.value
    if found is None:
        return None, answer.lacking
    return {
        "state": found.state_name,
        "status": found.status,
        "cluster_uuid": str(uuid.UUID(bytes=found.cluster)),
        "clique": found.clique,
        "ready": found.is_ready(gpu.identity.pci_ids),
        "health": list(found.faults),
    }, ""


class _Asker:
    """Fields from calls of the driver; what goes wrong with one of them makes that one null, and says so."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self.fields = Fields()

    def __call__(
        self, name: str, function: str, *arguments: Any, convert: Optional[Callable[[Any], Any]] = None
    ) -> None:
        def one() -> Tuple[Any, str]:
            answer = self._read(function, *arguments)
            value = answer.value
            return value if value is None or convert is None else convert(value), answer.lacking

        self.group(name, one)

    def group(self, name: str, question: Callable[..., Tuple[Any, str]], *arguments: Any) -> None:
        """A field by a question of its own."""
        try:
            self.fields.add(name, *question(*arguments))
        except Exception as error:
            self.fields.add(name, None, f"{type(error).__name__}: {error}")


def _word(words: Mapping[int, str]) -> Callable[[int], str]:
    return lambda number: words.get(number, f"unknown ({number})")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _throttling(mask: int) -> List[str]:
    return [word for bit, word in enumerate(THROTTLE_REASONS) if mask >> bit & 1]


def _remapped(values: Tuple[int, int, int, int]) -> Facts:
    correctable, uncorrectable, pending, failure = values
    return {
        "correctable": correctable,
        "uncorrectable": uncorrectable,
        "pending": bool(pending),
        "failure": bool(failure),
    }
