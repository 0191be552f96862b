# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A topology as Slurm has it, and when slurmctld would refuse it. Pure.

What it refuses is in ``switch_record_validate`` (src/plugins/topology/tree/switch_record.c) and
``block_record_validate`` (src/plugins/topology/block/block_record.c); what it only warns of, such as a node below two
switches, is refused here too where nobody can mean it.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.value import field, frozen
from ..._text.host_ranges import expand, folded

TREE, BLOCK, FLAT = "topology/tree", "topology/block", "topology/flat"
NODES, SWITCHES = "nodes", "switches"
# Larger blocks are made of so many pairs of pairs at most (MAX_BLOCK_LEVELS).
MOST_LEVELS = 16
# How often slurmctld goes through the switches, of which each time may place one above another.
MOST_ABOVE = 20
# The levels that slurmctld makes without BlockSizes.
LEVELS = range(5)


@frozen
class Topology:
    """``plugin`` is ``TREE``, ``BLOCK`` or None for none. ``members`` are the nodes or the switches right below a
    switch or in a block, by its name and which of the two, folded as in ``h[001-016]``.

    ``order`` are the blocks in their order, which says what is near, and ``sizes`` those of BlockSizes. Of a running
    slurmctld these are the sizes that it made; see ``sizes_made``.
    """

    plugin: Optional[str] = None
    members: Mapping[Tuple[str, str], str] = field(default_factory=dict)
    order: Tuple[str, ...] = ()
    sizes: Tuple[int, ...] = ()

    @property
    def nodes(self) -> Tuple[str, ...]:
        """All nodes, in the order of the switches or blocks."""
        return tuple(node for (_name, kind), names in self.members.items() if kind == NODES for node in names_in(names))


@frozen
class Topologies:
    """Those of topology.yaml by their names. ``default`` is the one that partitions have which name none."""

    by_name: Mapping[str, Topology] = field(default_factory=dict)
    default: Optional[str] = None


def names_in(names: str) -> Tuple[str, ...]:
    """The names in a list; one that Slurm would not take is a name of its own."""
    try:
        return expand(names)
    except ValueError:
        return (names,)


def canonical(names: str) -> str:
    """A list in the one form in which lists of the same names are equal."""
    return folded(names_in(names))


def sizes_made(topology: Topology) -> Tuple[int, ...]:
    """The sizes of blocks that slurmctld makes of these: up to the first that holds all blocks."""
    base = topology.sizes[0] if topology.sizes else _first_count(topology)
    factors = [size // base for size in topology.sizes] if topology.sizes else [1 << level for level in LEVELS]
    found: List[int] = []
    for factor in sorted(factors):
        found.append(factor * base)
        if factor >= len(topology.order):
            break
    return tuple(found)


def too_small(topology: Topology) -> Optional[Tuple[str, int, int]]:
    """A block with fewer nodes than the smallest block shall have: its name, its nodes, and how many it shall have."""
    base = topology.sizes[0] if topology.sizes else _first_count(topology)
    for name in topology.order:
        count = _count(topology, name)
        if count < base:
            return name, count, base
    return None


def _first_count(topology: Topology) -> int:
    return _count(topology, topology.order[0]) if topology.order else 1


def _count(topology: Topology, block: str) -> int:
    return len(names_in(topology.members.get((block, NODES), "")))


def fault_of_sizes(sizes: Sequence[int]) -> str:
    """What is wrong with BlockSizes, empty where nothing is."""
    before = 0
    for size in sizes:
        factor = size // sizes[0] if sizes[0] > 0 else 0
        if size <= 0:
            return f"a block must have at least one node, not {size}"
        if size <= before:
            return f"{size} does not come after {before}: the smallest comes first"
        if size % sizes[0] or factor & (factor - 1):
            return f"{size} is not {sizes[0]} times a power of two, and larger blocks are made of pairs"
        if factor >= 1 << MOST_LEVELS:
            return f"{size} is more than {1 << (MOST_LEVELS - 1)} times {sizes[0]}"
        before = size
    return ""


def node_twice(topology: Topology) -> Optional[Tuple[str, str, str]]:
    """A node that is in two places: its name, and those of the two."""
    places: Dict[str, str] = {}
    for (name, kind), names in topology.members.items():
        for node in names_in(names) if kind == NODES else ():
            if node in places:
                return node, places[node], name
            places[node] = name
    return None


def fault_of_tree(topology: Topology) -> Optional[Tuple[str, str]]:
    """A switch that is in no tree, and why; None where all are."""
    names = {name for name, _kind in topology.members}
    parents: Dict[str, str] = {}
    for (name, kind), below in topology.members.items():
        for child in names_in(below) if kind == SWITCHES else ():
            if child not in names:
                return name, f"there is no switch {child}, which it has below it"
            if child in parents:
                return child, f"it is below {parents[child]} and {name}, and a switch must be below one only"
            parents[child] = name
    for name in names:
        above, at = [name], name
        while at in parents:
            at = parents[at]
            if at in above:
                return name, f"it is below itself: {' below '.join((*above, at))}"
            above.append(at)
        if len(above) > MOST_ABOVE:
            return name, f"it has more than {MOST_ABOVE} switches above it, and slurmctld allows no more"
    return None
