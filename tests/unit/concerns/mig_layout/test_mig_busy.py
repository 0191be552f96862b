# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a GPU or its instances: as the driver lists them, and as /proc shows who has device files open."""

from __future__ import annotations

import os
from ctypes import byref
from pathlib import Path
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import holders
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver, Identity
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import busy
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.busy import Holding
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.driver import (
    DriverInstance,
    MigReading,
    read,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import Compute, Instance
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, STATUS_OF_USER, build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

H100 = "hgx-h100-80gb-8"
ID = "9c1f" * 16
CAPABILITIES = "/proc/driver/nvidia/capabilities"
# 3g.40gb and 1g.10gb of an H100.
THREE, ONE = 9, 19


def divide(driver: Driver, index: int, places: Sequence[Tuple[int, int, int]]) -> None:
    """A question: MIG on, with these instances of (profile, start, size), each with compute instances of one slice."""
    nvml, gpu = driver.nvml, driver.gpus()[index].handle
    nvml.nvmlDeviceSetMigMode(gpu, 1)
    for profile, start, size in places:
        place = nvml.c_nvmlGpuInstancePlacement_t(start, size)
        instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, byref(place))
        for _slice in range(2 if profile == THREE else 1):
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)


class Process:
    """A process in the tree: its command, what it has open, its control group and its parent."""

    def __init__(self, command: str, *opened: str, cgroup: str = "/", parent: int = 1, by_root: bool = True) -> None:
        self.command, self.opened, self.cgroup, self.parent = command, opened, cgroup, parent
        self.status = STATUS_OF_ROOT if by_root else STATUS_OF_USER

    def files(self, pid: int) -> Dict[str, str]:
        stat = f"{pid} ({self.command}) S {self.parent} {' '.join(['0'] * 17)} 4711 0\n"
        return {
            f"/proc/{pid}/comm": f"{self.command[:15]}\n",
            f"/proc/{pid}/cgroup": f"0::{self.cgroup}\n",
            f"/proc/{pid}/stat": stat,
            f"/proc/{pid}/status": self.status,
        }

    def links(self, pid: int) -> Dict[str, str]:
        return {f"/proc/{pid}/fd/{number}": path for number, path in enumerate(self.opened, start=3)}


def machine_with(make: MakeMachine, processes: Optional[Mapping[int, Process]] = None) -> GpuMachine:
    """Eight GPUs, the first with a 3g.40gb (two compute instances) at 4, and a 1g.10gb at 0; and these processes."""
    files: Dict[str, str] = {}
    links: Dict[str, str] = {}
    for pid, process in (processes or {}).items():
        files.update(process.files(pid))
        links.update(process.links(pid))
    machine = make(H100, files=files, links=links)
    machine.host.nvml.ask(divide, 0, [(THREE, 4, 4), (ONE, 0, 1)])
    return machine


def readings(machine: GpuMachine, *indexes: int) -> List[MigReading]:
    found = machine.host.nvml.ask(read)
    return [found[index] for index in indexes or (0,)]


def found_on(machine: GpuMachine, index: int = 0, ignore_units: Sequence[str] = ()) -> Tuple[Holding, ...]:
    (reading,) = readings(machine, index)
    found = busy.find(machine.host, [reading], ignore_units=ignore_units)
    assert list(found) == [reading.gpu.uuid]
    return found[reading.gpu.uuid]


def numbers(machine: GpuMachine, start: int) -> Tuple[int, Tuple[int, ...]]:
    """The driver's numbers of the instance that starts there, and of its compute instances."""
    (driver_instance,) = [one for one in readings(machine)[0].instances if one.instance.start == start]
    return driver_instance.number, driver_instance.compute_numbers


def allow(machine: GpuMachine, number: int, compute: Sequence[int], minors: Sequence[int]) -> None:
    """The capabilities of an instance of the first GPU, as the kernel module lists them in /proc."""
    folder = f"{CAPABILITIES}/gpu0/mig/gi{number}"
    for path, minor in zip(["access", *(f"ci{one}/access" for one in compute)], minors):
        target = Path(machine.host.files.locate(f"{folder}/{path}"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def test_a_gpu_that_nobody_uses_has_no_holder(gpu_machine: MakeMachine) -> None:
    assert found_on(machine_with(gpu_machine)) == ()


def test_a_job_is_found_on_its_slices_and_named_by_the_driver_where_proc_does_not(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    three, parts = numbers(machine, 4)
    machine.sim("add-client", 0, "--gi", three, "--ci", parts[1], "--pid", 4711, "--name", "/usr/bin/python3")
    assert found_on(machine) == (Holding("python3 (pid 4711)", 4711, start=4, compute_start=1, work=True),)


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_who_computes_draws_or_serves_mps_works(gpu_machine: MakeMachine, kind: str) -> None:
    machine = machine_with(gpu_machine)
    one, parts = numbers(machine, 0)
    machine.sim("add-client", 0, "--gi", one, "--ci", parts[0], "--pid", 4711, "--name", "job", "--kind", kind)
    assert found_on(machine) == (Holding("job (pid 4711)", 4711, start=0, compute_start=0, work=True),)


def test_on_a_gpu_without_mig_a_job_has_all_of_it(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    machine.sim("add-client", 3, "--pid", 4711, "--name", "job")
    assert found_on(machine, 3) == (Holding("job (pid 4711)", 4711, start=None, compute_start=None, work=True),)
    assert found_on(machine, 0) == ()


def test_a_job_on_two_instances_is_there_twice(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    for start in (0, 4):
        number, parts = numbers(machine, start)
        machine.sim("add-client", 0, "--gi", number, "--ci", parts[0], "--pid", 4711, "--name", "job")
    assert {(one.pid, one.start, one.compute_start) for one in found_on(machine)} == {(4711, 0, 0), (4711, 4, 0)}


def test_who_merely_has_the_device_open_is_found_and_does_not_work(gpu_machine: MakeMachine) -> None:
    machine = machine_with(
        gpu_machine,
        {
            77: Process(
                "dcgm-exporter", "/dev/nvidiactl", "/dev/nvidia0", cgroup="/system.slice/dcgm-exporter.service"
            ),
            78: Process("nvtop", "/dev/nvidia10"),
            79: Process("python3", "/dev/nvidia0", "/dev/nvidia3", cgroup=f"/system.slice/docker-{ID}.scope"),
            80: Process("idle", "/dev/nvidiactl"),
        },
    )
    monitor = Holding("dcgm-exporter (pid 77, dcgm-exporter.service)", 77, None, None, work=False)
    container = Holding(f"python3 (pid 79, container {ID[:12]})", 79, None, None, work=False)
    assert found_on(machine) == (monitor, container)
    assert found_on(machine, 3) == (container,)


def test_who_has_the_capability_of_an_instance_open_holds_that_one(gpu_machine: MakeMachine) -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"
    machine = machine_with(
        gpu_machine,
        {
            81: Process("whole", "/dev/nvidia0", f"{caps}30"),
            82: Process("part", "/dev/nvidia0", f"{caps}30", f"{caps}32"),
            83: Process("config", f"{caps}1"),
        },
    )
    number, parts = numbers(machine, 4)
    allow(machine, number, parts, [30, 31, 32])
    assert found_on(machine) == (
        Holding("whole (pid 81)", 81, start=4, compute_start=None, work=False),
        Holding("part (pid 82)", 82, start=4, compute_start=1, work=False),
    )
    assert found_on(machine, 1) == ()


def test_what_the_driver_and_proc_say_of_a_process_is_one_answer(gpu_machine: MakeMachine) -> None:
    slurm = "/system.slice/slurmstepd.scope/job_42"
    machine = machine_with(
        gpu_machine, {90: Process("train", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30", cgroup=slurm)}
    )
    number, parts = numbers(machine, 4)
    allow(machine, number, parts, [30, 31, 32])
    machine.sim("add-client", 0, "--gi", number, "--ci", parts[0], "--pid", 90, "--name", "other")
    assert found_on(machine) == (Holding("train (pid 90, slurmstepd.scope)", 90, 4, 0, work=True),)


def test_we_ourselves_and_what_is_no_obstacle_are_left_out(gpu_machine: MakeMachine) -> None:
    own = os.getpid()
    dcgm = "/system.slice/nvidia-dcgm.service"
    machine = machine_with(
        gpu_machine,
        {
            own: Process("python3", "/dev/nvidia0"),
            101: Process("python3", "/dev/nvidia0", parent=own),
            102: Process("nvidia-persistenced", "/dev/nvidia0"),
            103: Process("nv-fabricmanager", "/dev/nvidia0"),
            104: Process("nv-hostengine", "/dev/nvidia0", cgroup=dcgm),
            105: Process("python3", "/dev/nvidia0", parent=101),
        },
    )
    everybody = [holding.pid for holding in found_on(machine)]
    assert everybody == [104, 105]
    assert [holding.pid for holding in found_on(machine, ignore_units=["nvidia-dcgm.service", "gone.service"])] == [105]


def test_a_job_with_the_name_of_a_daemon_is_an_obstacle(gpu_machine: MakeMachine) -> None:
    names = ("nvidia-persistenced", "nv-fabricmanager")
    units = ("nvidia-persistenced", "nvidia-fabricmanager")
    jobs = {101 + number: Process(name, "/dev/nvidia0", by_root=False) for number, name in enumerate(names)}
    daemons = {
        201 + number: Process(name, "/dev/nvidia0", by_root=False, cgroup=f"/system.slice/{unit}.service")
        for number, (name, unit) in enumerate(zip(names, units))
    }
    machine = machine_with(gpu_machine, {**jobs, **daemons})
    assert [holding.pid for holding in found_on(machine)] == [101, 102]


def test_a_daemon_that_runs_as_a_user_of_its_own_is_told_by_its_program(gpu_machine: MakeMachine) -> None:
    """As ``nvidia-persistenced --user`` is where root starts it without its unit."""
    installed = {name: f"/usr/bin/{name}" for name in ("nvidia-persistenced", "nv-fabricmanager", "python3")}
    jobs = {101 + number: Process(name, "/dev/nvidia0", by_root=False) for number, name in enumerate(installed)}
    machine = machine_with(gpu_machine, jobs)
    build(machine.root, dict.fromkeys(installed.values(), "\x7fELF\n"))
    for pid, path in zip(jobs, ("/usr/bin/nvidia-persistenced", "/usr/bin/python3", "/usr/bin/python3")):
        (machine.root / f"proc/{pid}/exe").symlink_to(path)
    assert [holding.pid for holding in found_on(machine)] == [102, 103]


def test_a_unit_that_is_stopped_takes_its_work_with_it(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine, {104: Process("nv-hostengine", cgroup="/system.slice/nvidia-dcgm.service")})
    machine.sim("add-client", 0, "--pid", 104, "--name", "nv-hostengine")
    (holding,) = found_on(machine)
    assert (holding.name, holding.work) == ("nv-hostengine (pid 104, nvidia-dcgm.service)", True)
    assert found_on(machine, ignore_units=["nvidia-dcgm.service"]) == ()


def test_a_process_of_which_nobody_knows_a_name_is_told_by_its_number(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    machine.sim("add-client", 3, "--pid", 4711)
    machine.sim("fail", "nvmlSystemGetProcessName", "NVML_ERROR_NOT_FOUND", 0)
    assert [holding.name for holding in found_on(machine, 3)] == ["? (pid 4711)"]


def test_a_driver_that_lists_processes_only_on_mig_devices_is_asked_there(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    number, parts = numbers(machine, 4)
    machine.sim("add-client", 0, "--gi", number, "--ci", parts[1], "--pid", 4711, "--name", "job")
    for symbol in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
        machine.sim("fail", symbol, "NVML_ERROR_NO_PERMISSION", 1)
    assert found_on(machine) == (Holding("job (pid 4711)", 4711, start=4, compute_start=1, work=True),)


def test_a_driver_that_knows_only_the_second_version_of_the_lists_is_understood(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    number, parts = numbers(machine, 0)
    machine.sim("add-client", 0, "--gi", number, "--ci", parts[0], "--pid", 4711, "--name", "job")
    for what in ("Compute", "Graphics", "MPSCompute"):
        machine.sim("hide", f"nvmlDeviceGet{what}RunningProcesses_v3")
    machine.connect()
    assert found_on(machine) == (Holding("job (pid 4711)", 4711, start=0, compute_start=0, work=True),)


def test_a_lost_gpu_is_not_asked(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    machine.sim("lose", 1)
    machine.connect()
    asked = readings(machine, 0, 1)
    assert list(busy.find(machine.host, asked, ignore_units=())) == [asked[0].gpu.uuid]


# What is in use of an instance

READING = MigReading(
    Identity(0, "GPU-0"),
    mode=(True, True),
    instances=(
        DriverInstance(Instance(0, 19, (Compute(0, 1),)), 9, (0,)),
        DriverInstance(Instance(2, 14), 5, ()),
        DriverInstance(Instance(4, 9, (Compute(0, 1), Compute(1, 2))), 1, (0, 1)),
    ),
)
EVERY: Mapping[int, FrozenSet[int]] = {0: frozenset({0}), 2: frozenset(), 4: frozenset({0, 1})}


@pytest.mark.parametrize(
    ("holdings", "expected"),
    [
        ([], {}),
        ([Holding("m", 1, None, None, work=False)], {}),
        ([Holding("a", 1, 0, 0, work=True)], {0: frozenset({0})}),
        ([Holding("a", 1, 4, 1, work=True)], {4: frozenset({1})}),
        ([Holding("a", 1, 4, None, work=False)], {4: frozenset({0, 1})}),
        ([Holding("a", 1, 2, None, work=True)], {2: frozenset()}),
        ([Holding("a", 1, 4, 1, work=True), Holding("b", 2, 4, 0, work=False)], {4: frozenset({0, 1})}),
        ([Holding("a", 1, 4, 1, work=True), Holding("m", 2, None, None, work=False)], {4: frozenset({1})}),
        ([Holding("nobody knows where", 1, None, None, work=True)], EVERY),
    ],
)
def test_instances_are_busy_where_somebody_uses_them(
    holdings: List[Holding], expected: Mapping[int, FrozenSet[int]]
) -> None:
    assert busy.busy_of(holdings, READING) == expected


def test_an_instance_that_came_after_the_look_is_not_taken_for_one_of_those_seen(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine)
    (reading,) = readings(machine)
    number, parts = numbers(machine, 4)
    machine.sim("add-client", 0, "--gi", number, "--ci", parts[0], "--pid", 4711, "--name", "job")
    earlier = MigReading(reading.gpu, mode=(True, True), instances=READING.instances[:1])
    found = busy.find(machine.host, [earlier], ignore_units=())[reading.gpu.uuid]
    assert found == (Holding("job (pid 4711)", 4711, start=None, compute_start=None, work=True),)


# Kernel modules

DRM = "/sys/module/nvidia_drm/parameters/modeset"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, ()),
        ({"/sys/module/nvidia_drm/refcnt": "0\n"}, ()),
        ({DRM: "N\n"}, ()),
        ({DRM: "Y\n"}, ("nvidia_drm with modeset=Y (unload it by modprobe -r nvidia_drm, or load it with modeset=0)",)),
        (
            {"/sys/module/nv_peer_mem/refcnt": "0\n"},
            ("nv_peer_mem (unload it by modprobe -r nv_peer_mem, and load it again afterwards)",),
        ),
        ({"/sys/module/nvidia_peermem/refcnt": "0\n", "/sys/module/nvidia_uvm/refcnt": "4\n"}, ()),
    ],
)
def test_kernel_modules_that_keep_gpus_from_a_reset_are_named_with_what_to_do(
    tmp_path: Path, tree: Dict[str, str], expected: Tuple[str, ...]
) -> None:
    assert holders.kernel_modules(build(tmp_path, tree).files) == expected
