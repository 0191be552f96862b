# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG in the NVML simulator: the published profiles and placements, the driver's choices, modes and who blocks them."""

from __future__ import annotations

import json
import random
from ctypes import byref
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    SOURCES,
    Machine,
    again,
    answer,
    as_client,
    compute_instances,
    compute_placements,
    create,
    gpu,
    kind,
    layout,
    place_of,
    placements,
    profiles,
    refused,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once

PUBLISHED = json.loads((SOURCES / "mig_profiles.json").read_text())
WITH_MIG = (
    "hgx-a100-80gb-8",
    "hgx-h100-80gb-8",
    "hgx-h200-141gb-8",
    "hgx-b200-8",
    "a30-4",
    "a100-sxm4-40gb-4",
    "gb200-4",
    "mixed",
)
AMPERE = kind("hgx-a100-80gb-8")
IN_USE = nvml.NVML_ERROR_IN_USE
INSUFFICIENT = nvml.NVML_ERROR_INSUFFICIENT_RESOURCES

# What both tables know: their name of a number, and NVML's.
COLUMNS = {
    "nvml_enum": "enum",
    "nvml_name": "name",
    "compute_slices": "sliceCount",
    "max_instances": "instanceCount",
    "memory_mib": "memorySizeMB",
    "multiprocessors": "multiprocessorCount",
    "copy_engines": "copyEngineCount",
    "decoders": "decoderCount",
    "encoders": "encoderCount",
    "jpeg": "jpegCount",
    "ofa": "ofaCount",
    "p2p": "isP2pSupported",
}


def published(device: Any) -> Dict[str, Any]:
    """What is published about the product that the GPU's PCI id names."""
    word = f"{nvml.nvmlDeviceGetPciInfo(device).pciDeviceId:#010X}".replace("0X", "0x")
    return next(product for product in PUBLISHED["gpus"] if word in product["pci_device_id_words"])


def with_mig(index: int = 0) -> Any:
    assert nvml.nvmlDeviceSetMigMode(gpu(index), 1) == 0
    return gpu(index)


# The published tables


@pytest.mark.parametrize("machine", [(name,) for name in WITH_MIG], indirect=True, ids=WITH_MIG)
@as_client
def test_profiles_and_placements_are_the_published_ones(machine: Machine) -> None:
    for index in range(nvml.nvmlDeviceGetCount()):
        device = gpu(index)
        found = {
            profile: ({ours: info[theirs] for ours, theirs in COLUMNS.items()}, placements(device, profile))
            for profile, info in profiles(device).items()
        }
        expected = {
            row["profile_id"]: (
                {name: row[name] for name in COLUMNS},
                [(place["start"], place["size"]) for place in row["placements"]],
            )
            for row in published(device)["profiles"]
        }
        assert found == expected


@pytest.mark.parametrize("machine", [(name,) for name in WITH_MIG], indirect=True, ids=WITH_MIG)
@as_client
def test_compute_instances_of_every_gpu_instance_are_the_published_ones(machine: Machine) -> None:
    machine.tool("set", 0, "mig=1", "mig_pending=1")  # whatever it takes to get there on this machine
    device = gpu()
    for profile, info in profiles(device).items():
        instance = create(device, profile)
        found = {}
        for number in range(8):
            row = answer(nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, 0)
            if row != nvml.NVML_ERROR_NOT_SUPPORTED:
                found[row.id] = (number, row.sliceCount, row.instanceCount, compute_placements(instance, row.id))
        expected = {
            row["profile_id"]: (
                row["nvml_enum"],
                row["compute_slices"],
                row["max_instances"],
                [(place["start"], place["size"]) for place in row["placements"]],
            )
            for row in PUBLISHED["ci_profiles_by_gi_compute_slices"][str(info["sliceCount"])]
        }
        assert found == expected, info["name"]
        nvml.nvmlGpuInstanceDestroy(instance)


@as_client
def test_profiles_can_be_asked_for_before_mig_is_enabled(machine: Machine) -> None:
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]
    assert sorted(profiles(gpu())) == [0, 5, 9, 14, 15, 19, 20]


@kind("hgx-h100-80gb-8", "--driver", "535.183.01")
@as_client
def test_an_r535_driver_tells_its_profiles_only_while_mig_is_enabled(machine: Machine) -> None:
    assert profiles(gpu()) == {}
    (capable,) = nvml.nvmlDeviceGetFieldValues(gpu(), [nvml.NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE])
    assert (capable.nvmlReturn, capable.value.uiVal) != (0, 1)
    assert sorted(profiles(with_mig())) == [0, 5, 9, 14, 15, 19, 20]


@kind("gb200-4", "--driver", "570.133.20")
@as_client
def test_an_older_driver_gives_profiles_other_names(machine: Machine) -> None:
    others = published(gpu())["names_other_drivers"]
    expected = {f"MIG {others.get(row['name'], [row['name']])[0]}" for row in published(gpu())["profiles"]}
    assert {info["name"] for info in profiles(gpu()).values()} == expected
    assert "MIG 1g.24gb" in expected


@kind("hgx-a100-80gb-8", "--driver", "460.106.00")
@as_client
def test_the_first_drivers_have_neither_media_extensions_nor_double_memory(machine: Machine) -> None:
    device = with_mig()
    with refused(nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
        nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, 0, version=2)
    ids = [nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, version=1).id for number in range(5)]
    assert ids == [19, 14, 9, 5, 0]
    for number, code in ((5, nvml.NVML_ERROR_NOT_SUPPORTED), (7, nvml.NVML_ERROR_INVALID_ARGUMENT)):
        with refused(code):
            nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number, version=1)


# The driver's choice of a placement


@AMPERE
@as_client
def test_the_driver_places_one_slice_instances_in_its_documented_order(machine: Machine) -> None:
    device = with_mig()
    made = [create(device, 19) for turn in range(7)]
    assert [place_of(instance)[0] for instance in made] == [6, 4, 5, 0, 1, 2, 3]
    assert [nvml.nvmlGpuInstanceGetInfo(instance).id for instance in made] == [13, 11, 12, 7, 8, 9, 10]
    with refused(INSUFFICIENT):
        create(device, 19)


@AMPERE
@pytest.mark.parametrize("profile", [14, 9])
@as_client
def test_the_first_larger_instance_begins_at_slice_four(machine: Machine, profile: int) -> None:
    assert place_of(create(with_mig(), profile))[0] == 4


@AMPERE
@as_client
def test_an_unlucky_order_of_creation_fragments_the_gpu(machine: Machine) -> None:
    device = with_mig()
    for profile in (19, 19, 14):
        create(device, profile)
    with refused(INSUFFICIENT):
        create(device, 9)
    lucky = with_mig(1)
    for profile in (9, 19, 14, 19):
        create(lucky, profile)
    assert [profile for profile, *place in layout(lucky)] == [9, 14, 19, 19]


@AMPERE
@as_client
def test_the_id_of_an_instance_does_not_follow_from_its_placement(machine: Machine) -> None:
    machine.tool("set", 0, "swap_halves=0")
    machine.tool("set", 1, "swap_halves=1")
    ids = []
    for index in (0, 1):
        device = with_mig(index)
        made = [create(device, 9, (4, 4)), create(device, 14, (0, 2)), create(device, 19, (2, 1))]
        ids.append([nvml.nvmlGpuInstanceGetInfo(instance).id for instance in made])
    assert ids == [[2, 3, 9], [1, 5, 13]]


@as_client
def test_a_placement_is_taken_only_if_it_is_possible_and_free(machine: Machine) -> None:
    device = with_mig()
    assert place_of(create(device, 14, (2, 2))) == (2, 2)
    for profile, place, code in (
        (14, (1, 2), nvml.NVML_ERROR_INVALID_ARGUMENT),
        (14, (6, 2), nvml.NVML_ERROR_INVALID_ARGUMENT),
        (14, (0, 1), nvml.NVML_ERROR_INVALID_ARGUMENT),
        (14, (2, 2), INSUFFICIENT),
        (19, (3, 1), INSUFFICIENT),
        (9, (0, 4), INSUFFICIENT),
        (0, (0, 8), INSUFFICIENT),
    ):
        with refused(code):
            create(device, profile, place)
    assert layout(device) == [(14, 2, 2)]


@as_client
def test_a_media_instance_exists_once_a_gpu(machine: Machine) -> None:
    device = with_mig()
    create(device, 20)
    with refused(INSUFFICIENT):
        create(device, 20)
    create(device, 19)


@as_client
def test_remaining_capacity_counts_slots_of_each_profile_alone(machine: Machine) -> None:
    device = with_mig()

    def free() -> Dict[int, int]:
        return {
            profile: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, profile) for profile in profiles(device)
        }

    assert free() == {profile: info["instanceCount"] for profile, info in profiles(device).items()}
    whole = create(device, 0)
    assert set(free().values()) == {0}
    nvml.nvmlGpuInstanceDestroy(whole)
    create(device, 5)
    left = free()
    assert (left[0], left[5], left[9], left[14]) == (0, 0, 1, 1)


@pytest.mark.parametrize("machine", [("hgx-a100-80gb-8",), ("a30-4",)], indirect=True, ids=["a100", "a30"])
@as_client
def test_no_order_of_requests_makes_instances_overlap(machine: Machine) -> None:
    device = with_mig()
    rows = {row["profile_id"]: row for row in published(device)["profiles"]}
    alive: List[Tuple[int, Any]] = []
    generator = random.Random(7)
    refusals = 0
    for turn in range(400):
        if alive and generator.random() < 0.35:
            profile, instance = alive.pop(generator.randrange(len(alive)))
            nvml.nvmlGpuInstanceDestroy(instance)
        else:
            profile = generator.choice(sorted(rows))
            place = generator.choice([None, *rows[profile]["placements"]])
            try:
                made = create(device, profile, place and (place["start"], place["size"]))
            except nvml.NVMLError_InsufficientResources:
                refusals += 1
            else:
                alive.append((profile, made))
        slices = [number for profile, made in alive for number in range(place_of(made)[0], sum(place_of(made)))]
        assert len(slices) == len(set(slices)), turn
        assert sum(rows[profile]["compute_slices"] for profile, made in alive) <= published(device)["compute_slices"]
        assert layout(device) == sorted((profile, *place_of(made)) for profile, made in alive)
        ids = [nvml.nvmlGpuInstanceGetInfo(made).id for profile, made in alive]
        assert len(ids) == len(set(ids))
    assert 50 < refusals < 350


# Compute instances and MIG devices


@as_client
def test_compute_instances_divide_their_gpu_instance(machine: Machine) -> None:
    instance = create(with_mig(), 9)
    place = nvml.c_nvmlComputeInstancePlacement_t(2, 1)
    last = nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, 0, byref(place))
    assert nvml.nvmlComputeInstanceGetInfo(last).placement.start == 2
    with refused(INSUFFICIENT):
        nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    pair = nvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    assert nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 0
    nvml.nvmlComputeInstanceDestroy(last)
    nvml.nvmlComputeInstanceDestroy(pair)
    nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    assert [len(compute_instances(instance, profile)) for profile in range(3)] == [0, 0, 1]


@as_client
def test_a_mig_device_is_a_compute_instance(machine: Machine) -> None:
    device = with_mig()
    parents = [create(device, 14, (0, 2)), create(device, 9, (4, 4))]
    assert answer(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, 0) == nvml.NVML_ERROR_NOT_FOUND
    for parent, profile in zip(parents, (1, 2)):
        nvml.nvmlGpuInstanceCreateComputeInstance(parent, profile)
    found = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        mig = answer(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)
        if mig != nvml.NVML_ERROR_NOT_FOUND:
            attributes = nvml.nvmlDeviceGetAttributes_v2(mig)
            found[nvml.nvmlDeviceGetGpuInstanceId(mig)] = (
                attributes.gpuInstanceSliceCount,
                attributes.computeInstanceSliceCount,
                attributes.multiprocessorCount,
                attributes.memorySizeMB,
            )
            assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(mig))).startswith(
                "MIG-"
            )
            assert nvml.nvmlDeviceGetName(mig).startswith("NVIDIA H100 80GB HBM3")
    table = profiles(device)
    assert found == {
        nvml.nvmlGpuInstanceGetInfo(parent).id: (
            table[profile]["sliceCount"],
            table[profile]["sliceCount"],
            table[profile]["multiprocessorCount"],
            table[profile]["memorySizeMB"],
        )
        for parent, profile in zip(parents, (14, 9))
    }


@as_client
def test_what_is_in_use_is_not_destroyed(machine: Machine) -> None:
    device = with_mig()
    instance = create(device, 9)
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    gi, ci = nvml.nvmlGpuInstanceGetInfo(instance).id, nvml.nvmlComputeInstanceGetInfo(compute).id
    client = machine.tool("add-client", 0, "--gi", gi, "--ci", ci)
    with refused(IN_USE):
        nvml.nvmlComputeInstanceDestroy(compute)
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    assert (process.gpuInstanceId, process.computeInstanceId) == (gi, ci)
    machine.tool("remove-client", client)
    with refused(IN_USE):
        nvml.nvmlGpuInstanceDestroy(instance)
    nvml.nvmlComputeInstanceDestroy(compute)
    assert answer(nvml.nvmlDeviceSetMigMode, device, 0) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(device)[0] == 1
    nvml.nvmlGpuInstanceDestroy(instance)
    assert nvml.nvmlDeviceSetMigMode(device, 0) == 0
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]


@as_client
def test_handles_of_what_was_destroyed_stay_dead(machine: Machine) -> None:
    device = with_mig()
    instance = create(device, 9, (4, 4))
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
    nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    successor = create(device, 9, (4, 4))
    nvml.nvmlGpuInstanceCreateComputeInstance(successor, 2)
    for call in (
        lambda: nvml.nvmlGpuInstanceGetInfo(instance),
        lambda: nvml.nvmlGpuInstanceDestroy(instance),
        lambda: nvml.nvmlComputeInstanceGetInfo(compute),
        lambda: nvml.nvmlComputeInstanceDestroy(compute),
        lambda: nvml.nvmlDeviceGetUUID(mig),
    ):
        with refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
            call()


@as_client
def test_instances_need_mig_to_be_enabled(machine: Machine) -> None:
    with refused(nvml.NVML_ERROR_NOT_SUPPORTED):
        create(gpu(), 19)
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 0


@as_client
def test_a_guest_with_a_virtual_gpu_makes_no_instances(machine: Machine) -> None:
    nvml.nvmlDeviceSetMigMode(gpu(), 1)
    machine.tool("set", 0, f"virtualization_mode={nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU}")
    with refused(nvml.NVML_ERROR_NOT_SUPPORTED):
        create(gpu(), 19)


# The mode


@AMPERE
@as_client
def test_ampere_changes_its_mode_at_once_when_nobody_holds_the_gpu(machine: Machine) -> None:
    old = gpu()
    nvml.nvmlDeviceSetComputeMode(old, nvml.NVML_COMPUTEMODE_PROHIBITED)
    assert nvml.nvmlDeviceSetMigMode(old, 1) == 0
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    assert nvml.nvmlDeviceGetComputeMode(gpu()) == nvml.NVML_COMPUTEMODE_DEFAULT, "the driver has reset the GPU"
    with refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
        nvml.nvmlDeviceGetName(old)


@AMPERE
@as_client
def test_ampere_keeps_the_change_pending_while_a_client_holds_the_gpu(machine: Machine) -> None:
    with machine.held():
        assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == IN_USE
        assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
        nvml.nvmlShutdown()
        assert "python" in machine.refusal("reset", 0)
    machine.tool("reset", 0)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    assert nvml.nvmlDeviceGetMigMode(gpu(1)) == [0, 0]


@as_client
def test_hopper_changes_its_mode_in_spite_of_monitoring_clients(machine: Machine) -> None:
    with machine.held():
        device = gpu()
        assert nvml.nvmlDeviceSetMigMode(device, 1) == 0
        assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


@as_client
def test_hopper_does_not_change_its_mode_below_a_compute_process(machine: Machine) -> None:
    client = machine.tool("add-client", 0, "--kind", "compute")
    assert answer(nvml.nvmlDeviceSetMigMode, gpu(), 1) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu())[0] == 0
    machine.tool("remove-client", client)
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == 0


@AMPERE
@as_client
def test_a_gpu_passed_through_to_a_virtual_machine_waits_for_its_reboot(machine: Machine) -> None:
    assert nvml.nvmlDeviceGetVirtualizationMode(gpu()) == nvml.NVML_GPU_VIRTUALIZATION_MODE_NONE
    machine.tool("set", 0, "passthrough=1")
    assert nvml.nvmlDeviceGetVirtualizationMode(gpu()) == nvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == nvml.NVML_ERROR_RESET_REQUIRED
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    nvml.nvmlShutdown()
    machine.tool("reboot")
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


@pytest.mark.parametrize(
    ("machine", "event", "mode"),
    [
        (("hgx-a100-80gb-8",), "reset", [1, 1]),
        (("hgx-a100-80gb-8",), "reload-driver", [1, 1]),
        (("hgx-a100-80gb-8",), "reboot", [1, 1]),
        (("hgx-h100-80gb-8",), "reset", [1, 1]),
        (("hgx-h100-80gb-8",), "reload-driver", [0, 0]),
        (("hgx-h100-80gb-8",), "reboot", [0, 0]),
        (("hgx-b200-8",), "reload-driver", [0, 0]),
    ],
    indirect=["machine"],
)
@as_client
def test_instances_never_survive_and_the_mode_only_where_the_inforom_keeps_it(
    machine: Machine, event: str, mode: List[int]
) -> None:
    device = with_mig()
    nvml.nvmlGpuInstanceCreateComputeInstance(create(device, 9), 2)
    nvml.nvmlShutdown()
    machine.tool(event)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMigMode(gpu()) == mode
    assert machine.describe()["gpus"][0]["instances"] == []


@as_client
def test_instances_outlive_the_process_that_made_them(machine: Machine) -> None:
    create(with_mig(), 9)
    again()
    assert layout(gpu()) == [(9, 4, 4)]


def test_the_published_tables_come_from_one_file(machine: Machine, tmp_path: Path) -> None:
    assert json.loads((machine.built / "mig_profiles.json").read_text()) == PUBLISHED
