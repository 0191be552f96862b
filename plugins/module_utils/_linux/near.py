# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPUs are near: the NUMA node of a set of CPUs or of a device, and the one to take for a node that has none."""

from __future__ import annotations

from itertools import chain
from typing import AbstractSet, Callable, FrozenSet, Mapping, Optional, Sequence, Tuple

from .._core.value import frozen


@frozen
class Told:
    """What is told of the place of a device.

    By its driver: the node that its own memory is (``own_node``), the CPUs next to it, and the nodes of the memory next
    to it. By the firmware, in sysfs: its node, and its CPUs.
    """

    own_node: Optional[int] = None
    affinity: FrozenSet[int] = frozenset()
    memory_nodes: Sequence[int] = ()
    numa_node: Optional[int] = None
    local: FrozenSet[int] = frozenset()


@frozen
class Place:
    """The NUMA node of a device and who told it, the nearest node with CPUs, and its CPUs and who told them."""

    node: Optional[int] = None
    node_source: str = ""
    near: Optional[int] = None
    cpus: FrozenSet[int] = frozenset()
    cpus_source: str = ""


def place(told: Told, nodes: Mapping[int, AbstractSet[int]], distances: Callable[[int], Mapping[int, int]]) -> Place:
    """Where a device is, by the first that knows it. ``distances`` gives those from a node of ``nodes``."""
    sources: Tuple[Tuple[str, Optional[int]], ...] = (
        ("nvml_numa_id", told.own_node),
        ("nvml_cpu_affinity", majority(told.affinity, nodes)),
        ("sysfs_numa_node", told.numa_node),
        ("sysfs_local_cpulist", majority(told.local, nodes)),
    )
    # The driver may know nodes that the kernel does not show here, as in a container with a /sys of its own.
    of_memory = told.memory_nodes[0] if len(told.memory_nodes) == 1 else None
    candidates = (*sources[:1], ("nvml_memory_affinity", of_memory))
    known = (pair for pair in sources if pair[1] in nodes)
    source, node = next(chain(known, (pair for pair in candidates if pair[1] is not None)), ("", None))
    near = None
    if node is not None and node in nodes:
        near = nearest_with_cpus(node, nodes, distances(node))
    of_node = frozenset(nodes[near]) if near is not None else frozenset()
    ways = ((told.affinity, "nvml_cpu_affinity"), (told.local, "sysfs_local_cpulist"), (of_node, "numa_node"))
    cpus, cpus_source = next((way for way in ways if way[0]), (of_node, ""))
    return Place(node, source, near, cpus, cpus_source)


def majority(cpus: AbstractSet[int], nodes: Mapping[int, AbstractSet[int]]) -> Optional[int]:
    """The node that more than half of the CPUs belong to, of ``nodes`` with their CPUs.

    The CPUs of all nodes together name none of them.
    """
    counts = {number: len(own & cpus) for number, own in nodes.items() if own & cpus}
    if len(counts) > 1 and all(own <= cpus for own in nodes.values()):
        return None
    return next((number for number, count in counts.items() if 2 * count > len(cpus)), None)


def nearest_with_cpus(
    number: int, nodes: Mapping[int, AbstractSet[int]], distances: Mapping[int, int]
) -> Optional[int]:
    """The node itself, or for one that has only memory the nearest that has CPUs; None where no distance is known.

    ``distances`` are those from the node, by the number of the other one.
    """
    if nodes[number]:
        return number
    candidates = [other for other, own in nodes.items() if own and other in distances]
    return min(candidates, key=lambda other: (distances[other], other), default=None)
