# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that set GPUs at boot with nvidia-smi, beside a declaration that sets them too."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import ready, run
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

UNIT = "/etc/systemd/system/tune.service"
LINK = "/etc/systemd/system/multi-user.target.wants/tune.service"
BEHIND = "After=gpufleet-boot.service"
DECLARED: Dict[str, object] = {
    "compute_mode": "exclusive_process",
    "power_limit_watts": 500,
    "locked_memory_clocks": "1593",
    "locked_graphics_clocks": "1200-1500",
    "ecc": "disabled",
    "time_slice": "short",
}


def machine_with(make: MakeMachine, *lines: str, order: str = BEHIND, boot_service: bool = True) -> GpuMachine:
    commands = "".join(f"ExecStart=/usr/bin/nvidia-smi {line}\n" for line in lines)
    unit = f"[Unit]\n{order}\n[Service]\nType=oneshot\n{commands}[Install]\nWantedBy=multi-user.target\n"
    return ready(make, files={UNIT: unit, LINK: unit}, boot_service=boot_service)


def found(outcome: Outcome) -> List[Tuple[str, str, str, str]]:
    return [(one.object, one.setting, one.value, one.wins) for one in outcome.remaining.conflicts]


@pytest.mark.parametrize(
    ("line", "setting", "value"),
    [
        ("-i 1 -pl 300", "power_limit_watts", "300"),
        ("-i 1 --power-limit=499.5", "power_limit_watts", "499.5"),
        ("-i 1 -lgc 1000,1500", "locked_graphics_clocks", "1000-1500"),
        ("-i 1 --lock-gpu-clocks=1500", "locked_graphics_clocks", "1500"),
        ("-i 1 -rgc", "locked_graphics_clocks", "default"),
        ("-i 1 -lmc 2619,2619", "locked_memory_clocks", "2619"),
        ("-i 1 -c 0", "compute_mode", "default"),
        ("-i 1 --compute-mode=PROHIBITED", "compute_mode", "prohibited"),
        ("-i 1 -e 1", "ecc", "enabled"),
        ("compute-policy -i 1 --set-timeslice=3", "time_slice", "long"),
    ],
)
def test_another_value_behind_the_boot_service_is_refused_and_named(
    gpu_machine: MakeMachine, line: str, setting: str, value: str
) -> None:
    machine = machine_with(gpu_machine, line)
    before = snapshot(machine.root)
    with pytest.raises(OwnedByAnother) as caught:
        run(machine, DECLARED)
    wanted = DECLARED[setting]
    assert str(caught.value) == (
        f"Cannot set {setting} on gpu1: tune.service sets another value after gpufleet at each boot ({UNIT}:5) "
        f"(found {value}, wanted {wanted}). Delete that line, declare its value, or set permanent: false."
    )
    assert (snapshot(machine.root), machine.log()) == (before, [])
    now = run(machine, DECLARED, permanent=False)
    assert (now.error, found(now)) == (None, [("gpu1", setting, value, "them")])


@pytest.mark.parametrize(
    "line",
    [
        "-pl 500",
        "-pl 500.0",
        "-c 3",
        "-c EXCLUSIVE_PROCESS",
        "-e DISABLED",
        "-lgc 1200,1500",
        "-lmc 1593",
        "-lmc 1593,1593",
        "compute-policy --set-timeslice=1",
        "-i GPU-00000000-0000-0000-0000-000000000000 -pl 300",
        "-pm 0",
        "-am 1",
        "-ac 2619,1980",
        "-q -d POWER",
        "--query-gpu=power.limit --format=csv",
    ],
)
def test_the_declared_value_another_gpu_and_other_settings_are_no_finding(gpu_machine: MakeMachine, line: str) -> None:
    machine = machine_with(gpu_machine, line)
    outcome = run(machine, DECLARED)
    assert (outcome.error, found(outcome)) == (None, [])


@pytest.mark.parametrize(
    ("line", "order", "value", "wins"),
    [
        ("-i 0 -pl 300", "", "300", "unknown"),
        ("-i 0 -pl 300", "After=nvidia-persistenced.service", "300", "unknown"),
        ("-i 0 -pl 300", "Before=gpufleet-boot.service", "300", "us"),
        ("-i 0 -pl 300", f"{BEHIND}\nConditionPathExists=/etc/tune", "300", "unknown"),
        ("-i 0 -pl 300 -pm 1", BEHIND, "300", "unknown"),
        ("-i 0 -pl max", BEHIND, "max", "unknown"),
        ("-i 0 -pl $WATTS", BEHIND, "", "unknown"),
    ],
    ids=["no order", "behind the daemon", "before ours", "condition", "two settings", "no number", "variable"],
)
def test_what_may_win_or_loses_is_named_and_the_run_goes_on(
    gpu_machine: MakeMachine, line: str, order: str, value: str, wins: str
) -> None:
    machine = machine_with(gpu_machine, line, order=order)
    outcome = run(machine, {"power_limit_watts": 500})
    assert (outcome.error, found(outcome)) == (None, [("gpu0", "power_limit_watts", value, wins)])
    again = run(machine, {"power_limit_watts": 500})
    assert (again.changes, found(again)) == ((), found(outcome))


def test_a_gpu_that_cannot_be_told_by_a_serial_number_may_be_any(gpu_machine: MakeMachine) -> None:
    outcome = run(machine_with(gpu_machine, "-i 1320021012345 -pl 300"), {"power_limit_watts": 500})
    assert found(outcome) == [(f"gpu{index}", "power_limit_watts", "300", "unknown") for index in range(8)]


def test_of_several_lines_of_a_service_the_last_counts(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine, "-pl 300", "-pl 400", "-i 0 -pl 450", "-pl 500")
    assert found(run(machine, {"power_limit_watts": 500})) == []


def test_where_the_boot_service_does_nothing_each_of_them_wins(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine, "-i 0 -pl 300", order="", boot_service=False)
    with pytest.raises(OwnedByAnother, match="Cannot set power_limit_watts on gpu0: "):
        run(machine, {"power_limit_watts": "default"})
    now = run(machine, {"power_limit_watts": 500}, permanent=False)
    assert found(now) == [("gpu0", "power_limit_watts", "300", "them")]


def test_what_is_restored_is_not_held_against_them(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine, "-pl 300", order="")
    run(machine, {"power_limit_watts": 500})
    outcome = run(machine, state="absent")
    assert (outcome.error, found(outcome)) == (None, [])
