# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Field values of NVML, which have a type each: those that a real H200 gave are read as what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pynvml as nvml
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver, number_of
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

RECORDED = Path(__file__).parents[2] / "nvml_simulator" / "recorded" / "h200-sxm5-141gb-580.159.04.json"
# nvmlValueType_t, and the member of the union that has it.
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
SWITCH_LINKS, SHUTDOWN_MARGIN, ECC, LINK_COUNT = 147, 193, 1, 91


def recorded() -> List[Tuple[str, int, int, Any]]:
    """The fields with a value: name, type and value."""
    answers = json.loads(RECORDED.read_text(encoding="utf-8"))["answers"]
    found = [(name, *answer["field"]) for name, answer in answers.items() if "field" in answer]
    return [(name, kind, value) for name, code, kind, value in found if code == 0]


def field(kind: int, value: Any) -> Any:
    made = nvml.c_nvmlFieldValue_t()
    made.valueType = kind
    setattr(made.value, MEMBERS[kind], value)
    return made


def test_every_field_that_was_recorded_is_read_as_the_number_that_it_is() -> None:
    assert {kind for _name, kind, _value in recorded()} == {0, 1, 3, 5}
    for name, kind, value in recorded():
        assert number_of(field(kind, value)) == value, name


@pytest.mark.parametrize(
    ("kind", "value"), [(0, 3.0), (1, 2**32 - 1), (2, 7), (3, 2**64 - 1), (4, -5), (5, -8), (5, 8), (6, 2**16 - 1)]
)
def test_every_type_of_nvml_is_read(kind: int, value: Any) -> None:
    assert number_of(field(kind, value)) == value


def values(driver: Driver, wanted: List[int]) -> Tuple[List[Optional[int]], str]:
    return driver.gpus()[0].fields(wanted)


def test_a_field_that_is_not_supported_has_no_value_and_the_others_have_theirs(gpu_machine: MakeMachine) -> None:
    machine = gpu_machine("h200-141gb-vm-1", "--driver", "580.159.04")
    wanted = [ECC, SWITCH_LINKS, LINK_COUNT, SHUTDOWN_MARGIN]
    assert machine.host.nvml.ask(values, wanted) == ([1, 0, None, -8], "")
    machine.sim("fail", "nvmlDeviceGetFieldValues", "NVML_ERROR_NOT_SUPPORTED", 1)
    assert machine.host.nvml.ask(values, wanted) == ([None] * 4, "not supported by this GPU")
