# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabric of GPUs as the driver tells it, by the simulator and the real nvidia-ml-py."""

from __future__ import annotations

from typing import Any, Tuple

import pynvml
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import fabric
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.errors import LOST
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager import driver
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

WELL = 0x1AA


def field(name: str, value: int) -> int:
    """A field of the mask, by the names that nvml.h has for it."""
    prefix = "NVML_GPU_FABRIC_HEALTH_MASK"
    shift: int = getattr(pynvml, f"{prefix}_SHIFT_{name}")
    width: int = getattr(pynvml, f"{prefix}_WIDTH_{name}")
    assert value <= width
    return value << shift


def value_of(name: str) -> int:
    found: int = getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_{name}")
    return found


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DEGRADED_BW", "DEGRADED_BW_TRUE", "degraded bandwidth"),
        ("ROUTE_RECOVERY", "ROUTE_RECOVERY_TRUE", "route recovery in progress"),
        ("ROUTE_UNHEALTHY", "ROUTE_UNHEALTHY_TRUE", "unhealthy route"),
        ("ACCESS_TIMEOUT_RECOVERY", "ACCESS_TIMEOUT_RECOVERY_TRUE", "access timeout recovery in progress"),
        ("PARTITION_ASSIGNED", "PARTITION_ASSIGNED_FALSE", "no partition assigned"),
        ("GFM_STATE", "GFM_STATE_DISCONNECTED", "global fabric manager disconnected"),
        *(
            ("INCORRECT_CONFIGURATION", f"INCORRECT_CONFIGURATION_{value}", f"incorrect configuration ({words})")
            for value, words in (
                ("INCORRECT_SYSGUID", "wrong system GUID"),
                ("INCORRECT_CHASSIS_SN", "wrong chassis serial number"),
                ("NO_PARTITION", "no partition"),
                ("INSUFFICIENT_NVLINKS", "too few NVLinks"),
                ("INCOMPATIBLE_GPU_FW", "incompatible GPU firmware"),
                ("INVALID_LOCATION", "wrong location"),
                ("GPU_STATE_INVALID", "GPU in an invalid state"),
            )
        ),
    ],
)
def test_each_field_of_the_mask_has_its_words_by_the_constants_of_nvml_h(name: str, value: str, words: str) -> None:
    assert fabric.faults_of(field(name, value_of(value))) == (words,)


def test_what_is_well_or_not_supported_is_no_fault() -> None:
    assert fabric.faults_of(0) == fabric.faults_of(WELL) == ()
    assert fabric.faults_of(0, pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY) == ()
    assert fabric.faults_of(WELL, pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY) == ("limited capacity",)
    assert fabric.faults_of(WELL & ~0x3 | 0x1, pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY) == (
        "degraded bandwidth",
    )


def readings(make: MakeMachine, kind: str, *changes: Tuple[Any, ...]) -> Any:
    machine = make(kind)
    for change in changes:
        machine.sim("set", *change)
    return machine.host.nvml.ask(driver.read)


def test_an_hgx_is_ready_without_a_uuid_and_its_faults_come_in_words(gpu_machine: MakeMachine) -> None:
    found = readings(
        gpu_machine,
        "hgx-h100-80gb-8",
        ("1", f"fabric_health_mask={WELL & ~0x3 | 0x1}"),
        ("2", "fabric_state=2"),
        ("3", "fabric_status=999"),
        ("4", "fabric_health_summary=3"),
    )
    assert [gpu.reading.state_name for gpu in found[:4]] == ["completed", "completed", "in_progress", "completed"]
    assert [gpu.reading.faults for gpu in found[:5]] == [(), ("degraded bandwidth",), (), (), ("limited capacity",)]
    assert not any(found[0].reading.cluster)
    ready = [gpu.reading.is_ready(gpu.identity.pci_ids) for gpu in found[:4]]
    assert ready == [True, True, False, False]


def test_a_rack_is_ready_only_with_the_uuid_of_its_cluster(gpu_machine: MakeMachine) -> None:
    found = readings(gpu_machine, "gb200-4", ("1", "fabric_cluster_uuid="))
    assert [gpu.reading.is_ready(gpu.identity.pci_ids) for gpu in found[:2]] == [True, False]


@pytest.mark.parametrize("kind", ["hgx-a100-80gb-8", "l40s-1"])
def test_a_gpu_without_a_fabric_that_the_driver_tells_of_has_none(gpu_machine: MakeMachine, kind: str) -> None:
    assert {gpu.reading for gpu in readings(gpu_machine, kind)} == {None}


def test_an_older_driver_and_a_lost_gpu_are_read_as_far_as_they_go(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("hgx-h100-80gb-8")
    machine.sim("hide", "nvmlDeviceGetGpuFabricInfoV")
    machine.sim("set", "5", "lost=1")
    found = machine.host.nvml.ask(driver.read)
    assert found[0].reading is not None
    assert found[0].reading.state_name == "completed"
    assert found[5].reading is None
    assert found[5].identity.lost == LOST
