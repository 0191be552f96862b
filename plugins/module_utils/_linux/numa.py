# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NUMA nodes, from the text of the kernel's files (Documentation/ABI/stable/sysfs-devices-node)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from .._core.errors import CannotLook
from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Files


@frozen
class NumaNode:
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


FOLDER = "/sys/devices/system/node"


def node_numbers(files: Files) -> Tuple[int, ...]:
    """The numbers of all nodes; none where the kernel knows no NUMA."""
    names = files.names(FOLDER)
    return tuple(sorted(int(name[4:]) for name in names if name[:4] == "node" and name[4:].isdecimal()))


def read_distances(files: Files, node: int) -> Dict[int, int]:
    """The distances from a node by the number of the other one, none where the kernel does not tell."""
    path = f"{FOLDER}/node{node}/distance"
    text = files.read_optional(path) or ""
    try:
        return dict(zip(node_numbers(files), map(int, text.split())))
    except ValueError as error:
        raise CannotLook("read the distances", object=path, cause=f"{text[:80].strip()!r} are not numbers") from error


def read_nodes(files: Files, meminfo: Mapping[str, int]) -> Tuple[NumaNode, ...]:
    """All nodes by number; on a machine without node folders one nameless node with all memory.

    ``meminfo`` is the parsed /proc/meminfo, which only such a machine needs.
    """
    numbers = node_numbers(files)
    if not numbers:
        return (NumaNode(None, True, meminfo.get("MemTotal", 0)),)
    nodes = []
    for number in numbers:
        memory = parse_meminfo(files.read_optional(f"{FOLDER}/node{number}/meminfo") or "")
        cpus = (files.read_optional(f"{FOLDER}/node{number}/cpulist") or "").strip()
        nodes.append(NumaNode(number, bool(cpus), memory.get("MemTotal", 0)))
    return tuple(nodes)
