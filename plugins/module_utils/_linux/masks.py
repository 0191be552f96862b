# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's mask format for sets of CPUs (cpuset(7), "Mask format")."""

from __future__ import annotations

from typing import FrozenSet, Iterable

from .._core.regex import regex

GROUP = 32
"""The bits of one group of a mask: eight hexadecimal digits."""

_DIGITS = regex(r"[0-9a-fA-F]{1,8}")


def parse_mask(text: str) -> FrozenSet[int]:
    """The numbers of a mask (``00000001,0000ff00``: 8 to 15 and 32). Raises ``ValueError`` on anything else."""
    mask = 0
    for group in text.strip().split(","):
        if not _DIGITS.fullmatch(group):
            raise ValueError(f"{text.strip()!r} is not a mask of CPUs")
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
