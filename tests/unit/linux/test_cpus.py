# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's masks, and CPUs as cores with their threads."""

from __future__ import annotations

import re
from typing import AbstractSet, FrozenSet, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpus, masks
from hypothesis import given, settings
from hypothesis import strategies as st

NUMBERS = st.frozensets(st.integers(min_value=0, max_value=1200), max_size=60)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", ()),
        ("00000000,00000000\n", ()),
        ("1", (0,)),
        ("ff", range(8)),
        ("FF\n", range(8)),
        ("00000001,00000000", (32,)),
        ("1,0", (32,)),
        ("80000000,00000000,00000001", (0, 95)),
        ("3,0000ffff,00000000", (*range(32, 48), 64, 65)),
    ],
)
def test_a_mask_is_read(text: str, numbers: Sequence[int]) -> None:
    assert masks.parse_mask(text) == frozenset(numbers)


@pytest.mark.parametrize("text", ["", "0-3", "0x1", "g", "1,,1", ",1", "1,", "123456789", "-1", "1 1", "1_0", "٣"])
def test_what_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is not a mask of CPUs$"):
        masks.parse_mask(text)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), "0"),
        ((0,), "1"),
        ((3, 3), "8"),
        ((31,), "80000000"),
        ((32,), "1,00000000"),
        ((0, 95), "80000000,00000000,00000001"),
        ((*range(32, 48), 64, 65), "3,0000ffff,00000000"),
    ],
)
def test_the_shortest_mask_is_written(numbers: Sequence[int], text: str) -> None:
    assert masks.render_mask(numbers) == text


@settings(derandomize=True)
@given(NUMBERS)
def test_what_was_written_as_a_mask_is_read_back(numbers: FrozenSet[int]) -> None:
    assert masks.parse_mask(masks.render_mask(numbers)) == numbers


@pytest.mark.parametrize(
    ("numbers", "siblings", "cores"),
    [
        ({0, 1, 2, 3}, ({0, 2}, {1, 3}), ((0, 2), (1, 3))),
        ({0, 1, 2, 3}, ({1, 3}, {0, 2}), ((0, 2), (1, 3))),
        # A sibling that is not among them, a core that has none among them, and CPUs that nobody knows the core of.
        ({1, 2, 9, 5}, ({0, 2}, {1, 3}, {4, 6}), ((1,), (2,), (5,), (9,))),
        ({0, 1, 2}, (), ((0,), (1,), (2,))),
        (set(), ({0, 1},), ()),
    ],
)
def test_cores_have_the_threads_that_are_asked_for(
    numbers: AbstractSet[int], siblings: Sequence[AbstractSet[int]], cores: Tuple[Tuple[int, ...], ...]
) -> None:
    assert cpus.cores(numbers, siblings) == cores


@pytest.mark.parametrize(
    ("cores", "order"),
    [
        ((), ()),
        (((0, 8), (1, 9), (2, 10)), (0, 1, 2, 8, 9, 10)),
        (((0, 1), (2, 3)), (0, 2, 1, 3)),
        (((0, 1, 2, 3), (4,), (5, 6)), (0, 4, 5, 1, 6, 2, 3)),
    ],
)
def test_one_thread_of_every_core_comes_first(cores: Sequence[Sequence[int]], order: Sequence[int]) -> None:
    assert cpus.interleave_threads(cores) == order
