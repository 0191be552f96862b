# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPUs and which memory are next to a GPU, by the driver and sysfs, and those of a NUMA node."""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._linux import cpulist, cpus, near, numa
from ..._nvidia import affinity
from ..._nvidia.gpus import PCI

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._nvidia.driver import Driver, Identity

NOT_TOLD = "neither the driver nor the firmware reports its NUMA node"


@frozen
class SliceGpu:
    """A GPU, and what the driver says of its place; one that is lost says nothing."""

    identity: Identity
    told: affinity.Affinity = field(default_factory=affinity.Affinity)

    @property
    def name(self) -> str:
        return self.identity.name


def read(driver: Driver) -> Tuple[SliceGpu, ...]:
    """A question: all GPUs with their place."""
    return tuple(
        SliceGpu(gpu.identity) if gpu.identity.lost else SliceGpu(gpu.identity, affinity.read(gpu))
        for gpu in driver.gpus()
    )


@frozen
class NumaTopology:
    """The online and the possible CPUs, and by NUMA node its CPUs, its memory in kB and its distances.

    A kernel without NUMA has no nodes. ``firmware`` is what sysfs says of GPUs by PCI address: the node, and the CPUs.
    """

    online: FrozenSet[int] = frozenset()
    possible: FrozenSet[int] = frozenset()
    nodes: Mapping[int, FrozenSet[int]] = field(default_factory=dict)
    memory: Mapping[int, int] = field(default_factory=dict)
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    firmware: Mapping[str, Tuple[Optional[int], FrozenSet[int]]] = field(default_factory=dict)


@frozen
class Room:
    """The CPUs and the memory nodes of a slice."""

    cpus: FrozenSet[int]
    memory: FrozenSet[int]


def read_numa_topology(files: Files, gpus: Tuple[SliceGpu, ...]) -> NumaTopology:
    online = cpus.read_online(files)
    nodes = numa.node_numbers(files)
    memory = {number: files.read_optional(f"{numa.FOLDER}/node{number}/meminfo") or "" for number in nodes}
    return NumaTopology(
        online=online,
        possible=cpus.read_cpus(files, f"{cpus.FOLDER}/possible") | online,
        nodes={number: cpus.read_cpus(files, f"{numa.FOLDER}/node{number}/cpulist") & online for number in nodes},
        memory={number: numa.parse_meminfo(text).get("MemTotal", 0) for number, text in memory.items()},
        distances={number: numa.read_distances(files, number) for number in nodes} if len(nodes) > 1 else {},
        firmware={gpu.identity.pci_address: _firmware(files, gpu) for gpu in gpus if not gpu.identity.lost},
    )


def of_gpu(gpu: SliceGpu, topology: NumaTopology) -> Optional[Room]:
    """The CPUs of its NUMA node that are next to it, with the memory of that node; None where nobody tells its node.

    Memory that is the GPU's own (Grace) is a node too, from which the driver gives memory to its processes. Raises
    ``DeclarationError`` for a node without memory.
    """
    nodes = topology.nodes
    if len(nodes) < 2:
        return Room(topology.online, frozenset(nodes or (0,)))
    numa_node, local = topology.firmware[gpu.identity.pci_address]
    told = near.Told(gpu.told.own_node, gpu.told.cpus, gpu.told.memory_nodes, numa_node, local)
    place = near.place(told, nodes, lambda number: topology.distances[number])
    if place.near is None:
        return None
    own = frozenset(number for number in nodes if number == place.node and topology.memory[number])
    if not topology.memory[place.near]:
        raise _without(f"the slice of {gpu.name}", place.near, "memory", topology)
    # The driver may mean the CPUs of a whole socket that has several nodes.
    return Room((place.cpus & nodes[place.near]) or nodes[place.near], own | {place.near})


def of_node(where: str, number: int, topology: NumaTopology) -> Room:
    """Raises ``DeclarationError`` for a node without CPUs or memory."""
    if not topology.nodes and number == 0:
        return Room(topology.online, frozenset((0,)))
    if not topology.nodes[number]:
        raise _without(where, number, "online CPUs", topology)
    if not topology.memory[number]:
        raise _without(where, number, "memory", topology)
    return Room(topology.nodes[number], frozenset((number,)))


def has_node(number: int, topology: NumaTopology) -> bool:
    return number in (topology.nodes or (0,))


def _without(where: str, number: int, what: str, topology: NumaTopology) -> DeclarationError:
    whole = [node for node, own in topology.nodes.items() if own and topology.memory[node]]
    return DeclarationError(
        "make {}",
        object=where if where.startswith("the ") else f"the slice of {where}",
        cause=f"NUMA node {number} has no {what}",
        hint=f"nodes with CPUs and memory: {cpulist.render(whole) or 'none'}",
    )


def _firmware(files: Files, gpu: SliceGpu) -> Tuple[Optional[int], FrozenSet[int]]:
    folder = f"{PCI}/{gpu.identity.pci_address}"
    text = (files.read_optional(f"{folder}/numa_node") or "").strip()
    return int(text) if text.isdecimal() else None, cpus.read_cpus(files, f"{folder}/local_cpulist")
