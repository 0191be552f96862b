# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's list format for sets of CPUs and nodes (``0-7,16``), see cpuset(7), "List format"."""

from __future__ import annotations

from typing import FrozenSet, Iterable, Set

# No kernel has so many (NR_CPUS goes to 8192); what is damaged shall not fill the memory.
HIGHEST = 65535


def parse(text: str) -> FrozenSet[int]:
    """The numbers of a list; an empty text is the empty set. Raises ``ValueError`` on anything else."""
    numbers: Set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            raise ValueError(f"{part!r} is not a number or a range such as 0-3") from None
        if high < low:
            raise ValueError(f"{part!r} is a range that goes backwards")
        if high > HIGHEST:
            raise ValueError(f"{part!r} is above {HIGHEST}")
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def render(numbers: Iterable[int]) -> str:
    """The shortest list of the numbers."""
    parts = []
    ordered = sorted(set(numbers))
    index = 0
    while index < len(ordered):
        end = index
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        parts.append(str(ordered[index]) if end == index else f"{ordered[index]}-{ordered[end]}")
        index = end + 1
    return ",".join(parts)
