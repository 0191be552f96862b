# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts of MIG as texts: what is written, what is read back and what is no layout."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Compute,
    Geometry,
    Instance,
    Layout,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.text import (
    instance_text,
    layout_text,
    parse_layout,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import geometries
from hypothesis import given, settings
from hypothesis import strategies as st

H100, A100, A30, PRO_6000 = (geometries()[key] for key in ("h100-80", "a100-80", "a30", "rtx-pro-6000"))
A100_80 = 0x20B2


def one(start: int, profile: int, *compute: Compute) -> Instance:
    return Instance(start, profile, compute)


def spanning(geometry: Geometry, start: int, number: int) -> Instance:
    profile = geometry.profile(number)
    assert profile
    return Instance(start, number, (Compute(0, profile.slices),))


TEXTS = [
    pytest.param(H100, (), "none", id="an empty GPU"),
    pytest.param(
        H100,
        (spanning(H100, 0, 19), spanning(H100, 1, 19), spanning(H100, 2, 14), spanning(H100, 4, 9)),
        "1g.10gb@0-1 2g.20gb@2 3g.40gb@4",
        id="profiles in the order of their first start",
    ),
    pytest.param(
        H100,
        (spanning(H100, 0, 9), spanning(H100, 4, 20), spanning(H100, 5, 19), spanning(H100, 6, 19)),
        "3g.40gb@0 1g.10gb+me@4 1g.10gb@5-6",
        id="an attribute is part of the name",
    ),
    pytest.param(
        A30,
        (spanning(A30, 0, 14), spanning(A30, 1, 21), spanning(A30, 2, 14), spanning(A30, 3, 14)),
        "1g.6gb@0,2-3 1g.6gb+me@1",
        id="starts that are not side by side",
    ),
    pytest.param(
        PRO_6000,
        (spanning(PRO_6000, 0, 65), spanning(PRO_6000, 1, 67), spanning(PRO_6000, 2, 66)),
        "1g.24gb+me.all@0 1g.24gb-me@1 2g.48gb-me@2",
        id="media engines",
    ),
    pytest.param(
        H100,
        (one(0, 9, Compute(0, 1), Compute(1, 1), Compute(2, 1)), one(4, 9, Compute(0, 2), Compute(2, 1))),
        "3g.40gb@0[1c@0-2] 3g.40gb@4[2c@0 1c@2]",
        id="compute instances",
    ),
    pytest.param(
        H100,
        (spanning(H100, 0, 19), one(1, 19), one(2, 19), spanning(H100, 3, 19)),
        "1g.10gb@0,3 1g.10gb@1-2[]",
        id="no compute instances at all",
    ),
    pytest.param(
        H100,
        (one(0, 99, Compute(0, 1)), one(4, 99), spanning(H100, 6, 19)),
        "99@0[1c@0] 99@4[] 1g.10gb@6",
        id="a profile that this driver does not have",
    ),
]


@pytest.mark.parametrize(("geometry", "layout", "text"), TEXTS)
def test_a_layout_is_one_line_and_is_read_back(geometry: Geometry, layout: Layout, text: str) -> None:
    assert layout_text(layout, geometry) == text
    assert parse_layout(text, geometry) == layout


def test_the_order_of_the_instances_does_not_matter() -> None:
    layout = (spanning(H100, 4, 9), spanning(H100, 0, 19))
    assert layout_text(layout, H100) == "1g.10gb@0 3g.40gb@4"


@pytest.mark.parametrize(
    ("instance", "text"),
    [(spanning(H100, 4, 9), "3g.40gb@4"), (one(4, 9), "3g.40gb@4[]"), (one(4, 9, Compute(0, 1)), "3g.40gb@4[1c@0]")],
)
def test_one_instance_is_named_by_profile_and_place(instance: Instance, text: str) -> None:
    assert layout_text((instance,), H100) == text
    assert instance_text(instance, H100) == "3g.40gb@4"


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("9@4", (spanning(H100, 4, 9),)),
        ("19@0-1,3", (spanning(H100, 0, 19), spanning(H100, 1, 19), spanning(H100, 3, 19))),
        ("  1g.10gb@0 \n 3G.40GB@4[ 1c@0  2c@0 ]  ", (spanning(H100, 0, 19), one(4, 9, Compute(0, 1), Compute(0, 2)))),
    ],
)
def test_numbers_of_profiles_and_spaces_are_read_too(text: str, layout: Layout) -> None:
    assert parse_layout(text, H100) == layout


def test_a_record_of_another_driver_is_read_where_the_board_is_known() -> None:
    assert parse_layout("3g.39gb@4", A100, device_id=A100_80) == (spanning(A100, 4, 9),)
    with pytest.raises(ValueError, match=r"^this GPU has no profile 3g\.39gb$"):
        parse_layout("3g.39gb@4", A100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a group of instances"),
        ("3g.40gb", "'3g.40gb' is not a group of instances"),
        ("3g.40gb@", "'3g.40gb@' is not a group of instances"),
        ("3g.40gb@x", "'3g.40gb@x' is not a group of instances"),
        ("3g.40gb@0,", "'3g.40gb@0,' is not a group of instances"),
        ("3g.40gb@0-999999999", "'3g.40gb@0-999999999' is not a group of instances"),
        ("3g.40gb@4-0", "'4-0' is a range that goes backwards"),
        ("3g.40gb@0[1c]", "'1c' is not a group of compute instances"),
        ("3g.40gb@0[1c@0", "'3g.40gb@0[1c@0' is not a group of instances"),
        ("none 3g.40gb@0", "'none' is not a group of instances"),
        ("3g.20gb@0", "this GPU has no profile 3g.20gb"),
        ("99@0", "'99@0' does not name its compute instances"),
    ],
)
def test_what_is_no_layout_is_a_value_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_layout(text, H100)


@st.composite
def layouts(draw: st.DrawFn, geometry: Geometry) -> Layout:
    """Instances of any profile, known or not, at different starts; nothing says that they fit."""
    numbers = st.sampled_from([*(profile.number for profile in geometry.profiles), 99])
    computes = st.lists(st.builds(Compute, st.integers(0, 7), st.integers(1, 8)), max_size=4, unique=True).map(sorted)
    found = []
    for start in draw(st.sets(st.integers(0, 15), max_size=8)):
        number = draw(numbers)
        profile = geometry.profile(number)
        whole = [Compute(0, profile.slices)] if profile else []
        found.append(Instance(start, number, tuple(draw(st.one_of(st.just(whole), computes)))))
    return tuple(sorted(found))


@pytest.mark.parametrize("geometry", [pytest.param(value, id=key) for key, value in geometries().items()])
@given(data=st.data())
@settings(derandomize=True, max_examples=40)
def test_every_layout_is_read_back_as_it_was(geometry: Geometry, data: st.DataObject) -> None:
    layout = data.draw(layouts(geometry))
    assert parse_layout(layout_text(layout, geometry), geometry) == layout
