# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPUs of a machine with its NUMA nodes, cores and GPUs, and what is wrong with a division of them.

Lists are written as the kernel's command line has them (lib/bitmap.c, kernel/sched/isolation.c).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, AbstractSet, Dict, FrozenSet, Mapping, Optional, Set, Tuple

from .._core.value import frozen
from .cpus import FOLDER as CPUS
from .cpus import read_cpus
from .numa import FOLDER as NODES

if TYPE_CHECKING:
    from .._core.protocols import Files

PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"


@frozen
class CpuTopology:
    """The CPUs of a machine: ``nodes`` and ``gpus`` (PCI addresses) with theirs, ``siblings`` the threads of cores."""

    possible: FrozenSet[int]
    online: FrozenSet[int]
    nodes: Mapping[str, FrozenSet[int]]
    siblings: FrozenSet[FrozenSet[int]]
    gpus: Mapping[str, FrozenSet[int]]

    @property
    def last(self) -> int:
        """The CPU that ``N`` stands for."""
        return max(self.possible, default=0)

    def node_without(self, cpus: AbstractSet[int]) -> Optional[Tuple[str, FrozenSet[int]]]:
        """The first NUMA node that has CPUs and none of these, with its own."""
        return self._without(self.nodes, cpus)

    def gpu_without(self, cpus: AbstractSet[int]) -> Optional[Tuple[str, FrozenSet[int]]]:
        """The first GPU that has CPUs near it and none of these, with its own."""
        return self._without(self.gpus, cpus)

    def split_core(self, cpus: AbstractSet[int]) -> FrozenSet[int]:
        """The threads of the first core that has some of these and other ones; none where no core has."""
        cores = (threads & self.online for threads in self.siblings)
        split = [threads for threads in cores if threads & cpus and threads - cpus]
        return min(split, key=min, default=frozenset())

    def _without(
        self, places: Mapping[str, FrozenSet[int]], cpus: AbstractSet[int]
    ) -> Optional[Tuple[str, FrozenSet[int]]]:
        there = ((name, own & self.online) for name, own in places.items())
        return next(((name, own) for name, own in there if own and not own & cpus), None)


def read_cpu_topology(files: Files) -> CpuTopology:
    """Raises ``CannotLook`` on what is not a list of CPUs."""
    possible = read_cpus(files, f"{CPUS}/possible")
    online = read_cpus(files, f"{CPUS}/online") or possible
    folders = [name for name in files.names(NODES) if re.fullmatch(r"node[0-9]+", name)]
    nodes = {name: read_cpus(files, f"{NODES}/{name}/cpulist") for name in folders}
    siblings = (read_cpus(files, f"{CPUS}/cpu{number}/topology/thread_siblings_list") for number in sorted(online))
    gpus: Dict[str, FrozenSet[int]] = {}
    for name in files.names(PCI):
        folder = f"{PCI}/{name}"
        if (files.read_optional(f"{folder}/vendor") or "").strip() == NVIDIA and (
            files.read_optional(f"{folder}/class") or ""
        ).startswith("0x03"):
            gpus[name] = read_cpus(files, f"{folder}/local_cpulist")
    return CpuTopology(possible, online, nodes, frozenset(siblings), gpus)


def split_flags(value: str) -> Tuple[Tuple[str, ...], str]:
    """The flags of ``isolcpus`` and its list. The kernel takes every leading item that begins with a letter as one."""
    flags = []
    items = value.split(",")
    while items and re.match(r"[A-Za-z]", items[0]):
        flags.append(items.pop(0))
    return tuple(flags), ",".join(items)


def expand(text: str, last: int) -> FrozenSet[int]:
    """The CPUs of a list of the command line; ``last`` is the CPU that ``N`` stands for.

    Raises ``ValueError`` on what is not one, such as a range that goes backwards only here.
    """
    numbers: Set[int] = set()
    for item in text.split(","):
        if not item:
            continue
        span, colon, stride = item.partition(":")
        low, dash, high = span.partition("-")
        first = 0 if low == "all" else last if low == "N" else int(low)
        end = last if low == "all" or high == "N" else int(high) if dash else first
        if end < first:
            raise ValueError(f"{item} is a range that goes backwards")
        used, group = (int(part) for part in stride.split("/")) if colon else (1, 1)
        numbers.update(number for number in range(first, end + 1) if (number - first) % group < used)
    return frozenset(numbers)


def isolated_by(value: str, last: int) -> FrozenSet[int]:
    """The CPUs of a list, without the flags of ``isolcpus``."""
    return expand(split_flags(value)[1] if re.match("(?:domain|nohz|managed_irq),", value) else value, last)
