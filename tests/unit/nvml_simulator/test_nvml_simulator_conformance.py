# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every exported function of the NVML simulator answers to the unmodified nvidia-ml-py, and to wrong use."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from ctypes import byref, c_uint, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, Set, Tuple

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    LIBRARY,
    Machine,
    Machines,
    as_client,
    create,
    gpu,
    in_another_process,
    kind,
    load,
    name_of,
    refused,
)
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_table import ROWS, Bench, Error, OneOf

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once
# A driver that has every function.
MACHINE = ("hgx-h100-80gb-8", "--driver", "610.43.02")
INVALID_ARGUMENT = nvml.NVML_ERROR_INVALID_ARGUMENT


# What may be asked before nvmlInit.
ALWAYS = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlSystemGetNVMLVersion"}


def exported(machine: Machine) -> Set[str]:
    """The functions of NVML in the library, as its symbol table says."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(machine.built / LIBRARY)], check=True, text=True, capture_output=True
    )
    return set(re.findall(r" T (nvml(?!Sim)[A-Z]\w+)$", listing.stdout, re.MULTILINE))


def differs(got: Any, expected: Any) -> bool:
    """Whether an answer is not what its row says."""
    if isinstance(expected, Error):
        return not isinstance(got, nvml.NVMLError) or got.value != expected.code
    if isinstance(expected, OneOf):
        return (got.value if isinstance(got, nvml.NVMLError) else got) not in expected.values
    if isinstance(got, nvml.NVMLError):
        return True
    if isinstance(expected, type):
        return not isinstance(got, expected) or isinstance(got, bool)
    if isinstance(expected, list) and expected and isinstance(expected[0], type):
        return not isinstance(got, list) or not got or any(differs(one, expected[0]) for one in got)
    if isinstance(expected, str):
        return not isinstance(got, str) or not re.fullmatch(expected, got)
    return bool(got != expected) or isinstance(got, bytes)


def shown(got: Any) -> str:
    return name_of(got.value) if isinstance(got, nvml.NVMLError) else repr(got)


def test_every_exported_function_has_a_row_and_every_row_a_function(machine: Machine) -> None:
    assert sorted(exported(machine) ^ set(ROWS)) == []


def test_every_export_is_a_function_of_nvml(machine: Machine) -> None:
    header = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(nvml.__file__).read_text()))
    # The versions before those that pynvml resolves; NVML keeps them for older programs.
    older = {
        "nvmlInit",
        "nvmlInit_v2",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetGraphicsRunningProcesses",
        "nvmlDeviceGetMPSComputeRunningProcesses",
        "nvmlDeviceGetNvLinkRemotePciInfo",
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        "nvmlComputeInstanceGetInfo",
        "nvmlDeviceGetAttributes",
        "nvmlDeviceGetGridLicensableFeatures",
        "nvmlDeviceGetGridLicensableFeatures_v2",
        "nvmlDeviceGetGridLicensableFeatures_v3",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetPciInfo_v2",
        "nvmlEventSetWait",
    }
    assert sorted(exported(machine) - header - older) == []


@as_client
def test_every_function_answers_with_the_right_type_or_the_documented_error(machine: Machine) -> None:
    on = Bench()
    wrong = []
    for symbol, calls in ROWS.items():
        for call, expected in calls:
            got: Any
            try:
                got = call(on)
            except nvml.NVMLError as error:
                got = error
            if differs(got, expected):
                wrong.append(f"{symbol}: {shown(got)}, expected {expected!r}")
    assert not wrong, "\n".join(wrong)


def test_before_nvmlinit_every_function_says_uninitialized(machine: Machine) -> None:
    def work() -> None:
        library = load(machine)
        answers = {name: getattr(library, name)(*[None] * 6) for name in exported(machine) - ALWAYS}
        assert {name: code for name, code in answers.items() if code != nvml.NVML_ERROR_UNINITIALIZED} == {}

    in_another_process(work)


@pytest.mark.parametrize("rubbish", [None, 0xDEADBEEF, 2**64 - 1])
@as_client
def test_a_handle_that_nvml_never_gave_is_an_invalid_argument(machine: Machine, rubbish: Any) -> None:
    takes_a_handle = re.compile(r"nvml(Device(?!GetCount|GetHandle)|GpuInstance|ComputeInstance)")
    answers = {}
    for name in filter(takes_a_handle.match, exported(machine)):
        room = ctypes.create_string_buffer(4096)
        answers[name] = getattr(nvml.nvmlLib, name)(c_void_p(rubbish), room, room, room, room, room)
    assert {name: name_of(code) for name, code in answers.items() if code != INVALID_ARGUMENT} == {}


@as_client
def test_a_getter_without_room_for_its_answer_refuses(machine: Machine) -> None:
    on = Bench()
    answers = {}
    for name in exported(machine):
        first = {"nvmlDeviceGet": on.gpu, "nvmlGpuInstanceGet": on.gi, "nvmlComputeInstanceGet": on.ci}
        for prefix, handle_of in first.items():
            if name.startswith(prefix) and not name.startswith(("nvmlDeviceGetHandle", "nvmlDeviceGetCount")):
                answers[name] = getattr(nvml.nvmlLib, name)(handle_of, None, None, None, None, None)
    refusals = {INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INSUFFICIENT_SIZE}
    assert {name: code for name, code in answers.items() if code not in refusals} == {}


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceGetName",
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetVbiosVersion",
        "nvmlDeviceGetBoardPartNumber",
        "nvmlDeviceGetInforomImageVersion",
    ],
)
@as_client
def test_a_buffer_too_small_for_a_text_is_an_error_and_stays_untouched(machine: Machine, name: str) -> None:
    room = ctypes.create_string_buffer(b"?" * 8)
    assert getattr(nvml.nvmlLib, name)(gpu(), room, c_uint(4)) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert room.raw == b"?" * 8 + b"\0"


@as_client
def test_lists_say_how_much_room_they_need(machine: Machine) -> None:
    machine.tool("add-client", 0, "--kind", "compute", "--pid", os.getpid(), "--memory", 100)
    machine.tool("add-client", 0, "--kind", "compute", "--pid", os.getppid(), "--memory", 100)
    count = c_uint(1)
    room = (nvml.c_nvmlProcessInfo_t * 4)()
    call = nvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3
    assert (call(gpu(), byref(count), room), count.value) == (nvml.NVML_ERROR_INSUFFICIENT_SIZE, 2)
    count = c_uint(4)
    assert (call(gpu(), byref(count), room), count.value) == (0, 2)
    assert {room[0].pid, room[1].pid} == {os.getpid(), os.getppid()}
    assert room[0].usedGpuMemory == 100 * 2**20


STRUCTS: Dict[str, Tuple[Callable[[Bench], Tuple[Any, ...]], Callable[[], Any]]] = {
    "nvmlDeviceGetMemoryInfo_v2": (lambda on: (on.gpu,), nvml.c_nvmlMemory_v2_t),
    "nvmlDeviceGetPciInfoExt": (lambda on: (on.gpu,), nvml.nvmlPciInfoExt_v1_t),
    "nvmlDeviceGetGpuInstanceProfileInfoV": (lambda on: (on.mig, 0), nvml.c_nvmlGpuInstanceProfileInfo_v2_t),
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV": (lambda on: (on.mig, 19), nvml.c_nvmlGpuInstanceProfileInfo_v2_t),
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": (
        lambda on: (on.gi, 0, 0),
        nvml.c_nvmlComputeInstanceProfileInfo_v2_t,
    ),
    "nvmlDeviceGetGpuFabricInfoV": (lambda on: (on.gpu,), nvml.c_nvmlGpuFabricInfo_v3_t),
    "nvmlDeviceGetAddressingMode": (lambda on: (on.gpu,), nvml.c_nvmlDeviceAddressingMode_t),
    "nvmlDeviceGetTemperatureV": (lambda on: (on.gpu,), nvml.c_nvmlTemperature_v1_t),
}


@as_client
def test_a_struct_of_a_version_that_the_library_does_not_know_is_a_mismatch(machine: Machine) -> None:
    on = Bench()
    answers = {}
    for name, (before, make) in STRUCTS.items():
        for version in (0, 1, 0x7F000000 | ctypes.sizeof(make()), 0x01000001):
            made = make()
            made.version = version
            answers[f"{name} {version:#x}"] = getattr(nvml.nvmlLib, name)(*before(on), byref(made))
    assert {call: code for call, code in answers.items() if code != nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH} == {}


@as_client
def test_the_older_versions_of_the_pci_struct_end_earlier(machine: Machine) -> None:
    expected = nvml.nvmlDeviceGetPciInfo(gpu())
    for name, end in (("nvmlDeviceGetPciInfo", 32), ("nvmlDeviceGetPciInfo_v2", 36)):
        got = nvml.nvmlPciInfo_t.from_buffer_copy(b"?" * ctypes.sizeof(nvml.nvmlPciInfo_t))
        assert getattr(nvml.nvmlLib, name)(gpu(), byref(got)) == 0
        assert got.busIdLegacy == expected.busIdLegacy
        assert bytes(got)[16:end] == bytes(expected)[16:end]
        assert set(bytes(got)[end:]) == {ord("?")}


@kind("l40s-1")
@as_client
def test_a_gpu_without_mig_refuses_what_needs_it(machine: Machine) -> None:
    for call in (
        lambda: nvml.nvmlDeviceGetMigMode(gpu()),
        lambda: nvml.nvmlDeviceSetMigMode(gpu(), 1),
        lambda: nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 0),
        lambda: create(gpu(), 19),
    ):
        with refused(nvml.NVML_ERROR_NOT_SUPPORTED):
            call()
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 0


@kind("l40s-1", "--driver", "580.65.06")
@as_client
def test_a_gpu_with_video_encoders_has_their_capacity_and_a_state_for_being_idle(machine: Machine) -> None:
    assert nvml.nvmlDeviceGetEncoderCapacity(gpu(), nvml.NVML_ENCODER_QUERY_H264) == 100
    assert nvml.nvmlDeviceGetSupportedPerformanceStates(gpu()) == [nvml.NVML_PSTATE_0, nvml.NVML_PSTATE_8]
    assert nvml.nvmlDeviceGetMinMaxClockOfPState(gpu(), nvml.NVML_CLOCK_MEM, 0) == (405, 9001)


@as_client
def test_samples_and_sensors_follow_what_the_machine_is_set_to(machine: Machine) -> None:
    machine.tool("set", 0, "temperature=77", "power_usage=612000", "utilization_gpu=93")
    assert nvml.nvmlDeviceGetThermalSettings(gpu(), 0)[0].currentTemp == nvml.nvmlDeviceGetTemperature(gpu(), 0) == 77
    for what, expected in ((nvml.NVML_TOTAL_POWER_SAMPLES, 612_000), (nvml.NVML_GPU_UTILIZATION_SAMPLES, 93)):
        kind_of, samples = nvml.nvmlDeviceGetSamples(gpu(), what, 0)
        assert (kind_of, [one.sampleValue.uiVal for one in samples]) == (nvml.NVML_VALUE_TYPE_UNSIGNED_INT, [expected])
    assert nvml.nvmlDeviceGetDynamicPstatesInfo(gpu()).utilization[0].percentage == 93


@kind("gb200-4")
@as_client
def test_a_coherent_gpu_is_a_numa_node_of_its_own(machine: Machine) -> None:
    nodes = [nvml.nvmlDeviceGetNumaNodeId(gpu(index)) for index in range(nvml.nvmlDeviceGetCount())]
    assert len(set(nodes)) == 4
    assert nvml.nvmlDeviceGetAddressingMode(gpu()) == nvml.NVML_DEVICE_ADDRESSING_MODE_ATS


SHIPPED = (
    "hgx-a100-80gb-8",
    "hgx-h100-80gb-8",
    "hgx-h200-141gb-8",
    "hgx-b200-8",
    "a30-4",
    "gb200-4",
    "l40s-1",
    "a100-sxm4-40gb-4",
    "mixed",
)


def test_every_shipped_machine_has_unique_and_repeatable_identities(machines: Machines, tmp_path: Path) -> None:
    for name in machines.names():
        machine = machines.copy(tmp_path / name, name)
        first = machine.state.read_bytes()

        def work(machine: Machine = machine) -> None:
            load(machine)
            nvml.nvmlInit()
            gpus = [gpu(index) for index in range(nvml.nvmlDeviceGetCount())]
            for get in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetSerial, nvml.nvmlDeviceGetMinorNumber):
                assert len({get(one) for one in gpus}) == len(gpus)
            addresses = [nvml.nvmlDeviceGetPciInfo(one).busId for one in gpus]
            assert addresses == sorted(set(addresses)), "NVML counts GPUs in the order of their addresses"

        in_another_process(work)
        machine.tool("create", name, "--force")
        assert machine.state.read_bytes() == first


@as_client
def test_a_second_process_reads_the_same_state(machine: Machine) -> None:
    on = Bench()
    nvml.nvmlDeviceSetPowerManagementLimit(on.gpu, 450_000)
    seen = machine.elsewhere(
        "[nvmlDeviceGetPowerManagementLimit(gpu[0]), nvmlDeviceGetMigMode(gpu[1]),"
        " nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(gpu[1], 0))]"
    )
    assert seen == [450_000, [1, 1], nvml.nvmlDeviceGetUUID(on.device)]


C_CLIENT = r"""
#include <dlfcn.h>
#include <stdio.h>

typedef struct nvmlDevice_st *device;

int main(int count, char **arguments)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (count < 2 || library == NULL)
        return 1;
    int (*init)(void) = dlsym(library, "nvmlInit_v2");
    int (*gpus)(unsigned *) = dlsym(library, "nvmlDeviceGetCount_v2");
    int (*by_index)(unsigned, device *) = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*name)(device, char *, unsigned) = dlsym(library, "nvmlDeviceGetName");
    const char *(*text)(int) = dlsym(library, "nvmlErrorString");
    int (*shutdown)(void) = dlsym(library, "nvmlShutdown");
    unsigned found = 0;
    device handle = NULL;
    char buffer[96] = "";
    int results[] = {init(), gpus(&found), by_index(0, &handle), name(handle, buffer, sizeof buffer), shutdown()};
    for (unsigned i = 0; i < sizeof results / sizeof *results; i++)
        printf("%d ", results[i]);
    printf("%u %s, %s\n", found, buffer, text(results[0]));
    return 0;
}
"""


def test_a_c_program_that_resolves_symbols_by_name_works(machine: Machine, tmp_path: Path) -> None:
    source, program = tmp_path / "client.c", tmp_path / "client"
    source.write_text(C_CLIENT)
    subprocess.run(["cc", "-Wall", "-Werror", "-o", str(program), str(source), "-ldl"], check=True)
    done = subprocess.run(
        [str(program), "go"], env=machine.environment(), check=True, text=True, capture_output=True, timeout=120
    )
    assert done.stdout == "0 0 0 0 0 8 NVIDIA H100 80GB HBM3, The operation was successful\n"
