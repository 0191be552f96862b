# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NUMA nodes of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Tuple

from .._topology.numa import Node, parse_meminfo

if TYPE_CHECKING:
    from .protocols import Files

FOLDER = "/sys/devices/system/node"


def read_nodes(files: Files, meminfo: Mapping[str, int]) -> Tuple[Node, ...]:
    """All nodes by number; on a machine without node folders one nameless node with all memory.

    ``meminfo`` is the parsed /proc/meminfo, which only such a machine needs.
    """
    numbers = sorted(int(name[4:]) for name in files.names(FOLDER) if name[:4] == "node" and name[4:].isdigit())
    if not numbers:
        return (Node(None, True, meminfo.get("MemTotal", 0)),)
    nodes = []
    for number in numbers:
        memory = parse_meminfo(files.read_optional(f"{FOLDER}/node{number}/meminfo") or "")
        cpus = (files.read_optional(f"{FOLDER}/node{number}/cpulist") or "").strip()
        nodes.append(Node(number, bool(cpus), memory.get("MemTotal", 0)))
    return tuple(nodes)
