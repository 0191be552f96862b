# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which functions the library exports for each release of the driver, and what tools that probe for them then show."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Set

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    LIBRARY,
    SOURCES,
    Machine,
    Machines,
    as_client,
    in_another_process,
    kind,
    load,
)

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)
# The library is one program for all.
pytestmark = pytest.mark.once

TABLE: Dict[str, Any] = json.loads((SOURCES / "symbols.json").read_text(encoding="utf-8"))
SINCE: Dict[str, int] = {name: int(since) for since, names in TABLE["since"].items() for name in names}
BRANCHES = json.loads((SOURCES / "drivers.json").read_text(encoding="utf-8"))["cuda"]
# What an operator's fleet has, and the ends of the table.
RELEASES = ("450.80.02", "535.183.06", "550.54.15", "570.86.15", "580.65.06", "610.43.02")


def in_the_file(machine: Machine) -> Set[str]:
    """The functions of NVML that the library has for any release."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(machine.built / LIBRARY)], check=True, text=True, capture_output=True
    )
    return set(re.findall(r" T (nvml(?!_sim)\w+)$", listing.stdout, re.MULTILINE))


def test_it_is_known_of_every_function_with_which_release_it_came(machine: Machine) -> None:
    assert sorted(in_the_file(machine) - set(SINCE)) == []
    assert all(int(gone) > SINCE[name] for name, gone in TABLE["gone"].items())
    assert {str(since) for since in SINCE.values()} - set(BRANCHES) <= {"615"}


@pytest.mark.parametrize("machine", [("hgx-h100-80gb-8", "--driver", one) for one in RELEASES], indirect=True)
def test_a_client_finds_the_functions_of_the_release_and_no_others(machine: Machine) -> None:
    everything = in_the_file(machine)
    branch = int(machine.describe()["system"]["driver_version"].split(".")[0])
    expected = {name for name in everything if SINCE[name] <= branch < TABLE["gone"].get(name, 9999)}
    assert machine.describe()["missing_functions"] == sorted(everything - expected)

    def work() -> None:
        library = load(machine)
        assert {name for name in everything if hasattr(library, name)} == expected
        # Also where a program looks without naming the library.
        assert {name for name in everything if hasattr(ctypes.CDLL(None), name)} == expected

    in_another_process(work)


def test_the_functions_that_550_does_not_have_are_those_that_its_library_lacks(
    machines: Machines, tmp_path: Any
) -> None:
    """NVIDIA's library of 550.54.15 was looked at for these two, by people who ran nvitop on it."""
    machine = machines.copy(tmp_path / "machine", "hgx-h100-80gb-8", "--driver", "550.54.15")
    assert {"nvmlDeviceGetTemperatureV", "nvmlDeviceGetDriverModel_v2"} <= set(machine.describe()["missing_functions"])


@kind("hgx-a100-80gb-8", "--driver", "450.80.02")
@as_client
def test_the_older_form_of_a_function_works_where_the_newer_one_is_not_there(machine: Machine) -> None:
    """One calls the other inside the library, which nobody may notice."""
    library = ctypes.CDLL(LIBRARY)
    assert not hasattr(library, "nvmlComputeInstanceGetInfo_v2")
    assert library.nvmlComputeInstanceGetInfo(None, None) == nvml.NVML_ERROR_INVALID_ARGUMENT
    count = ctypes.c_uint()
    assert library.nvmlDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value == 8


def test_a_hidden_function_is_not_there_for_who_loads_the_library_afterwards(machine: Machine) -> None:
    machine.tool("hide", "nvmlDeviceGetName")

    def work() -> None:
        assert not hasattr(load(machine), "nvmlDeviceGetName")

    in_another_process(work)
    machine.tool("heal", "nvmlDeviceGetName")
    in_another_process(lambda: load(machine).nvmlDeviceGetName)


def test_without_a_state_the_library_has_everything(machine: Machine) -> None:
    everything = in_the_file(machine)
    machine.state.unlink()

    def work() -> None:
        library = load(machine)
        assert {name for name in everything if hasattr(library, name)} == everything
        assert library.nvmlInit_v2() == nvml.NVML_ERROR_DRIVER_NOT_LOADED

    in_another_process(work)


# --- tools of people --------------------------------------------------------------------------------------------------


def seen_by(machine: Machine, *command: str) -> str:
    """What a tool prints on this machine. It asks for no function that is not there."""
    done = subprocess.run(
        [str(Path(os.environ["GPUFLEET_GPU_TOOLS"]) / "bin" / "python"), "-m", *command],
        env=machine.environment(COLUMNS="120", TERM="dumb"),
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    unanswered = [call["symbol"] for call in machine.log() if call["result"] == nvml.NVML_ERROR_FUNCTION_NOT_FOUND]
    assert unanswered == []
    return done.stdout


FLEETS = [
    (model, "--driver", release)
    for model, releases in (
        ("hgx-a100-80gb-8", ("550.54.15",)),
        ("hgx-h100-80gb-8", RELEASES[1:]),
        ("hgx-b200-8", ("580.65.06",)),
        ("l40s-1", ("535.183.06",)),
    )
    for release in releases
]


@pytest.mark.skipif("GPUFLEET_GPU_TOOLS" not in os.environ, reason="tools/make.py brings these tools")
@pytest.mark.parametrize("machine", FLEETS, indirect=True, ids=[f"{one[0]} {one[2]}" for one in FLEETS])
def test_nvitop_and_gpustat_show_every_gpu_without_an_error(machine: Machine) -> None:
    gpus: List[Dict[str, Any]] = machine.describe()["gpus"]
    shown = seen_by(machine, "nvitop", "--once", "--ascii")
    assert "ERROR" not in shown
    rows = re.findall(r"^\|\s+(?:N/A|\d+%)\s+(\d+)C\s+P\d+\s+(\d+)W / (\d+)W \|", shown, re.MULTILINE)
    assert [tuple(map(int, row)) for row in rows] == [
        (gpu["temperature"], round(gpu["power_usage"] / 1000), gpu["power_limit"] // 1000) for gpu in gpus
    ]
    found = json.loads(seen_by(machine, "gpustat", "--json"))["gpus"]
    assert [(one["name"], one["temperature.gpu"], one["memory.total"]) for one in found] == [
        (gpu["name"], gpu["temperature"], gpu["memory_mib"]) for gpu in gpus
    ]
