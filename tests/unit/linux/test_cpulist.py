# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's list format for CPUs, and what is known of NUMA nodes."""

from __future__ import annotations

from typing import Dict, FrozenSet, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist, numa
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("\n", ()),
        ("0\n", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-1,4", (0, 1, 4)),
        ("7-7", (7,)),
        ("0,0-1", (0, 1)),
        ("0-127,256-383\n", (*range(128), *range(256, 384))),
    ],
)
def test_a_list_is_read(text: str, numbers: Sequence[int]) -> None:
    assert cpulist.parse(text) == frozenset(numbers)


@pytest.mark.parametrize("text", ["a", "0-", "-3", "3-1", "0 1", "0x1", "1.5"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number or a range|goes backwards"):
        cpulist.parse(text)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((5,), "5"), ((1, 0), "0-1"), ((0, 2, 3, 4, 9), "0,2-4,9"), ((3, 3), "3")],
)
def test_the_shortest_list_is_written(numbers: Sequence[int], text: str) -> None:
    assert cpulist.render(numbers) == text


@given(st.frozensets(st.integers(min_value=0, max_value=4096), max_size=200))
def test_what_was_written_is_read_back(numbers: FrozenSet[int]) -> None:
    assert cpulist.parse(cpulist.render(numbers)) == numbers


@given(
    st.integers(min_value=0, max_value=10**6),
    st.lists(st.integers(min_value=0, max_value=64), min_size=1, max_size=16, unique=True),
)
def test_a_total_is_spread_without_loss_and_evenly(total: int, nodes: Sequence[int]) -> None:
    shares: Dict[int, int] = dict(numa.spread(total, nodes))
    assert sum(shares.values()) == total
    assert max(shares.values()) - min(shares.values()) <= 1
    ordered = [shares[node] for node in sorted(nodes)]
    assert ordered == sorted(ordered, reverse=True)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("MemTotal:       16384 kB\nMemFree:  12 kB\n", "MemFree", 12),
        ("Node 3 MemTotal:       16384 kB\nNode 3 HugePages_Total:     5\n", "MemTotal", 16384),
        ("Node 3 HugePages_Total:     5\n", "HugePages_Total", 5),
        ("Hugepagesize:     524288 kB\n", "Hugepagesize", 524288),
    ],
)
def test_memory_is_read_from_either_file(text: str, name: str, value: int) -> None:
    assert numa.parse_meminfo(text)[name] == value
