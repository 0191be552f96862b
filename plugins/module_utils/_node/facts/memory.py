# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Memory: how much each node has, and what of it lies in huge pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..._linux.numa import FOLDER, parse_meminfo, read_nodes
from .fields import Facts, Fields, read, read_as

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.numa import NumaNode

HUGEPAGES = "/sys/kernel/mm/hugepages"
THP = "/sys/kernel/mm/transparent_hugepage"


def gather(files: Files) -> Facts:
    fields = Fields()
    text, reason = read(files, "/proc/meminfo")
    meminfo = parse_meminfo(text or "")
    for name, key in (("total_mib", "MemTotal"), ("available_mib", "MemAvailable"), ("swap_mib", "SwapTotal")):
        fields.add(name, meminfo[key] // 1024 if key in meminfo else None, reason or f"/proc/meminfo has no {key}")
    fields.add("default_hugepage_kb", meminfo.get("Hugepagesize"), reason or "this kernel has no huge pages")
    fields.add("hugepages", _pools(files, read_nodes(files, meminfo)))
    for name in ("enabled", "defrag", "shmem_enabled"):
        fields.add(f"transparent_{name}", *read_as(files, f"{THP}/{name}", _chosen))
    fields.add("numa_balancing", *read_as(files, "/proc/sys/kernel/numa_balancing", int))
    return fields.facts


def _pools(files: Files, nodes: Tuple[NumaNode, ...]) -> List[Facts]:
    """The huge pages of each size on each node; ``node`` is null for all memory where there are no nodes."""
    names = (re.fullmatch(r"hugepages-(\d+)kB", name) for name in files.names(HUGEPAGES))
    sizes = sorted(int(match[1]) for match in names if match)
    found = []
    for size in sizes:
        for node in nodes:
            folder = (
                f"{HUGEPAGES if node.number is None else f'{FOLDER}/node{node.number}/hugepages'}/hugepages-{size}kB"
            )
            if files.exists(folder):
                fields = Fields(size_kb=size)
                fields.add("node", node.number, "this kernel has no NUMA nodes")
                for key in ("nr", "free", "surplus"):
                    fields.add({"nr": "pages"}.get(key, key), *read_as(files, f"{folder}/{key}_hugepages", int))
                found.append(fields.facts)
    return found


def _chosen(text: str) -> Optional[str]:
    """The word in brackets."""
    match = re.search(r"\[(\S+)\]", text)
    return match[1] if match else None
