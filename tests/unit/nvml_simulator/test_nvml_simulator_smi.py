# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulator's stand-in for nvidia-smi: what it prints, what it resets, and what it refuses."""

from __future__ import annotations

import subprocess
from typing import Any, Callable, Dict, List

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machine,
    as_client,
    create,
    gpu,
    kind,
)

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

MACHINE = ("hgx-a100-80gb-8",)
WITHOUT_SWITCHES = kind("a100-sxm4-40gb-4")
IN_USE = (
    "currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application "
    "such as an X server, or a monitoring application such as another instance of nvidia-smi). Please first kill all "
    "processes using {these} and all compute applications running in the system.\n"
)


def resets(machine: Machine) -> List[int]:
    """How often each GPU was reset."""
    return [one["generation"] - 1 for one in machine.describe()["gpus"]]


def refusal(*lines: str) -> str:
    return "\n".join(["", "The following GPUs could not be reset:", *lines, "", ""])


# Resets


def test_a_reset_makes_the_pending_mode_of_this_gpu_current_and_leaves_the_others_alone(machine: Machine) -> None:
    with machine.held():
        machine.elsewhere("[nvmlDeviceSetMigMode(gpu[index], 1) for index in (2, 3)]")
    done = machine.smi("--gpu-reset", "-i", 2)
    assert done == (0, "GPU 00000000:47:00.0 was successfully reset.\nAll done.\n", "")
    assert machine.elsewhere("[nvmlDeviceGetMigMode(gpu[index]) for index in (2, 3)]") == [[1, 1], [0, 1]]
    assert resets(machine) == [0, 0, 1, 0, 0, 0, 0, 0]


def test_gpus_are_named_by_index_uuid_or_pci_address_and_all_are_meant_by_none(machine: Machine) -> None:
    uuid = machine.describe()["gpus"][4]["uuid"]
    done = machine.smi("-r", f"--id=0000:07:00.0,{uuid},1,00000000:0F:00.0")
    addresses = ("00000000:07:00.0", "00000000:0F:00.0", "00000000:87:00.0")
    expected = [f"GPU {address} was successfully reset." for address in addresses]
    assert done == (0, "\n".join([*expected, "All done.", ""]), "")
    assert machine.smi("-r").returncode == 0
    assert resets(machine) == [2, 2, 1, 1, 2, 1, 1, 1]


def test_a_gpu_in_use_keeps_all_of_them_from_the_reset(machine: Machine) -> None:
    machine.tool("add-client", 1)
    done = machine.smi("-r", "-i", "0,1")
    expected = refusal("  GPU 00000000:0F:00.0: In use by another client")
    assert done == (255, f"{expected}1 device is {IN_USE.format(these='this device')}\n", "")
    machine.tool("add-client", 0)
    done = machine.smi("-r", "-i", "0,1")
    expected = refusal(
        "  GPU 00000000:07:00.0: In use by another client", "  GPU 00000000:0F:00.0: In use by another client"
    )
    assert done == (255, f"{expected}2 devices are {IN_USE.format(these='these devices')}\n", "")
    assert resets(machine) == [0] * 8
    machine.tool("remove-client", "--all")
    assert machine.smi("-r", "-i", "0,1").returncode == 0


@as_client
def test_a_process_that_initialised_nvml_is_in_its_way(machine: Machine) -> None:
    assert "GPU 00000000:07:00.0: In use by another client" in machine.smi("-r", "-i", 0).stdout
    nvml.nvmlShutdown()
    assert machine.smi("-r", "-i", 0).returncode == 0


def test_a_reset_is_for_root(machine: Machine) -> None:
    done = machine.smi("-r", "-i", 0, NVML_SIM_EUID="1000")
    assert done == (4, refusal("  GPU 00000000:07:00.0: Insufficient Permissions"), "")
    assert resets(machine) == [0] * 8


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("set", 0, "passthrough=1"), "Not Supported"),
        (("lose", 0), "GPU is lost"),
        (("fail", "gpu-reset", "TIMEOUT"), "Timeout"),
        (("fail", "gpu-reset", 999), "Unknown Error"),
        (("fail", "--nth-change", 1, "IN_USE"), "In use by another client"),
    ],
)
def test_a_reset_that_cannot_be_says_why(machine: Machine, command: Any, reason: str) -> None:
    machine.tool(*command)
    done = machine.smi("-r", "-i", 0)
    assert done.returncode == 255
    assert done.stdout.startswith(refusal(f"  GPU 00000000:07:00.0: {reason}"))
    assert resets(machine) == [0] * 8


def test_a_reset_that_failed_as_often_as_it_was_told_works_again(machine: Machine) -> None:
    machine.tool("fail", "gpu-reset", "UNKNOWN", "--after", 1)
    assert [machine.smi("-r", "-i", 0).returncode for turn in range(3)] == [0, 255, 0]
    assert resets(machine)[0] == 2


def test_the_log_says_which_gpus_were_reset_and_which_were_in_the_way(machine: Machine) -> None:
    machine.tool("add-client", 3)
    machine.smi("-r", "-i", "2,3")
    machine.smi("-r", "-i", "4,5")
    logged = [(call["symbol"], call["gpu"], call["result"], call["change"]) for call in machine.log()]
    assert logged == [("gpu-reset", 3, 19, True), ("gpu-reset", 4, 0, True), ("gpu-reset", 5, 0, True)]


@WITHOUT_SWITCHES
def test_gpus_linked_to_each_other_are_reset_together_or_not_at_all(machine: Machine) -> None:
    done = machine.smi("-r", "-i", "0,2")
    assert done.returncode == 255
    assert done.stdout == refusal("  GPU 00000000:01:00.0: Not Supported", "  GPU 00000000:81:00.0: Not Supported") + (
        "GPUs with NVLink connections must be reset in the same command. Add: 00000000:41:00.0, 00000000:C1:00.0\n\n"
    )
    assert resets(machine) == [0] * 4
    assert machine.smi("-r", "-i", "0,1,2,3").returncode == 0
    assert resets(machine) == [1] * 4


# Lists


@as_client
def test_the_list_has_gpus_and_their_mig_devices(machine: Machine) -> None:
    nvml.nvmlShutdown()
    machine.tool("set", 1, "mig=1", "mig_pending=1", "swap_halves=0")
    nvml.nvmlInit()
    for profile, place, parts in ((14, (0, 2), [1]), (9, (4, 4), [1, 0]), (20, (2, 1), [0])):
        instance = create(gpu(1), profile, place)
        for part in parts:
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, part)
    done = machine.smi("-L", "-i", "1,2")
    name, devices = "NVIDIA A100-SXM4-80GB", []
    for index in range(4):
        device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(1), index)
        profile = nvml.nvmlDeviceGetName(device)[len(f"{name} MIG ") :]
        devices.append(f"  MIG {profile:<12}Device  {index}: (UUID: {nvml.nvmlDeviceGetUUID(device)})")
    assert done.stdout.splitlines() == [
        f"GPU 1: {name} (UUID: {nvml.nvmlDeviceGetUUID(gpu(1))})",
        *devices,
        f"GPU 2: {name} (UUID: {nvml.nvmlDeviceGetUUID(gpu(2))})",
    ]
    listed = sorted(line.split()[1] for line in done.stdout.splitlines()[1:5])
    assert listed == ["1c.3g.40gb", "1g.10gb+me", "2c.3g.40gb", "2g.20gb"]
    assert "  MIG 2g.20gb     Device  " in done.stdout


FIELDS = "index,uuid,pci.bus_id,mig.mode.current,mig.mode.pending,persistence_mode"


def test_a_query_answers_in_lines_of_csv(machine: Machine) -> None:
    uuids = [one["uuid"] for one in machine.describe()["gpus"]]
    with machine.held():
        machine.elsewhere("[nvmlDeviceSetMigMode(gpu[1], 1), nvmlDeviceSetPersistenceMode(gpu[1], 1)]")
        done = machine.smi(f"--query-gpu={FIELDS}", "--format=csv,noheader", "-i", "0,1")
    assert done.stdout == (
        f"0, {uuids[0]}, 00000000:07:00.0, Disabled, Disabled, Disabled\n"
        f"1, {uuids[1]}, 00000000:0F:00.0, Disabled, Enabled, Enabled\n"
    )
    done = machine.smi("--query-gpu=count,name,driver_version", "--format=csv", "-i", 7)
    assert done.stdout == "count, name, driver_version\n8, NVIDIA A100-SXM4-80GB, 550.54.15\n"


@kind("l40s-1")
def test_a_gpu_without_mig_has_no_mode(machine: Machine) -> None:
    done = machine.smi("--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader")
    assert done.stdout == "[N/A], [N/A]\n"


def test_it_is_no_client_and_changes_nothing_unless_it_resets(machine: Machine) -> None:
    before = machine.state.read_bytes()
    machine.smi("-L")
    machine.smi(f"--query-gpu={FIELDS}", "--format=csv")
    assert machine.state.read_bytes() == before


def test_the_built_folder_has_it_as_a_command(machine: Machine) -> None:
    done = subprocess.run(
        [str(machine.built / "nvidia-smi"), "-L", "-i", "0"],
        env=machine.environment(),
        check=True,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.stdout.startswith("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-")


# Wrong use, and drivers that are not there

REFUSALS: Dict[str, Any] = {
    "": (2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"),
    "-q": (2, "Invalid combination of input arguments. "),
    "-mig 1": (2, "Invalid combination of input arguments. "),
    "-L -r": (2, "Invalid combination of input arguments. "),
    "-i 0": (2, "Invalid combination of input arguments. "),
    "--query-gpu=index": (2, "Invalid combination of input arguments. "),
    "-L --format=csv": (2, "Invalid combination of input arguments. "),
    "--query-gpu=index,warmth --format=csv": (2, 'Field "warmth" is not a valid field to query.\n'),
    "--query-gpu=index --format=xml": (2, 'Format option "xml" is not known to this stand-in: csv[,noheader]'),
    "-r -i 8": (6, "No devices were found\n"),
    "-r -i 0,GPU-none": (6, "No devices were found\n"),
    "-r -i ": (6, "No devices were found\n"),
}


@pytest.mark.parametrize(("arguments", "expected"), REFUSALS.items(), ids=[word or "nothing" for word in REFUSALS])
def test_what_it_does_not_know_it_refuses(machine: Machine, arguments: str, expected: Any) -> None:
    before = machine.state.read_bytes()
    done = machine.smi(*(arguments.split(" ") if arguments else []))
    code, beginning = expected
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(beginning)
    assert machine.state.read_bytes() == before


NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
DRIVERS: Dict[str, Any] = {
    "unloaded": (lambda machine: machine.tool("unload-driver"), 9, NO_DRIVER),
    "not installed": (lambda machine: machine.state.unlink(), 9, NO_DRIVER),
    "older": (
        lambda machine: machine.tool("mismatch"),
        18,
        "Failed to initialize NVML: Driver/library version mismatch\n",
    ),
}


@pytest.mark.parametrize(("do", "code", "text"), DRIVERS.values(), ids=DRIVERS)
def test_without_the_right_driver_it_says_so(
    machine: Machine, do: Callable[[Machine], Any], code: int, text: str
) -> None:
    do(machine)
    for arguments in (["-L"], ["-r"]):
        assert machine.smi(*arguments) == (code, text, "")


# Time slices


def test_a_time_slice_is_set_for_some_gpus_and_forgotten_with_a_reset(machine: Machine) -> None:
    assert machine.smi("compute-policy", "-i", "1,2", "--set-timeslice", 1).returncode == 0
    assert [one["time_slice"] for one in machine.describe()["gpus"]] == [0, 1, 1, 0, 0, 0, 0, 0]
    machine.smi("-r", "-i", 1)
    listed = machine.smi("compute-policy", "--list", "-i", "1,2")
    assert (listed.returncode, listed.stdout.splitlines()[4:-1]) == (
        0,
        ["|   1     Timeslice          Default  |", "|   2     Timeslice            Short  |"],
    )


def test_a_time_slice_is_set_by_root_to_one_of_four(machine: Machine) -> None:
    assert machine.smi("compute-policy", "--set-timeslice", 1, NVML_SIM_EUID="1000").returncode == 4
    assert machine.smi("compute-policy", "--set-timeslice", 4).returncode == 2
    assert machine.smi("compute-policy").returncode == 2
    assert [one["time_slice"] for one in machine.describe()["gpus"]] == [0] * 8
