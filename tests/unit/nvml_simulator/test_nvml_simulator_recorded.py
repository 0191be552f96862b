# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVML simulator answers as real GPUs were recorded to answer, asked with the program that recorded them."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType
from typing import Any, Dict, Iterable, Tuple

import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    SOURCES,
    Machine,
    forked,
    load,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once
MACHINE = ("h200-141gb-vm-1", "--driver", "580.159.04")
RECORDING = SOURCES / "recorded" / "h200-sxm5-141gb-580.159.04.json"

# Values, as patterns of the questions, that a machine need not share with the one that was recorded, and why. Codes and
# types it has to share.
VARIES = {
    r"nvmlDeviceGetTemperature\(GPU\)": "a reading of the moment",
    r"nvmlDeviceGetMarginTemperature": "it follows the temperature",
    r"nvmlDeviceGetPowerUsage": "a reading of the moment",
    r"nvmlDeviceGetPcieThroughput\(.*\)": "a reading of the moment",
    r"nvmlDeviceGetPcieReplayCounter": "the errors of that slot so far",
    r"nvmlDeviceGetTotalEnergyConsumption": "it grows",
    r"nvmlDeviceGetViolationStatus\(.*\)": "times since the driver was loaded",
    r"field (7[4-9]|8[01]) .*": "the same times",
    r"field 82 .*": "the memory's temperature, a reading of the moment",
    r"field (83|191) .*": "energy, which grows",
    r"field (94|169|17[3-9]|18[0-3]) .*": "the errors of that slot so far",
    r"field 18[56] .*": "power, a reading of the moment",
    r"field 19[78] .*": "bytes over PCIe, which grow",
}
# What a program takes that works.
BUSY_VARIES = {
    r"nvmlDeviceGetMemoryInfo.*": "the simulator counts memory of programs in MiB",
    r"nvmlDeviceGetBAR1MemoryInfo": "CUDA maps what a client of the simulator does not",
}


def recorder() -> ModuleType:
    """tests/nvml_simulator/record.py."""
    specification = importlib.util.spec_from_file_location("record", SOURCES / "record.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def simulated(machine: Machine) -> Dict[str, Any]:
    """The recording of the simulated machine."""

    def work() -> str:
        load(machine)
        program = recorder()
        return str(program.text_of(program.recording()))

    code, text = forked(work)
    assert code == 0, text
    return dict(json.loads(text))


@pytest.fixture(scope="module")
def recorded() -> Dict[str, Any]:
    return dict(json.loads(RECORDING.read_text(encoding="utf-8")))


def kind_of(answer: Any) -> Any:
    """An answer without its value."""
    if answer is None:
        return "the binding does not ask"
    return answer["field"][:2] if "field" in answer else answer.get("error", "a value")


def differences(real: Dict[str, Any], simulator: Dict[str, Any], varies: Iterable[str]) -> Dict[str, Tuple[Any, Any]]:
    """The questions that get another answer, with both."""
    found = {}
    for question, answer in real.items():
        got = simulator.get(question)
        may_vary = any(re.fullmatch(pattern, question) for pattern in varies)
        if got != answer and not (may_vary and kind_of(got) == kind_of(answer)):
            found[question] = (answer, got)
    return found


def test_the_simulator_answers_every_question_as_the_recorded_gpu(machine: Machine, recorded: Dict[str, Any]) -> None:
    simulator = simulated(machine)
    assert len(recorded["answers"]) > 700
    assert differences(recorded["answers"], simulator["answers"], VARIES) == {}
    assert simulator["errors"] == recorded["errors"]


def test_it_answers_as_the_recorded_gpu_while_a_program_computes(machine: Machine, recorded: Dict[str, Any]) -> None:
    machine.tool("add-client", "0", "--name", "train", "--memory", "1550")
    real = {**recorded["answers"], **recorded["busy"]}
    assert differences(real, simulated(machine)["answers"], [*VARIES, *BUSY_VARIES]) == {}


def test_no_reading_is_excused_that_agrees(recorded: Dict[str, Any]) -> None:
    """An excuse that meets no question, or none of a value, would hide a mistake in its pattern."""
    values = [name for name, answer in recorded["answers"].items() if kind_of(answer) == "a value" or "field" in answer]
    for pattern in (*VARIES, *BUSY_VARIES):
        assert any(re.fullmatch(pattern, question) for question in values), pattern


def test_it_exports_what_the_recorded_library_exports(machine: Machine, recorded: Dict[str, Any]) -> None:
    described = machine.describe()
    assert described["system"]["driver_version"] == recorded["about"]["driver"]
    missing = set(described["missing_functions"])
    assert missing <= set(recorded["not_exported"])
    assert set(recorded["not_exported"]) <= set(simulated(machine)["not_exported"])


def test_the_stand_in_for_nvidia_smi_prints_what_the_recorded_one_printed(
    machine: Machine, recorded: Dict[str, Any]
) -> None:
    uuid = machine.describe()["gpus"][0]["uuid"]
    for arguments, (status, output) in recorded["nvidia_smi"].items():
        done = machine.smi(*arguments.split())
        assert (done.returncode, done.stdout) == (status, output.replace("{uuid}", uuid)), arguments


def test_the_recorder_changes_nothing_and_names_no_board(machine: Machine, recorded: Dict[str, Any]) -> None:
    machine.tool("log", "--clear")
    text = json.dumps(simulated(machine))
    assert machine.changes() == []
    gpu = machine.describe()["gpus"][0]
    assert gpu["uuid"] not in text
    assert gpu["serial"] not in text
    for question in ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetPdi"):
        assert recorded["answers"][question]["value"] in ("str", "int")
