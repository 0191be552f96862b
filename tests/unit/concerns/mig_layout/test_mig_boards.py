# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shipped table of boards against the published profiles, row by row, and named layouts on every board."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import boards, resolve
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import Geometry
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import document, geometries

H100_80, A100_80, GB200 = 0x2330, 0x20B2, 0x2941


def published() -> Iterator[Tuple[int, Dict[str, Any]]]:
    """Every PCI device id with its entry of the table."""
    for gpu in document()["gpus"]:
        for text in gpu["pci_device_ids"]:
            yield int(text, 16), gpu


def without_memory(geometry: Geometry) -> Geometry:
    return Geometry(tuple(replace(profile, memory_mib=0) for profile in geometry.profiles))


@pytest.mark.parametrize(
    ("device_id", "gpu"), [pytest.param(number, gpu, id=f"{number:#x}") for number, gpu in published()]
)
def test_every_row_of_a_board_is_the_published_one(device_id: int, gpu: Dict[str, Any]) -> None:
    assert boards.geometry_of(device_id) == without_memory(geometries()[gpu["key"]])


def test_no_board_is_shipped_that_is_not_published() -> None:
    shipped = [device for board in boards._BOARDS for device in board.devices]
    assert sorted(shipped) == sorted(number for number, _gpu in published())


@pytest.mark.parametrize(
    ("device_id", "gpu"), [pytest.param(number, gpu, id=f"{number:#x}") for number, gpu in published()]
)
def test_every_name_of_a_board_is_known_whatever_the_driver(device_id: int, gpu: Dict[str, Any]) -> None:
    numbers = {entry["name"]: entry["profile_id"] for entry in gpu["profiles"]}
    others = {other: numbers[name] for name, names in gpu.get("names_other_drivers", {}).items() for other in names}
    assert {name: boards.alias(device_id, name) for name in (*numbers, *others)} == {**others, **numbers}
    assert set(boards._board(device_id).renamed) == set(others)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("device_id", "name", "number"),
    [
        (GB200, "1g.24gb+me", 20),
        (A100_80, "7g.79gb", 0),
        (H100_80, "7g.79gb", None),
        (H100_80, "1g.5gb", None),
        (H100_80, "", None),
        (0x1234, "1g.10gb", None),
    ],
)
def test_a_name_is_never_guessed_across_boards(device_id: int, name: str, number: Optional[int]) -> None:
    assert boards.alias(device_id, name) == number


def test_a_board_that_is_not_known_has_no_prediction() -> None:
    assert boards.geometry_of(0x1234) is None


def meaning(key: str) -> Dict[str, Dict[str, int]]:
    """Every named layout of a board, as counts of profiles by name."""
    found: Dict[str, Dict[str, int]] = {}
    for name, wanted in resolve.layouts(geometries()[key]).items():
        counts: Dict[str, int] = {}
        for one in wanted:
            profile = geometries()[key].profile(one.profile)
            assert profile
            assert (one.start, [compute.slices for compute in one.compute]) == (None, [profile.slices])
            counts[profile.name] = counts.get(profile.name, 0) + 1
        found[name] = counts
    return found


@pytest.mark.parametrize("key", geometries())
def test_balanced_is_the_published_layout(key: str) -> None:
    assert meaning(key).get("balanced") == document()["balanced_layouts"].get(key)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(
            "h100-80",
            {
                "all-1g": {"1g.10gb": 7},
                "all-2g": {"2g.20gb": 3},
                "all-3g": {"3g.40gb": 2},
                "all-4g": {"4g.40gb": 1},
                "all-7g": {"7g.80gb": 1},
                "whole": {"7g.80gb": 1},
                "balanced": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2},
            },
            id="seven slices",
        ),
        pytest.param(
            "a30",
            {
                "all-1g": {"1g.6gb": 4},
                "all-2g": {"2g.12gb": 2},
                "all-4g": {"4g.24gb": 1},
                "whole": {"4g.24gb": 1},
                "balanced": {"2g.12gb": 1, "1g.6gb": 2},
            },
            id="four slices",
        ),
        pytest.param(
            "rtx-pro-6000",
            {
                "all-1g": {"1g.24gb": 4},
                "all-2g": {"2g.48gb": 2},
                "all-4g": {"4g.96gb": 1},
                "whole": {"4g.96gb": 1},
                "balanced": {"2g.48gb": 1, "1g.24gb": 2},
            },
            id="profiles without media engines and with graphics",
        ),
        pytest.param(
            "rtx-pro-5000",
            {"all-1g": {"1g.12gb": 1}, "all-4g": {"4g.48gb": 1}, "whole": {"4g.48gb": 1}},
            id="no plain profile of two slices",
        ),
    ],
)
def test_a_named_layout_is_what_the_board_has_of_it(key: str, expected: Dict[str, Dict[str, int]]) -> None:
    assert meaning(key) == expected


def test_a_driver_that_counts_more_instances_than_have_a_place_is_not_believed() -> None:
    a30 = geometries()["a30"]
    boasting = Geometry(tuple(replace(profile, most=7) for profile in a30.profiles))
    assert resolve.layouts(boasting) == resolve.layouts(a30)


def test_a_gpu_without_profiles_has_no_layouts() -> None:
    assert resolve.layouts(Geometry(())) == {}
