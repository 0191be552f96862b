# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs as cores with their threads, and the kernel's mask format for sets of them (cpuset(7), "Mask format")."""

from __future__ import annotations

import re
from typing import AbstractSet, FrozenSet, Iterable, List, Sequence, Tuple

GROUP = 32
"""The bits of one group of a mask: eight hexadecimal digits."""

_DIGITS = re.compile(r"[0-9a-fA-F]{1,8}")

Cores = Tuple[Tuple[int, ...], ...]


def parse_mask(text: str) -> FrozenSet[int]:
    """The numbers of a mask (``00000001,0000ff00``: 8 to 15 and 32). Raises ``ValueError`` on anything else."""
    mask = 0
    for group in text.strip().split(","):
        if not _DIGITS.fullmatch(group):
            raise ValueError(f"{text.strip()!r} is no mask of CPUs")
        mask = mask << GROUP | int(group, 16)
    return frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)


def render_mask(numbers: Iterable[int]) -> str:
    """The mask of the numbers, as short as the kernel takes it: only the groups after the first have all digits."""
    mask = sum(1 << number for number in set(numbers))
    groups = [f"{mask & 0xFFFFFFFF:08x}"]
    while mask >> GROUP:
        mask >>= GROUP
        groups.insert(0, f"{mask & 0xFFFFFFFF:08x}")
    return ",".join([groups[0].lstrip("0") or "0", *groups[1:]])


def cores(numbers: AbstractSet[int], siblings: Iterable[AbstractSet[int]]) -> Cores:
    """The cores that have some of the CPUs: of each the threads that are among them, all in the order of the numbers.

    ``siblings`` are the sets of threads of the machine's cores. A CPU that is in none of them is a core of its own.
    """
    found = [tuple(sorted(threads & numbers)) for threads in siblings]
    known = {number for threads in found for number in threads}
    return tuple(sorted([threads for threads in found if threads] + [(number,) for number in numbers - known]))


def in_turn(every_core: Sequence[Sequence[int]]) -> Tuple[int, ...]:
    """The CPUs of cores with one thread of every core first, then the second threads, and so on."""
    most = max((len(threads) for threads in every_core), default=0)
    ordered: List[int] = []
    for turn in range(most):
        ordered.extend(threads[turn] for threads in every_core if turn < len(threads))
    return tuple(ordered)
