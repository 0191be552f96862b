# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Device files: who has which open, as /proc shows it, and jobs that hold a GPU."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import List

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machine,
    as_client,
    create,
    gpu,
)
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.persistenced_runs import running

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

MACHINE = ("a30-4",)
EVERY = ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl"]


def make_devices(machine: Machine, *names: str) -> None:
    folder = Path(machine.variables["NVML_SIM_DEV"])
    folder.mkdir()
    for name in names or (*EVERY, "nvidia-uvm"):
        (folder / name).touch()


def opened(machine: Machine, pid: int) -> List[str]:
    """The device files that a process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = Path(os.readlink(link))
        except FileNotFoundError:  # it closed it meanwhile
            continue
        if str(target.parent) == machine.variables["NVML_SIM_DEV"]:
            found.append(target.name)
    return sorted(found)


@as_client
def test_a_client_has_them_open_from_nvmlinit_to_the_last_nvmlshutdown(machine: Machine) -> None:
    nvml.nvmlShutdown()
    make_devices(machine)
    assert opened(machine, os.getpid()) == []
    nvml.nvmlInit()
    nvml.nvmlInit()
    assert opened(machine, os.getpid()) == EVERY
    nvml.nvmlShutdown()
    assert opened(machine, os.getpid()) == EVERY
    nvml.nvmlShutdown()
    assert opened(machine, os.getpid()) == []


@as_client
def test_what_is_not_there_is_not_opened(machine: Machine) -> None:
    assert opened(machine, os.getpid()) == []
    nvml.nvmlShutdown()
    make_devices(machine, "nvidiactl", "nvidia2")
    nvml.nvmlInit()
    assert opened(machine, os.getpid()) == ["nvidia2", "nvidiactl"]


@as_client
def test_they_are_called_after_the_minor_number(machine: Machine) -> None:
    nvml.nvmlShutdown()
    machine.tool("set", 1, "minor_number=7")
    make_devices(machine, "nvidia1", "nvidia7")
    nvml.nvmlInit()
    assert opened(machine, os.getpid()) == ["nvidia7"]


@as_client
def test_a_program_that_a_client_starts_does_not_inherit_them(machine: Machine) -> None:
    nvml.nvmlShutdown()
    make_devices(machine)
    nvml.nvmlInit()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 1)
        os.execvp("sh", ["sh", "-c", "echo ready; sleep 60"])
    os.close(writer)
    try:
        assert os.read(reader, 6) == b"ready\n"
        assert opened(machine, child) == []
        assert opened(machine, os.getpid()) == EVERY
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@as_client
def test_a_state_that_is_removed_under_a_client_closes_them(machine: Machine) -> None:
    nvml.nvmlShutdown()
    make_devices(machine)
    nvml.nvmlInit()
    machine.state.unlink()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    assert opened(machine, os.getpid()) == []


def test_the_persistence_daemon_has_those_of_the_gpus_it_keeps(machine: Machine) -> None:
    make_devices(machine)
    with running(machine) as pid:
        assert sorted(set(opened(machine, pid))) == EVERY
        machine.elsewhere("nvmlDeviceSetPersistenceMode(gpu[2], 0)")
        assert sorted(set(opened(machine, pid))) == ["nvidia0", "nvidia1", "nvidia3", "nvidiactl"]
        machine.elsewhere("[nvmlDeviceSetPersistenceMode(gpu[index], 0) for index in (0, 1, 3)]")
        assert opened(machine, pid) == []
        machine.elsewhere("nvmlDeviceSetPersistenceMode(gpu[3], 1)")
        assert opened(machine, pid) == ["nvidia3", "nvidiactl"]


# Jobs


def test_a_job_is_a_client_with_the_device_file_of_its_gpu(machine: Machine) -> None:
    make_devices(machine)
    with machine.job(2, "--name", "trainer", "--memory", 100) as process:
        assert opened(machine, process.pid) == ["nvidia-uvm", "nvidia2", "nvidiactl"]
        (client,) = machine.describe()["clients"]
        assert (client["pid"], client["name"], client["kind"], client["gpu"]) == (process.pid, "trainer", "compute", 2)
        assert machine.elsewhere("[one.pid for one in nvmlDeviceGetComputeRunningProcesses(gpu[2])]") == [process.pid]
        assert f"held by trainer (pid {process.pid}, compute" in machine.refusal("reset", 2)
        process.terminate()
        assert process.wait(timeout=120) == 0
    assert machine.describe()["clients"] == []
    machine.tool("reset", 2)


def test_a_job_that_is_killed_holds_nothing(machine: Machine) -> None:
    with machine.job(2) as process:
        process.kill()
        process.wait(timeout=120)
        assert machine.describe()["clients"] == []


@as_client
def test_a_job_on_an_instance_keeps_it_and_leaves_its_neighbours_alone(machine: Machine) -> None:
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
    kept, other = create(gpu(), 14, (0, 1)), create(gpu(), 14, (1, 1))
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(kept, 0)
    with machine.job(0, "--gi", nvml.nvmlGpuInstanceGetInfo(kept).id, "--ci", 0):
        nvml.nvmlGpuInstanceDestroy(other)
        with pytest.raises(nvml.NVMLError_InUse):
            nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlComputeInstanceDestroy(compute)


def test_a_client_in_a_container_is_known_by_its_number_outside(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = tmp_path / "proc"
    (proc / "4242").mkdir(parents=True)
    (proc / "self").symlink_to("4242")
    for name in ("stat", "cmdline"):
        (proc / "4242" / name).write_bytes(Path("/proc/self", name).read_bytes())
    with machine.held() as outside:
        (proc / str(outside.pid)).symlink_to(f"/proc/{outside.pid}")
        with machine.client("print('ready', flush=True)\ninput()", NVML_SIM_PROC=str(proc)) as inside:
            assert inside.stdout is not None
            assert inside.stdout.readline() == "ready\n"
            # In the real one there is no such process, and it would be taken to have ended.
            monkeypatch.setenv("NVML_SIM_PROC", str(proc))
            assert sorted(client["pid"] for client in machine.describe()["clients"]) == sorted([4242, outside.pid])
            inside.communicate("\n", timeout=120)
