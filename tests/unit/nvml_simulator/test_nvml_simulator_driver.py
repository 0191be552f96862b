# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the simulated driver behaves: settings and who loses them, clients, privileges, faults, many processes."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machine,
    again,
    answer,
    as_client,
    as_user,
    create,
    gpu,
    in_another_process,
    instances,
    kind,
    layout,
    load,
    placements,
    profiles,
    refused,
    tool_of,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once

AMPERE = kind("hgx-a100-80gb-8")


def settings(device: Any) -> Dict[str, Any]:
    """What a driver reload loses."""
    return {
        "power": nvml.nvmlDeviceGetPowerManagementLimit(device),
        "compute mode": nvml.nvmlDeviceGetComputeMode(device),
        "clock": nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_GRAPHICS),
        "accounting": nvml.nvmlDeviceGetAccountingMode(device),
    }


def change_settings(device: Any) -> Dict[str, Any]:
    nvml.nvmlDeviceSetPowerManagementLimit(device, 400_000)
    nvml.nvmlDeviceSetComputeMode(device, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    nvml.nvmlDeviceSetGpuLockedClocks(device, 1200, 1500)
    nvml.nvmlDeviceSetAccountingMode(device, 1)
    return settings(device)


# Settings and persistence


@as_client
def test_settings_are_lost_with_the_last_client_unless_persistence_is_on(machine: Machine) -> None:
    defaults = settings(gpu(0))
    nvml.nvmlDeviceSetPersistenceMode(gpu(1), 1)
    changed = [change_settings(gpu(index)) for index in (0, 1)]
    assert changed[0] == changed[1]
    assert {name for name in defaults if defaults[name] == changed[0][name]} == set()
    again()
    assert settings(gpu(0)) == defaults
    assert settings(gpu(1)) == changed[1]


@as_client
def test_settings_stay_while_any_other_process_is_a_client(machine: Machine) -> None:
    with machine.held():
        changed = change_settings(gpu())
        again()
        assert settings(gpu()) == changed


@as_client
def test_settings_are_lost_when_the_last_client_dies(machine: Machine) -> None:
    defaults = settings(gpu())
    nvml.nvmlShutdown()
    with machine.held() as process:
        nvml.nvmlInit()
        change_settings(gpu())
        nvml.nvmlShutdown()
        process.kill()
        process.wait()
    nvml.nvmlInit()
    assert settings(gpu()) == defaults


@as_client
def test_volatile_error_counters_go_with_the_driver_state_and_aggregate_ones_stay(machine: Machine) -> None:
    def errors(counter: int) -> int:
        return int(nvml.nvmlDeviceGetTotalEccErrors(gpu(), nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, counter))

    machine.tool("set", 0, "ecc_volatile_uncorrected=3", "ecc_aggregate_uncorrected=5")
    assert (errors(nvml.NVML_VOLATILE_ECC), errors(nvml.NVML_AGGREGATE_ECC)) == (3, 5)
    again()
    assert (errors(nvml.NVML_VOLATILE_ECC), errors(nvml.NVML_AGGREGATE_ECC)) == (0, 5)


@pytest.mark.parametrize("event", ["reset", "reload-driver", "reboot"])
@as_client
def test_a_reset_reload_or_reboot_gives_settings_back_to_the_driver(machine: Machine, event: str) -> None:
    defaults = settings(gpu())
    old = gpu()
    nvml.nvmlDeviceSetPersistenceMode(old, 1)
    change_settings(old)
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(old) > 0
    nvml.nvmlShutdown()
    machine.tool(event)
    nvml.nvmlInit()
    assert answer(nvml.nvmlDeviceGetName, old) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert settings(gpu()) == defaults
    assert nvml.nvmlDeviceGetPersistenceMode(gpu()) == 0
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 0, "it is counted since the driver took the GPU up"


@pytest.mark.parametrize("event", ["reset", "reload-driver", "reboot"])
@as_client
def test_ecc_is_pending_until_a_reset_reload_or_reboot(machine: Machine, event: str) -> None:
    nvml.nvmlDeviceSetEccMode(gpu(), 0)
    assert nvml.nvmlDeviceGetEccMode(gpu()) == [1, 0]
    again()
    assert nvml.nvmlDeviceGetEccMode(gpu()) == [1, 0]
    nvml.nvmlShutdown()
    machine.tool(event)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetEccMode(gpu()) == [0, 0]
    assert nvml.nvmlDeviceGetEccMode(gpu(1)) == [1, 1]


@as_client
def test_a_host_of_virtual_gpus_has_no_persistence_mode_to_set(machine: Machine) -> None:
    machine.tool("set", 0, f"virtualization_mode={nvml.NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU}")
    with refused(nvml.NVML_ERROR_NOT_SUPPORTED):
        nvml.nvmlDeviceSetPersistenceMode(gpu(), 1)


@as_client
def test_clocks_follow_the_lock_and_the_load(machine: Machine) -> None:
    def clock() -> int:
        return int(nvml.nvmlDeviceGetClockInfo(gpu(), nvml.NVML_CLOCK_GRAPHICS))

    idle = clock()
    client = machine.tool("add-client", 0, "--kind", "compute")
    assert idle < clock() == nvml.nvmlDeviceGetMaxClockInfo(gpu(), nvml.NVML_CLOCK_GRAPHICS)
    nvml.nvmlDeviceSetGpuLockedClocks(gpu(), 1000, 1500)
    assert clock() == 1500
    machine.tool("remove-client", client)
    assert clock() == 1000
    nvml.nvmlDeviceResetGpuLockedClocks(gpu())
    assert clock() == idle


@as_client
def test_a_value_out_of_range_changes_nothing(machine: Machine) -> None:
    before = settings(gpu())
    lowest, highest = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu())
    top = nvml.nvmlDeviceGetMaxClockInfo(gpu(), nvml.NVML_CLOCK_GRAPHICS)
    for call in (
        lambda: nvml.nvmlDeviceSetPowerManagementLimit(gpu(), lowest - 1),
        lambda: nvml.nvmlDeviceSetPowerManagementLimit(gpu(), highest + 1),
        lambda: nvml.nvmlDeviceSetGpuLockedClocks(gpu(), top + 500, top + 600),
        lambda: nvml.nvmlDeviceSetComputeMode(gpu(), 17),
        lambda: nvml.nvmlDeviceSetPersistenceMode(gpu(), 2),
    ):
        with refused(nvml.NVML_ERROR_INVALID_ARGUMENT):
            call()
    assert settings(gpu()) == before
    assert all(result != 0 for symbol, result in machine.changes())


# Clients


@AMPERE
@as_client
def test_a_process_is_a_client_from_nvmlinit_to_nvmlshutdown(machine: Machine) -> None:
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    message = machine.refusal("reset", 3)
    assert str(os.getpid()) in message, "one nvmlInit is still open"
    nvml.nvmlShutdown()
    machine.tool("reset", 3)
    with refused(nvml.NVML_ERROR_UNINITIALIZED):
        nvml.nvmlDeviceGetCount()


@AMPERE
@as_client
def test_a_dead_process_holds_nothing(machine: Machine) -> None:
    nvml.nvmlShutdown()
    with machine.held() as process:
        assert str(process.pid) in machine.refusal("reset")
        process.kill()
        process.wait()
        machine.tool("reset")


@as_client
def test_a_process_id_that_is_used_again_is_another_process(machine: Machine) -> None:
    machine.tool("add-client", 0, "--pid", os.getppid(), "--name", "trainer")
    assert "trainer" in [client["name"] for client in machine.describe()["clients"]]
    tool_of(machine.built).Simulator().control("set", "client.1.start_time=1")
    assert [client["pid"] for client in machine.describe()["clients"]] == [os.getpid()]


@as_client
def test_a_child_of_a_client_is_a_client_of_its_own(machine: Machine) -> None:
    nvml.nvmlDeviceSetPersistenceMode(gpu(), 1)

    def work() -> None:
        nvml.nvmlInit()
        assert nvml.nvmlDeviceGetPersistenceMode(gpu()) == 1
        nvml.nvmlShutdown()

    in_another_process(work)
    assert nvml.nvmlDeviceGetPersistenceMode(gpu()) == 1


def test_clients_are_seen_in_the_process_lists_of_their_kind(machine: Machine) -> None:
    for number, what in enumerate(("compute", "graphics", "mps", "monitor")):
        machine.tool("add-client", 0, "--kind", what, "--pid", 101 + number, "--memory", 7, "--name", f"a-{what}")
    lists = [f"[one.pid for one in nvmlDeviceGet{what}RunningProcesses(gpu[0])]" for what in ("Compute", "Graphics")]
    mps = "[one.pid for one in nvmlDeviceGetMPSComputeRunningProcesses(gpu[0])]"
    assert machine.elsewhere(f"[{lists[0]}, {lists[1]}, {mps}]") == [[101], [102], [103]]
    assert machine.elsewhere("[len(nvmlDeviceGetComputeRunningProcesses(one)) for one in gpu]") == [1] + [0] * 7
    machine.tool("remove-client", "--all")
    assert machine.elsewhere(f"[{lists[0]}, {lists[1]}, {mps}]") == [[], [], []]


def test_a_reset_names_who_is_in_the_way(machine: Machine) -> None:
    machine.tool("add-client", 2, "--name", "dcgm-exporter", "--pid", 4711)
    message = machine.refusal("reset", 2)
    assert "dcgm-exporter" in message
    assert "4711" in message
    assert "dcgm-exporter" in machine.refusal("reload-driver")
    machine.tool("reset", 1)
    machine.tool("reboot")
    machine.tool("reset", 2)


# Privileges


@as_client
def test_who_is_not_root_changes_nothing(machine: Machine) -> None:
    device = gpu()
    nvml.nvmlDeviceSetMigMode(gpu(1), 1)
    made = create(gpu(1), 9)
    state = settings(device)
    as_user()
    for call in CHANGES:
        with refused(nvml.NVML_ERROR_NO_PERMISSION):
            call(gpu())
    for call in (
        lambda: create(gpu(1), 19),
        lambda: placements(gpu(1), 9),
        lambda: instances(gpu(1), 9),
        lambda: nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(1), 9),
    ):
        with refused(nvml.NVML_ERROR_NO_PERMISSION):
            call()
    with refused(nvml.NVML_ERROR_NO_PERMISSION):
        nvml.nvmlGpuInstanceDestroy(made)
    assert sorted(profiles(gpu(1))) == [0, 5, 9, 14, 15, 19, 20]
    assert settings(gpu()) == state
    assert nvml.nvmlDeviceGetMigMode(gpu(1)) == [1, 1]


CHANGES: List[Callable[[Any], Any]] = [
    lambda device: nvml.nvmlDeviceSetMigMode(device, 1),
    lambda device: nvml.nvmlDeviceSetPersistenceMode(device, 1),
    lambda device: nvml.nvmlDeviceSetPowerManagementLimit(device, 500_000),
    lambda device: nvml.nvmlDeviceSetComputeMode(device, 3),
    lambda device: nvml.nvmlDeviceSetEccMode(device, 0),
    lambda device: nvml.nvmlDeviceSetGpuLockedClocks(device, 1000, 1500),
    lambda device: nvml.nvmlDeviceResetGpuLockedClocks(handle=device),
    lambda device: nvml.nvmlDeviceSetMemoryLockedClocks(device, 1593, 2619),
    lambda device: nvml.nvmlDeviceResetMemoryLockedClocks(handle=device),
]


# Faults


@as_client
def test_a_fault_answers_as_often_as_it_was_told(machine: Machine) -> None:
    machine.tool("fail", "nvmlDeviceGetName", "NVML_ERROR_UNKNOWN", 2)
    answers = [answer(nvml.nvmlDeviceGetName, gpu()) for turn in range(3)]
    assert answers == [999, 999, "NVIDIA H100 80GB HBM3"]
    machine.tool("fail", "nvmlDeviceGetName", 15, 0)
    assert {answer(nvml.nvmlDeviceGetName, gpu()) for turn in range(20)} == {15}
    machine.tool("heal", "nvmlDeviceGetName")
    assert answer(nvml.nvmlDeviceGetName, gpu()) == "NVIDIA H100 80GB HBM3"


@as_client
def test_a_fault_of_nvmlinit_is_seen_by_the_next_client(machine: Machine) -> None:
    nvml.nvmlShutdown()
    machine.tool("fail", "nvmlInitWithFlags", "NVML_ERROR_NO_PERMISSION")
    with refused(nvml.NVML_ERROR_NO_PERMISSION):
        nvml.nvmlInit()
    nvml.nvmlInit()


@as_client
def test_a_symbol_can_be_missing_as_in_an_older_driver(machine: Machine) -> None:
    machine.tool("hide", "nvmlDeviceGetGpuFabricInfoV")
    with refused(nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
        nvml.nvmlDeviceGetGpuFabricInfoV(gpu(), nvml.byref(nvml.c_nvmlGpuFabricInfo_v2_t()))
    machine.tool("heal", "nvmlDeviceGetGpuFabricInfoV")
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu(), nvml.byref(nvml.c_nvmlGpuFabricInfo_v2_t()))


def test_a_hanging_call_stops_its_caller_and_nobody_else(machine: Machine) -> None:
    machine.tool("hang", "nvmlDeviceGetName")
    script = (
        "gpu = nvmlDeviceGetHandleByIndex(0)\nprint('asking', flush=True)\nnvmlDeviceGetName(gpu)\nprint('answered')"
    )
    with machine.client(script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
        assert machine.elsewhere("[nvmlDeviceGetUUID(gpu[0])[:4], nvmlDeviceGetPersistenceMode(gpu[0])]") == ["GPU-", 0]
        machine.tool("describe")
        assert process.poll() is None, "it hangs"
        process.kill()
        assert process.stdout.read() == ""
    machine.tool("heal", "nvmlDeviceGetName")
    assert machine.elsewhere("nvmlDeviceGetName(gpu[0])") == "NVIDIA H100 80GB HBM3"


@as_client
def test_a_call_that_hangs_for_a_while_answers_then(machine: Machine) -> None:
    machine.tool("hang", "nvmlDeviceGetName", 0.2)
    begin = time.monotonic()
    assert nvml.nvmlDeviceGetName(gpu()) == "NVIDIA H100 80GB HBM3"
    assert 0.2 <= time.monotonic() - begin < 5


@as_client
def test_a_lost_gpu_says_so_and_leaves_the_others_alone(machine: Machine) -> None:
    devices = [gpu(index) for index in range(8)]
    name = nvml.nvmlDeviceGetName(devices[3])
    machine.tool("lose", 3)
    assert nvml.nvmlDeviceGetCount() == 8
    for call in (nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetMigMode, nvml.nvmlDeviceGetPowerManagementLimit):
        assert answer(call, devices[3]) == nvml.NVML_ERROR_GPU_IS_LOST
    assert [answer(nvml.nvmlDeviceGetName, device) for device in devices] == [
        nvml.NVML_ERROR_GPU_IS_LOST if index == 3 else name for index in range(8)
    ]
    machine.tool("find", 3)
    assert nvml.nvmlDeviceGetName(devices[3]) == name
    machine.tool("lose", 3)
    nvml.nvmlShutdown()
    machine.tool("reboot")
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetName(gpu(3)) == name


@as_client
def test_the_driver_can_be_missing_or_older_than_the_library(machine: Machine) -> None:
    nvml.nvmlShutdown()
    machine.tool("unload-driver")
    with refused(nvml.NVML_ERROR_DRIVER_NOT_LOADED):
        nvml.nvmlInit()
    machine.tool("load-driver")
    machine.tool("mismatch", "on")
    with refused(nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH):
        nvml.nvmlInit()
    machine.tool("mismatch", "off")
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    os.environ["NVML_SIM_STATE"] = f"{machine.state}.none"
    with refused(nvml.NVML_ERROR_DRIVER_NOT_LOADED):
        nvml.nvmlInit()


@as_client
def test_the_driver_does_not_go_while_it_is_in_use(machine: Machine) -> None:
    assert str(os.getpid()) in machine.refusal("unload-driver")
    assert str(os.getpid()) in machine.refusal("reload-driver")
    assert nvml.nvmlDeviceGetCount() == 8


@pytest.mark.parametrize("content", [b"", b"not a state", b"\0" * 100_000], ids=["empty", "text", "zeros"])
@as_client
def test_a_file_that_is_no_state_is_refused(machine: Machine, content: bytes) -> None:
    nvml.nvmlShutdown()
    machine.state.write_bytes(content)
    with refused(nvml.NVML_ERROR_UNKNOWN):
        nvml.nvmlInit()
    assert str(machine.state) in machine.refusal("describe")


@as_client
def test_a_state_of_another_build_is_refused_even_if_it_is_as_long(machine: Machine) -> None:
    nvml.nvmlShutdown()
    content = bytearray(machine.state.read_bytes())
    content[16] ^= 1  # in the number that stands for the layout
    machine.state.write_bytes(content)
    with refused(nvml.NVML_ERROR_UNKNOWN):
        nvml.nvmlInit()
    assert machine.refusal("describe") == f"nvml-sim: {machine.state} is not a state of this build: create it again"


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F, 0xFF])
@as_client
def test_a_damaged_state_is_refused(machine: Machine, byte: int) -> None:
    nvml.nvmlShutdown()
    content = machine.state.read_bytes()
    machine.state.write_bytes(content[:24] + bytes([byte]) * (len(content) - 24))
    with refused(nvml.NVML_ERROR_UNKNOWN):
        nvml.nvmlInit()
    assert machine.refusal("describe").startswith(f"nvml-sim: {machine.state} is damaged (")


@as_client
def test_a_state_that_no_one_may_write_is_a_matter_of_permissions(machine: Machine) -> None:
    nvml.nvmlShutdown()
    machine.state.chmod(0o444)
    if os.geteuid() == 0:
        os.setuid(65534)
    with refused(nvml.NVML_ERROR_NO_PERMISSION):
        nvml.nvmlInit()


@as_client
def test_a_folder_in_the_place_of_the_state_is_an_unknown_error(machine: Machine) -> None:
    nvml.nvmlShutdown()
    machine.state.unlink()
    machine.state.mkdir()
    with refused(nvml.NVML_ERROR_UNKNOWN):
        nvml.nvmlInit()
    assert machine.refusal("describe") == f"nvml-sim: cannot open {machine.state}: Is a directory"


@as_client
def test_a_state_cut_under_a_client_ends_its_nvml_and_not_its_process(machine: Machine) -> None:
    os.truncate(machine.state, 0)
    for _attempt in range(2):
        with refused(nvml.NVML_ERROR_UNINITIALIZED):
            nvml.nvmlDeviceGetCount()
    with refused(nvml.NVML_ERROR_UNKNOWN):
        nvml.nvmlInit()


@as_client
def test_a_machine_created_anew_is_another_driver_to_its_clients(machine: Machine) -> None:
    nvml.nvmlInit()
    machine.tool("create", "l40s-1", "--force")
    with refused(nvml.NVML_ERROR_UNINITIALIZED):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1
    assert [client["pid"] for client in machine.describe()["clients"]] == [os.getpid()]
    nvml.nvmlShutdown()
    assert machine.describe()["clients"] == []


# The log


@as_client
def test_the_log_tells_changes_from_reads(machine: Machine) -> None:
    machine.tool("log", "--clear")
    nvml.nvmlDeviceGetPowerManagementLimit(gpu())
    assert machine.changes() == []
    nvml.nvmlDeviceSetPowerManagementLimit(gpu(), 500_000)
    answer(nvml.nvmlDeviceSetPowerManagementLimit, gpu(), 1)
    assert machine.changes() == [
        ("nvmlDeviceSetPowerManagementLimit", 0),
        ("nvmlDeviceSetPowerManagementLimit", nvml.NVML_ERROR_INVALID_ARGUMENT),
    ]
    machine.tool("log", "--clear")
    assert machine.changes() == []


@as_client
def test_the_log_says_who_called_what_about_which_gpu(machine: Machine) -> None:
    machine.tool("log", "--clear")
    nvml.nvmlDeviceGetName(gpu(5))
    calls = [call for call in machine.log() if call["pid"] == os.getpid()]
    assert [(call["symbol"], call["gpu"], call["result"]) for call in calls] == [
        ("nvmlDeviceGetHandleByIndex_v2", 5, 0),
        ("nvmlDeviceGetName", 5, 0),
    ]
    assert calls[0]["sequence"] < calls[1]["sequence"]


# Many processes


def together(machine: Machine, count: int, work: Callable[[int], None]) -> None:
    """``count`` clients run ``work`` at the same time, each with its number."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)
                load(machine)
                nvml.nvmlInit()
                work(number)
                nvml.nvmlShutdown()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * count


def test_twenty_processes_at_once_lose_no_update(machine: Machine, tmp_path: Path) -> None:
    machine.elsewhere("[nvmlDeviceSetMigMode(one, 1) for one in gpu]")
    machine.tool("fail", "nvmlDeviceGetSerial", 999, 300)
    machine.tool("log", "--clear")

    def work(number: int) -> None:
        made = failed = 0
        for turn in range(20):
            device = gpu((number + turn) % 8)
            made += not isinstance(answer(create, device, 19), int)
            failed += answer(nvml.nvmlDeviceGetSerial, device) == 999
        (tmp_path / f"{number}.made").write_text(str(made))
        (tmp_path / f"{number}.failed").write_text(str(failed))

    together(machine, 20, work)
    assert sum(int(path.read_text()) for path in tmp_path.glob("*.made")) == 8 * 7
    assert sum(int(path.read_text()) for path in tmp_path.glob("*.failed")) == 300
    assert [result for symbol, result in machine.changes() if symbol == "nvmlDeviceCreateGpuInstance"].count(0) == 56

    def look() -> None:
        load(machine)
        nvml.nvmlInit()
        for index in range(8):
            assert layout(gpu(index)) == [(19, start, 1) for start in range(7)]
            ids = {nvml.nvmlGpuInstanceGetInfo(one).id for one in instances(gpu(index), 19)}
            assert len(ids) == 7

    in_another_process(look)
    assert [client for client in machine.describe()["clients"] if client["kind"] != "monitor"] == []


@as_client
def test_threads_of_one_process_do_not_wait_for_one_that_hangs(machine: Machine) -> None:
    machine.tool("hang", "nvmlDeviceGetSerial")

    def change(index: int) -> Any:
        for watts in range(300, 400):
            nvml.nvmlDeviceSetPowerManagementLimit(gpu(index), watts * 1000)
        return nvml.nvmlDeviceGetPowerManagementLimit(gpu(index))

    with ThreadPoolExecutor(9) as pool:
        waiting = pool.submit(lambda: nvml.nvmlDeviceGetSerial(gpu()))
        assert list(pool.map(change, range(8))) == [399_000] * 8
        assert not waiting.done()
        tool_of(machine.built).Simulator().heal("nvmlDeviceGetSerial")
        assert waiting.result(timeout=60).isdecimal()


def test_a_client_killed_in_the_middle_of_its_calls_leaves_a_state_that_works(machine: Machine) -> None:
    machine.elsewhere("nvmlDeviceSetMigMode(gpu[0], 1)")
    generator = random.Random(3)

    def work() -> None:
        load(machine)
        nvml.nvmlInit()
        while True:
            for instance in instances(gpu(), 14):
                nvml.nvmlGpuInstanceDestroy(instance)
            for start in (0, 2, 4):
                create(gpu(), 14, (start, 2))

    def look() -> None:
        load(machine)
        nvml.nvmlInit()
        assert layout(gpu()) in [[(14, start, 2) for start in (0, 2, 4) if start in kept] for kept in KEPT]
        for profile in profiles(gpu()):
            placements(gpu(), profile)

    for _child in range(12):
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(1)
        time.sleep(generator.uniform(0.005, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        in_another_process(look)
    machine.tool("reset")


def test_a_killed_client_leaves_no_lock_with_its_forked_children(machine: Machine) -> None:
    reader, writer = os.pipe()

    def parent() -> None:
        load(machine)
        nvml.nvmlInit()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until the test ends
            os._exit(0)
        held = [number for number in os.listdir("/proc/self/fd") if is_state(number)]
        assert len(held) == 1
        fcntl.flock(int(held[0]), fcntl.LOCK_EX)  # as in the middle of a call
        os.kill(os.getpid(), signal.SIGKILL)

    def is_state(number: str) -> bool:
        try:
            return os.readlink(f"/proc/self/fd/{number}") == str(machine.state)
        except FileNotFoundError:
            return False

    child = os.fork()
    if child == 0:
        try:
            parent()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    try:
        assert len(machine.describe()["gpus"]) == 8
    finally:
        os.close(writer)
        os.close(reader)


# Any subset of the three placements.
KEPT = [{start for bit, start in enumerate((0, 2, 4)) if number & 1 << bit} for number in range(8)]
