# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs linked by NVLink: who is at the other end of a link, and which GPUs a reset takes together."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import links
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machine,
    Machines,
    as_client,
    gpu,
    kind,
    refused,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once

WITHOUT_SWITCHES = kind("a100-sxm4-40gb-4")
TOGETHER = "nvml-sim: Cannot reset: GPU {} is linked by NVLink to {}; reset them together"


def addresses_at_links(index: int) -> List[str]:
    return [nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(index), link).busId for link in range(12)]


@WITHOUT_SWITCHES
@as_client
def test_links_without_switches_lead_to_the_other_gpus_in_equal_shares(machine: Machine) -> None:
    own = [nvml.nvmlDeviceGetPciInfo(gpu(index)).busId for index in range(4)]
    for index in range(4):
        others = [address for address in own if address != own[index]]
        assert addresses_at_links(index) == [address for address in others for link in range(4)]
        kinds = {nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(index), link) for link in range(12)}
        assert kinds == {nvml.NVML_NVLINK_DEVICE_TYPE_GPU}


@kind("hgx-a100-80gb-8")
@as_client
def test_links_to_switches_lead_to_no_gpu(machine: Machine) -> None:
    own = {nvml.nvmlDeviceGetPciInfo(gpu(index)).busId for index in range(8)}
    assert set(addresses_at_links(0)).isdisjoint(own)
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(), 0) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH


@WITHOUT_SWITCHES
@as_client
def test_an_inactive_link_has_no_other_end(machine: Machine) -> None:
    machine.tool("set", 0, f"nvlink_state={','.join(['0'] * 12)}")
    with refused(nvml.NVML_ERROR_NOT_SUPPORTED):
        nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), 0)
    assert nvml.nvmlDeviceGetPciInfo(gpu(0)).busId not in addresses_at_links(1)


@WITHOUT_SWITCHES
def test_gpus_linked_without_switches_are_reset_together(machine: Machine) -> None:
    assert machine.refusal("reset", 1) == TOGETHER.format(1, "GPU 0, GPU 2, GPU 3")
    assert machine.refusal("reset", 3, 1, 0) == TOGETHER.format(0, "GPU 2")
    assert {one["generation"] for one in machine.describe()["gpus"]} == {1}
    machine.tool("reset", 3, 1, 0, 2)
    machine.tool("reset")
    machine.tool("set", "system", "fabric_manager=1")
    assert machine.refusal("reset", 1) == TOGETHER.format(1, "GPU 0, GPU 2, GPU 3")


OTHERS = ", ".join(f"GPU {index}" for index in range(8) if index != 5)


@contextlib.contextmanager
def fabric_manager(machine: Machine) -> Iterator[subprocess.Popen[str]]:
    """The simulator's stand-in for it, as a process."""
    command = [sys.executable, "-S", str(machine.built / "fabricmanager.py")]
    with subprocess.Popen(command, env=machine.environment(), text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "nv-fabricmanager runs\n"
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.without_manager
@kind("hgx-a100-80gb-8")
def test_behind_switches_a_fabric_manager_lets_each_be_reset_alone(machine: Machine) -> None:
    """A program that looks for its process and the driver say the same of every machine."""
    assert machine.refusal("reset", 5) == TOGETHER.format(5, OTHERS)
    with fabric_manager(machine) as process:
        assert Path(f"/proc/{process.pid}/comm").read_text().strip() == links.FABRIC_MANAGER
        machine.tool("reset", 5)
    assert process.returncode == 0
    assert machine.refusal("reset", 5) == TOGETHER.format(5, OTHERS)
    with fabric_manager(machine) as process:
        process.kill()
        process.wait()
        assert machine.refusal("reset", 5) == TOGETHER.format(5, OTHERS)
    machine.tool("set", "system", "fabric_manager=1")
    machine.tool("reset", 5)


@kind("a30-4")
def test_a_fabric_manager_does_not_run_without_switches(machine: Machine) -> None:
    command = [sys.executable, "-S", str(machine.built / "fabricmanager.py")]
    done = subprocess.run(command, env=machine.environment(), text=True, capture_output=True, timeout=60, check=False)
    nothing = "request to query NVSwitch device information failed: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    assert (done.returncode, done.stderr) == (1, f"nv-fabricmanager: {nothing}\n")


@kind("hgx-h100-80gb-8")
def test_a_fabric_manager_of_another_version_says_both_and_ends(machine: Machine) -> None:
    command = [sys.executable, "-S", str(machine.built / "fabricmanager.py")]
    variables = {**machine.environment(), "NV_FABRICMANAGER_VERSION": "580.1.2"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], env=variables, text=True, capture_output=True, timeout=60, check=False
        )

    assert run("--version").stdout == "Fabric Manager version is : 580.1.2\n"
    done = run()
    driver = machine.describe()["system"]["driver_version"]
    assert done.returncode == 1
    assert f"interface version 580.1.2 don't match with driver version {driver}" in done.stderr


@kind("hgx-h100-80gb-8")
def test_hopper_and_later_behind_switches_need_no_fabric_manager(machine: Machine) -> None:
    machine.tool("reset", 5)


@pytest.mark.parametrize("machine", [("a30-4",), ("l40s-1",)], indirect=True)
def test_gpus_without_active_links_are_reset_alone(machine: Machine) -> None:
    machine.tool("reset", 0)


@kind("mixed")
def test_gpus_of_different_products_are_not_linked(machine: Machine) -> None:
    assert machine.refusal("reset", 0) == TOGETHER.format(0, "GPU 1")
    machine.tool("reset", 3)


def test_a_description_says_which_gpus_are_linked(machines: Machines, tmp_path: Path) -> None:
    pairs = [
        {"model": "a100-sxm4-40gb", "pci": f"0000:{index + 1:02x}:00.0", "nvlink": index // 2} for index in range(4)
    ]
    (tmp_path / "pairs.json").write_text(json.dumps({"gpus": pairs}))
    machine = machines.copy(tmp_path / "machine", str(tmp_path / "pairs.json"))
    assert machine.refusal("reset", 2) == TOGETHER.format(2, "GPU 3")
    machine.tool("reset", 2, 3)


# The reset that a change of the MIG mode tries


@WITHOUT_SWITCHES
@as_client
def test_a_change_of_the_mode_is_pending_until_the_linked_gpus_are_reset_too(machine: Machine) -> None:
    assert nvml.nvmlDeviceSetMigMode(gpu(2), 1) == nvml.NVML_ERROR_RESET_REQUIRED
    assert nvml.nvmlDeviceGetMigMode(gpu(2)) == [0, 1]
    nvml.nvmlShutdown()
    machine.tool("reset")
    nvml.nvmlInit()
    modes: List[Any] = [nvml.nvmlDeviceGetMigMode(gpu(index)) for index in range(4)]
    assert modes == [[0, 0], [0, 0], [1, 1], [0, 0]]


@WITHOUT_SWITCHES
@as_client
def test_a_client_in_the_way_is_named_before_the_links(machine: Machine) -> None:
    machine.tool("add-client", 2)
    assert nvml.nvmlDeviceSetMigMode(gpu(2), 1) == nvml.NVML_ERROR_IN_USE


@pytest.mark.without_manager
@kind("hgx-a100-80gb-8")
@as_client
def test_without_its_fabric_manager_an_a100_keeps_the_mode_pending(machine: Machine) -> None:
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == nvml.NVML_ERROR_RESET_REQUIRED
    machine.tool("set", "system", "fabric_manager=1")
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


@WITHOUT_SWITCHES
def test_a_gpu_with_mig_stays_one_of_those_that_are_reset_together(machine: Machine) -> None:
    machine.tool("set", 0, "mig=1", "mig_pending=1")
    assert machine.refusal("reset", 1, 2, 3) == TOGETHER.format(1, "GPU 0")
