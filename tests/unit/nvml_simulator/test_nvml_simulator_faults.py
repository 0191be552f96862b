# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults that hit a certain call: after others have passed, at the n-th change of any kind, by a kill."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, List, Tuple

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    Machine,
    answer,
    as_client,
    create,
    gpu,
    kind,
    layout,
    load,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once

AMPERE = kind("hgx-a100-80gb-8")
IN_USE = nvml.NVML_ERROR_IN_USE
LIMIT = 400_000


def limits() -> List[int]:
    return [nvml.nvmlDeviceGetPowerManagementLimit(gpu(index)) // 1000 for index in range(4)]


def set_limits() -> List[Any]:
    """Change GPU after GPU; what each call answered."""
    return [answer(nvml.nvmlDeviceSetPowerManagementLimit, gpu(index), LIMIT) for index in range(4)]


# Errors


@as_client
def test_calls_pass_before_the_fault(machine: Machine) -> None:
    machine.tool("fail", "nvmlDeviceGetName", "NVML_ERROR_TIMEOUT", 2, "--after", 3)
    assert [answer(nvml.nvmlDeviceGetName, gpu()) == nvml.NVML_ERROR_TIMEOUT for turn in range(6)] == [
        False, False, False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 4])
@as_client
def test_the_nth_change_fails_without_effect_and_no_other(machine: Machine, number: int) -> None:
    machine.tool("fail", "--nth-change", number, "INSUFFICIENT_RESOURCES")
    failed = [index + 1 == number for index in range(4)]
    assert set_limits() == [nvml.NVML_ERROR_INSUFFICIENT_RESOURCES if one else None for one in failed]
    assert limits() == [700 if one else 400 for one in failed]
    assert set_limits() == [None] * 4


@as_client
def test_changes_of_every_kind_count_and_readings_do_not(machine: Machine) -> None:
    machine.tool("fail", "--nth-change", 4, "UNKNOWN")
    nvml.nvmlDeviceSetMigMode(gpu(1), 1)
    limits()
    instance = create(gpu(1), 9)
    assert answer(nvml.nvmlDeviceSetPowerManagementLimit, gpu(), 1) == nvml.NVML_ERROR_INVALID_ARGUMENT
    layout(gpu(1))
    assert answer(nvml.nvmlGpuInstanceDestroy, instance) == 999
    assert layout(gpu(1)) == [(9, 4, 4)]
    nvml.nvmlGpuInstanceDestroy(instance)
    assert layout(gpu(1)) == []
    assert [result for symbol, result in machine.changes()] == [0, 0, nvml.NVML_ERROR_INVALID_ARGUMENT, 999, 0]


@as_client
def test_a_fault_of_any_change_can_be_healed_and_stands_beside_that_of_a_function(machine: Machine) -> None:
    machine.tool("fail", "--nth-change", 2, "UNKNOWN")
    machine.tool("fail", "nvmlDeviceSetPowerManagementLimit", "TIMEOUT", 1)
    text = machine.tool("describe")
    assert "fault: any-change fails with 999, after 1 calls, 1 times more" in text
    assert set_limits() == [nvml.NVML_ERROR_TIMEOUT, 999, None, None]
    machine.tool("fail", "--nth-change", 1, "UNKNOWN")
    machine.tool("heal", "any-change")
    assert set_limits() == [None] * 4


# Kills


def killed(machine: Machine, work: Callable[[], Any]) -> int:
    """The signal that ended a client of its own process group, 0 when it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            os.setpgid(0, 0)
            load(machine)
            nvml.nvmlInit()
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status <= 0, status
    return -status


def persistent_limits(machine: Machine) -> List[int]:
    found: List[int] = machine.elsewhere("[nvmlDeviceGetPowerManagementLimit(one) // 1000 for one in gpu[:4]]")
    return found


@pytest.mark.parametrize(
    ("options", "reached"),
    [
        ((1,), [700, 700, 700, 700]),
        ((3,), [400, 400, 700, 700]),
        ((1, "--after-it"), [400, 700, 700, 700]),
        ((3, "--after-it"), [400, 400, 400, 700]),
    ],
)
def test_who_makes_the_nth_change_is_killed_before_it_or_after_it(
    machine: Machine, options: Tuple[Any, ...], reached: List[int]
) -> None:
    machine.elsewhere("[nvmlDeviceSetPersistenceMode(one, 1) for one in gpu]")  # or the settings would go with it
    machine.tool("kill-at-change", *options)
    assert killed(machine, set_limits) == signal.SIGKILL
    assert persistent_limits(machine) == reached
    assert machine.describe()["faults"] == []
    assert killed(machine, set_limits) == 0
    assert persistent_limits(machine) == [400] * 4


def test_a_kill_that_is_not_reached_kills_nobody_and_can_be_healed(machine: Machine) -> None:
    machine.tool("kill-at-change", 5)
    assert killed(machine, set_limits) == 0
    assert "fault: kill-at-change kills who makes it, before the change, after 0 others" in machine.tool("describe")
    machine.tool("heal", "kill-at-change")
    assert killed(machine, set_limits) == 0


@pytest.mark.parametrize("group", [False, True])
def test_the_parent_that_waits_for_the_call_dies_with_its_group_only(machine: Machine, group: bool) -> None:
    machine.tool("kill-at-change", 2, *(["--group"] if group else []))

    def parent() -> None:
        child = os.fork()
        if child == 0:
            try:
                set_limits()
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL

    assert killed(machine, parent) == (signal.SIGKILL if group else 0)


@AMPERE
@pytest.mark.parametrize(("late", "reset"), [(False, 0), (True, 1)])
def test_the_reset_of_nvidia_smi_is_a_change_like_others(machine: Machine, late: bool, reset: int) -> None:
    machine.tool("kill-at-change", 1, *(["--after-it"] if late else []))
    assert machine.smi("-r", "-i", 0).returncode == -signal.SIGKILL
    assert machine.describe()["gpus"][0]["generation"] - 1 == reset
    assert machine.describe()["faults"] == []
    assert machine.smi("-r", "-i", 0).returncode == 0


# A mode that stays pending


@AMPERE
@as_client
def test_a_change_of_the_mode_stays_pending_for_a_reason_that_no_list_shows(machine: Machine) -> None:
    machine.tool("set", 0, "mig_busy=1")
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    nvml.nvmlShutdown()
    assert machine.smi("-r", "-i", 0).returncode == 0
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    machine.tool("set", 0, "mig_busy=0")
    assert nvml.nvmlDeviceSetMigMode(gpu(), 0) == 0
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 0]


@as_client
def test_hopper_says_that_it_is_in_use_too(machine: Machine) -> None:
    machine.tool("set", 0, "mig_busy=1")
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    machine.tool("set", 0, "mig_busy=0")
    assert nvml.nvmlDeviceSetMigMode(gpu(), 1) == 0
    assert nvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
