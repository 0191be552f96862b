# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time slices, which only nvidia-smi sets and lists."""

from __future__ import annotations

from typing import Any, List, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import DECLARED, ready, run
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

KIND = "l40s-1"


def slices(machine: GpuMachine) -> List[int]:
    return [gpu["time_slice"] for gpu in machine.describe()["gpus"]]


def programs_run(machine: GpuMachine) -> List[Sequence[str]]:
    return [argv[1:] for argv in machine.host.commands.calls if argv[0] == "nvidia-smi"]


def test_each_gpu_gets_its_time_slice_and_a_second_run_only_lists(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    entries = ({"match": {"index": [1, 3]}, "time_slice": "short"}, {"time_slice": "long"})
    outcome = run(machine, *entries)
    assert outcome.error is None
    assert slices(machine) == [3, 1, 3, 1, 3, 3, 3, 3]
    assert outcome.effective["gpus"]["gpu1"] == outcome.boot["gpus"]["gpu1"] == {"time_slice": "short"}
    assert {change.scope for change in outcome.changes if change.object == "gpu1"} == {"effective", "boot"}
    machine.host.commands.calls.clear()
    assert run(machine, *entries).changes == ()
    assert programs_run(machine) == [("compute-policy", "--list")]


def test_what_is_not_declared_asks_no_program(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND)
    run(machine, {"power_limit_watts": 250})
    assert programs_run(machine) == []


def test_default_and_absent_give_back_what_was_there(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND)
    machine.sim("set", 0, "time_slice=2")
    run(machine, {"time_slice": "default"})
    assert slices(machine) == [0]
    run(machine, state="absent")
    assert slices(machine) == [2]


def test_what_cannot_be_read_back_keeps_its_record(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND)
    run(machine, {"power_limit_watts": 250, "time_slice": "short"})
    program = machine.host.commands.programs.pop("nvidia-smi")
    for _run in range(2):
        outcome = run(machine, state="absent")
        assert outcome.error is None
        assert outcome.remaining.needs == ("readback",)
        assert outcome.remaining.pending_reasons == (
            "gpu0 time_slice is not readable, wanted default: nvidia-smi is not installed, and nothing else sets or "
            "lists it",
        )
    machine.host.commands.programs["nvidia-smi"] = program
    assert run(machine, state="absent").remaining.needs == ()
    assert slices(machine) == [0]
    assert not machine.host.files.exists("/var/lib/gpufleet/baseline/gpu_settings.json")


def test_without_persistence_it_would_not_last(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND, persistence=False)
    error = str(run(machine, {"time_slice": "short"}).error)
    assert error.startswith("Cannot keep what is declared on gpu0: persistence mode is off")
    assert slices(machine) == [0]


def test_without_the_boot_service_it_would_be_gone_after_a_reboot(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND, boot_service=False)
    assert "Cannot keep what is declared across a reboot" in str(run(machine, {"time_slice": "short"}).error)
    assert slices(machine) == [0]


NO_ROWS = """\
+-------------------------------------+
| GPU compute policies:               |
+-------------------------------------+
"""
OTHER_FRAMES = {
    "in another frame": "GPU 0: Time-slice = SHORT\n",
    "without a frame": "0 timeslice short\n",
}


@pytest.mark.parametrize("text", OTHER_FRAMES.values(), ids=OTHER_FRAMES)
def test_a_row_is_known_by_its_words(gpu_machine: MakeMachine, text: str) -> None:
    machine = ready(gpu_machine, KIND)
    machine.host.commands.programs["nvidia-smi"] = lambda argv: Completed(0, text.replace("GPU ", ""), "")
    outcome = run(machine, {"time_slice": "short"}, check_mode=True)
    assert outcome.effective == {"gpus": {"gpu0": {"time_slice": "short"}}}


ANSWERS: Any = [
    (
        None,
        "nvidia-smi is not installed, and nothing else sets or lists it (wanted short). Install it, or leave the "
        "setting out.",
    ),
    (
        Completed(0, NO_ROWS, ""),
        "nvidia-smi compute-policy --list lists no time slice for this GPU that this release understands "
        "(wanted short). Leave the setting out.",
    ),
    (
        Completed(0, "|   0     Timeslice        1234567  |\n", ""),
        "nvidia-smi compute-policy --list lists no time slice for this GPU that this release understands "
        "(wanted short). Leave the setting out.",
    ),
    (
        Completed(2, "\nInvalid combination of input arguments.\n", ""),
        "nvidia-smi compute-policy --list ended with exit status 2: Invalid combination of input arguments (wanted "
        "short). Leave the setting out.",
    ),
]


@pytest.mark.parametrize(("answer", "message"), ANSWERS)
def test_a_time_slice_that_could_not_be_read_back_is_refused(
    gpu_machine: MakeMachine, answer: Any, message: str
) -> None:
    machine = ready(gpu_machine, KIND)
    if answer is None:
        del machine.host.commands.programs["nvidia-smi"]
    else:
        machine.host.commands.programs["nvidia-smi"] = lambda argv: answer
    with pytest.raises(DeclarationError) as caught:
        run(machine, {"power_limit_watts": 250, "time_slice": "short"})
    assert str(caught.value) == f"Cannot set time_slice on gpu0: {message}"
    assert machine.log() == []
    assert not machine.host.files.exists(DECLARED)
    outcome = run(machine, {"time_slice": "default"})
    assert [(entry.object, entry.setting) for entry in outcome.remaining.unmanaged] == [("gpu0", "time_slice")]


def test_a_gpu_that_does_not_take_it_keeps_no_other_value_from_being_set(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND)
    program = machine.host.commands.programs["nvidia-smi"]

    def refusing(argv: Sequence[str]) -> Completed:
        if "--set-timeslice" in argv:
            return Completed(3, "Unable to set timeslice: Not Supported\n", "")
        return program(argv)

    machine.host.commands.programs["nvidia-smi"] = refusing
    error = str(run(machine, {"power_limit_watts": 250, "time_slice": "short"}).error)
    assert error.startswith(
        "Cannot set time_slice on gpu0: nvidia-smi ended with exit status 3: Unable to set timeslice: Not Supported "
        "(wanted short)."
    )
    assert machine.gpu(0)["power_limit"] == 250000


def test_a_program_that_says_it_is_done_is_not_believed(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, KIND)
    program = machine.host.commands.programs["nvidia-smi"]

    def idle(argv: Sequence[str]) -> Completed:
        return Completed(0, "", "") if "--set-timeslice" in argv else program(argv)

    machine.host.commands.programs["nvidia-smi"] = idle
    outcome = run(machine, {"time_slice": "short"})
    assert outcome.error is not None
    assert outcome.error.code == "not_in_effect"
