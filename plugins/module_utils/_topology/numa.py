# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes, from the text of the kernel's files (Documentation/ABI/stable/sysfs-devices-node)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Sequence


@dataclass(frozen=True)
class Node:
    """One NUMA node. ``number`` is None for the memory of a machine that has no node folders; sizes are kB."""

    number: Optional[int]
    has_cpus: bool
    total_kb: int

    @property
    def name(self) -> str:
        """What a person calls it."""
        return "memory" if self.number is None else f"node{self.number}"


def parse_meminfo(text: str) -> Dict[str, int]:
    """The kB values of /proc/meminfo or of a node's meminfo, by name (``MemTotal``)."""
    return {name: int(value) for name, value in re.findall(r"^(?:Node \d+ )?(\w+):\s+(\d+)", text, re.MULTILINE)}


def spread(total: int, numbers: Sequence[int]) -> Mapping[int, int]:
    """A total over nodes: even, and what does not divide goes to the first ones."""
    share, rest = divmod(total, len(numbers))
    return {number: share + (index < rest) for index, number in enumerate(sorted(numbers))}
