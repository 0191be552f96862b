# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that divide GPUs at boot with nvidia-smi, beside a declared layout."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import ready, run
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

UNIT = "/etc/systemd/system/tune.service"
LINK = "/etc/systemd/system/multi-user.target.wants/tune.service"
BEHIND = "After=gpufleet-boot.service"
BEFORE = "Before=gpufleet-boot.service"
# All of an H100, and less than all: 1g.10gb is 19, 2g.20gb 14, 3g.40gb 9.
FULL: Dict[str, Any] = {
    "match": {"index": 0},
    "mig": "enabled",
    "instances": ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"],
}
PART: Dict[str, Any] = {"match": {"index": 0}, "mig": "enabled", "instances": ["1g.10gb"]}
PLACED: Dict[str, Any] = {
    "match": {"index": 0},
    "mig": "enabled",
    "instances": [{"profile": "1g.10gb", "placement": 2}],
}
OFF: Dict[str, Any] = {"match": {"index": 0}, "mig": "disabled"}
ANEW = ("mig -dci", "mig -dgi")


def machine_with(make: MakeMachine, *lines: str, order: str = BEHIND) -> GpuMachine:
    commands = "".join(f"ExecStart=/usr/bin/nvidia-smi {line}\n" for line in lines)
    unit = f"[Unit]\n{order}\n[Service]\nType=oneshot\n{commands}"
    return ready(make, files={UNIT: unit, LINK: unit})


def found(outcome: Outcome) -> List[Tuple[str, str, str, str]]:
    return [(one.object, one.setting, one.value, one.wins) for one in outcome.remaining.conflicts]


@pytest.mark.parametrize(
    ("declared", "lines", "message"),
    [
        (FULL, ["-mig 0"], "set mig on gpu0: ...:5 (found disabled, wanted enabled)"),
        (OFF, ["-i 0 --multi-instance-gpu=ENABLED"], "set mig on gpu0: ...:5 (found enabled, wanted disabled)"),
        (
            FULL,
            [*ANEW, "mig -cgi 9,9 -C"],
            "set instances on gpu0: ...:7 (found 3g.40gb 3g.40gb, wanted 2g.20gb@0 1g.10gb@2-3 3g.40gb@4)",
        ),
        (FULL, ANEW, "set instances on gpu0: ...:6 (found none, wanted 2g.20gb@0 1g.10gb@2-3 3g.40gb@4)"),
        (
            PART,
            [*ANEW, "mig -cgi 19"],
            "set instances on gpu0: ...:7 (found 1g.10gb[], wanted 1g.10gb@0)",
        ),
        # It has room beside the declared one.
        (
            PART,
            ["mig -i 0 -cgi 1g.10gb,2g.20gb:0 -C"],
            "set instances on gpu0: ...:5 (found also 1g.10gb 2g.20gb@0, wanted 1g.10gb@0)",
        ),
        (
            PART,
            ["mig -cgi 19 -C"],
            "set instances on gpu0: ...:5 (found also 1g.10gb, wanted 1g.10gb@0)",
        ),
    ],
)
def test_another_mode_or_layout_behind_the_boot_service_is_refused(
    gpu_machine: MakeMachine, declared: Dict[str, Any], lines: List[str], message: str
) -> None:
    machine = machine_with(gpu_machine, *lines)
    before = snapshot(machine.root)
    with pytest.raises(OwnedByAnother) as caught:
        run(machine, declared)
    said = message.replace("...", f"tune.service sets another value after gpufleet at each boot ({UNIT}")
    said = said.replace(" (found", ") (found")
    assert str(caught.value) == f"Cannot {said}. Delete that line, declare its value, or set permanent: false."
    assert (snapshot(machine.root), machine.log()) == (before, [])


@pytest.mark.parametrize(
    ("declared", "lines"),
    [
        (FULL, ["-mig 1", "mig -lgip", "--query-gpu=mig.mode.current --format=csv"]),
        (FULL, ["-i 1 -mig 0", "mig -i 1 -cgi 9 -C"]),
        (OFF, ["-mig 0"]),
        (FULL, [*ANEW, "mig -cgi 9,14,19,19 -C"]),
        (FULL, [*ANEW, "mig -cgi 3g.40gb,2g.20gb,1g.10gb,1g.10gb", "mig -cci"]),
        # There is no room for these beside the declared ones.
        (FULL, ["mig -cgi 9,14,19,19 -C"]),
        (PART, [*ANEW, "mig -cgi 19 -C"]),
        (PLACED, [*ANEW, "mig -cgi 19:2 -C"]),
    ],
)
def test_the_declared_layout_other_gpus_and_queries_are_no_finding(
    gpu_machine: MakeMachine, declared: Dict[str, Any], lines: List[str]
) -> None:
    outcome = run(machine_with(gpu_machine, *lines), declared)
    assert (outcome.error, found(outcome)) == (None, [])


@pytest.mark.parametrize(
    ("declared", "lines", "order", "expected"),
    [
        (FULL, ["-mig 0"], "", ("mig", "disabled", "unknown")),
        (FULL, ["-mig 0"], BEFORE, ("mig", "disabled", "us")),
        (FULL, ["-mig off"], BEHIND, ("mig", "off", "unknown")),
        (FULL, [*ANEW, "mig -cgi 9,9 -C"], "", ("instances", "3g.40gb 3g.40gb", "unknown")),
        (FULL, ["mig -cgi 9,9 -C"], "", ("instances", "3g.40gb 3g.40gb", "us")),
        (PART, ["mig -cgi 9,9 -C"], BEFORE, ("instances", "3g.40gb 3g.40gb", "us")),
        (PART, ["mig -cgi 19 -C"], "", ("instances", "also 1g.10gb", "unknown")),
        # What is not understood: instances by their number, a name that this GPU does not have, instances that stay.
        (FULL, ["mig -dci -gi 1"], BEHIND, ("instances", "", "unknown")),
        (FULL, [*ANEW, "mig -cgi 8g.80gb -C"], BEHIND, ("instances", "", "unknown")),
        (FULL, ["mig -dgi"], BEHIND, ("instances", "", "unknown")),
        (PLACED, [*ANEW, "mig -cgi 19 -C"], BEHIND, ("instances", "", "unknown")),
    ],
)
def test_what_may_win_or_loses_is_named_and_the_run_goes_on(
    gpu_machine: MakeMachine, declared: Dict[str, Any], lines: List[str], order: str, expected: Tuple[str, str, str]
) -> None:
    machine = machine_with(gpu_machine, *lines, order=order)
    outcome = run(machine, declared)
    assert (outcome.error, found(outcome)) == (None, [("gpu0", *expected)])
    assert run(machine, declared).changes == ()


def test_for_now_alone_instances_on_a_gpu_without_any_are_what_it_ends_with(gpu_machine: MakeMachine) -> None:
    machine = machine_with(gpu_machine, "mig -i 0 -cgi 9,9 -C", order="")
    assert found(run(machine, FULL, permanent=False)) == [("gpu0", "instances", "3g.40gb 3g.40gb", "them")]
