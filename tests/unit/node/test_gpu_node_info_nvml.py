# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts that only the driver tells, through the unmodified nvidia-ml-py: none is null that NVML answers somewhere."""

from __future__ import annotations

import os
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import collect
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import nvml as info_nvml
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import Trees, gpu_host
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

A100 = "hgx-a100-80gb-8"
NO_MPS = ("fail", "nvmlDeviceGetMPSComputeRunningProcesses_v3", "NVML_ERROR_NOT_SUPPORTED", 0)
# NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_ERROR_DL_*, NVML_FI_DEV_NVLINK_LINK_COUNT
TOTALS, OF_A_LINK, LINK_COUNT = (38, 52, 59), (161, 162, 163), (91,)


def facts_of(machine: GpuMachine, part: str) -> Dict[str, Any]:
    """What the first GPU has in this part."""
    facts = collect.gather(machine.host, (part,))[part]
    first: Dict[str, Any] = (facts["gpus"] if part == "health" else facts)[0]
    return first


def lack(machine: GpuMachine, *fields: int) -> None:
    machine.sim("set", 0, f"fields_lacking={','.join(map(str, fields))}")


def states(machine: GpuMachine, *, active: int, inactive: int) -> None:
    """Every list of the links has one number for each link that calls answer for."""
    numbers = ["1"] * active + ["0"] * inactive
    zeros = ["0"] * len(numbers)
    errors = (f"nvlink_{name}_errors={','.join(zeros)}" for name in ("replay", "recovery", "crc"))
    machine.sim("set", 0, f"nvlink_state={','.join(numbers)}", *errors)


# --- NVLink -----------------------------------------------------------------------------------------------------------


def test_a_driver_that_answers_for_more_links_than_the_gpu_has_makes_no_gpu_sick(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine(A100)
    states(machine, active=12, inactive=6)
    health = facts_of(machine, "health")
    assert (health["nvlinks"]["total"], health["nvlinks"]["inactive"]) == (12, [])
    assert health["problems"] == []


def test_a_gpu_without_links_has_none_although_calls_answer_for_them(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("l40s-1")
    states(machine, active=0, inactive=18)
    health = facts_of(machine, "health")
    assert health["nvlinks"] is None
    assert health["unavailable"]["nvlinks"] == "this GPU has no NVLinks"


def test_where_the_module_has_the_links_off_it_is_not_the_gpu_that_has_none(gpu_machine: MakeMachine) -> None:
    """As recorded in a virtual machine: NVML says of an H200 SXM that it does not support what asks for links."""
    machine = gpu_machine("h200-141gb-vm-1", files={"/proc/driver/nvidia/params": "EnableMSI: 1\nNvLinkDisable: 1\n"})
    health = facts_of(machine, "health")
    assert health["nvlinks"] is None
    assert health["unavailable"]["nvlinks"] == "the kernel module nvidia was loaded with NVreg_NvLinkDisable=1"
    assert (health["healthy"], health["problems"]) == (True, [])


def test_without_links_and_with_the_module_as_usual_it_is_what_the_driver_says(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("h200-141gb-vm-1", files={"/proc/driver/nvidia/params": "NvLinkDisable: 0\n"})
    assert facts_of(machine, "health")["unavailable"]["nvlinks"] == "not supported by this GPU"


def test_a_link_that_is_down_is_named_among_those_that_the_gpu_has(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine(A100)
    states(machine, active=11, inactive=7)
    health = facts_of(machine, "health")
    assert (health["nvlinks"]["total"], health["nvlinks"]["inactive"]) == (12, [11])
    assert health["problems"] == ["NVLinks 11 are inactive"]


def test_a_driver_that_does_not_count_links_is_asked_for_one_after_the_other(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine(A100)
    lack(machine, *LINK_COUNT)
    assert facts_of(machine, "health")["nvlinks"]["total"] == 12


@pytest.mark.parametrize(
    "lacking", [(), TOTALS, (*TOTALS, *OF_A_LINK)], ids=["totals", "fields of a link", "counters of a link"]
)
def test_errors_of_links_come_from_whoever_tells_them(gpu_machine: MakeMachine, lacking: Any) -> None:
    machine = gpu_machine(A100)
    for name, counts in (("replay", (1, 2)), ("recovery", (10, 20)), ("crc", (100, 200))):
        machine.sim("set", 0, f"nvlink_{name}_errors={','.join(map(str, [*counts, *[0] * 10]))}")
    lack(machine, *lacking)
    links = facts_of(machine, "health")["nvlinks"]
    assert {name: links[f"{name}_errors"] for name in ("replay", "recovery", "crc")} == {
        "replay": 3,
        "recovery": 30,
        "crc": 300,
    }
    assert links["unavailable"] == {}


def test_errors_of_links_that_nobody_tells_are_null_with_the_reason(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine(A100)
    lack(machine, *TOTALS, *OF_A_LINK)
    machine.sim("fail", "nvmlDeviceGetNvLinkErrorCounter", "NVML_ERROR_NOT_SUPPORTED", 0)
    links = facts_of(machine, "health")["nvlinks"]
    assert links["total"] == 12
    assert links["unavailable"] == dict.fromkeys(
        ("crc_errors", "replay_errors", "recovery_errors"), "not supported by this GPU"
    )


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_gpu_without_mps_has_the_processes_that_the_driver_tells(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine()
    machine.sim(*NO_MPS)
    assert facts_of(machine, "gpus")["processes"] == []
    machine.sim("add-client", 0, "--name", "train", "--pid", os.getpid())
    assert [process["pid"] for process in facts_of(machine, "gpus")["processes"]] == [os.getpid()]


def test_an_older_driver_lists_processes_by_the_call_that_it_has(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine(A100, "--driver", "470.256.02")
    assert facts_of(machine, "gpus")["processes"] == []
    machine.sim("add-client", 0, "--name", "train", "--pid", os.getpid(), "--memory", 512)
    process = facts_of(machine, "gpus")["processes"][0]
    assert (process["pid"], process["types"], process["memory_mib"]) == (os.getpid(), ["compute"], 512)


def test_a_list_of_processes_that_fails_is_not_an_empty_one(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine()
    for version in (2, 3):
        machine.sim("fail", f"nvmlDeviceGetComputeRunningProcesses_v{version}", "NVML_ERROR_UNKNOWN", 0)
    gpu = facts_of(machine, "gpus")
    assert gpu["processes"] is None
    assert gpu["unavailable"]["processes"] == "the driver returned unknown error (999)"


# --- where the bus shows nothing --------------------------------------------------------------------------------------


def test_a_gpu_that_the_bus_does_not_show_has_the_pci_ids_that_the_driver_tells(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine(A100)
    gpu = facts_of(machine, "gpus")
    assert (gpu["pci_address"], gpu["pci_id"], gpu["pci_subsystem_id"]) == ("0000:07:00.0", "10de:20b2", "10de:147f")
    devices = collect.gather(machine.host, ("topology",))["topology"]["devices"]
    assert {device["pci_id"] for device in devices} == {"10de:20b2"}


def test_the_pci_ids_of_bus_and_driver_are_written_alike(
    gpu_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine = gpu_host(gpu_machine, Trees(tmp_path_factory.mktemp("trees"))("hgx-2socket"))
    seen = facts_of(machine, "gpus")
    unseen = facts_of(gpu_machine("hgx-h100-80gb-8"), "gpus")
    assert (unseen["pci_id"], unseen["pci_subsystem_id"]) == (seen["pci_id"], seen["pci_subsystem_id"])


def test_a_gpu_has_the_numa_node_that_the_driver_tells_where_the_kernel_shows_none(gpu_machine: MakeMachine) -> None:
    devices = collect.gather(gpu_machine(A100).host, ("topology",))["topology"]["devices"]
    assert [device["numa_node"] for device in devices] == [3, 3, 1, 1, 7, 7, 5, 5]
    assert {device["numa_source"] for device in devices} == {"nvml_memory_affinity"}
    assert {device["cpu_node"] for device in devices} == {None}


def test_the_kernel_is_believed_before_what_the_driver_says_of_nodes_that_are_not_there(
    gpu_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a virtual machine the driver may know the nodes of another place."""
    machine = gpu_host(gpu_machine, Trees(tmp_path_factory.mktemp("trees"))("single-socket"), A100)
    devices = collect.gather(machine.host, ("topology",))["topology"]["devices"]
    on_bus = [device for device in devices if device["kind"] == "gpu" and device["link"]]
    assert {device["numa_source"] for device in on_bus} <= {"sysfs_numa_node", "sysfs_local_cpulist"}


# --- idleness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "idle"), [(0, False), (2, False), (8, True)])
def test_a_gpu_that_works_is_not_idle_because_its_memory_is_slower(
    gpu_machine: MakeMachine, state: int, idle: bool
) -> None:
    """An H200 was recorded to have P2 and P0, both with all clocks of its cores."""
    machine = gpu_machine("h200-141gb-vm-1")
    machine.sim("set", 0, f"performance_state={state}")
    assert machine.host.nvml.ask(info_nvml.ask, ("gpus",))["gpus"][0]["idle"] is True
    machine.sim("add-client", 0)
    assert machine.host.nvml.ask(info_nvml.ask, ("gpus",))["gpus"][0]["idle"] is idle
