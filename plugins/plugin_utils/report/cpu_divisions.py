# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose the CPUs of nodes are, once for all nodes that divide the same CPUs in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from ...module_utils._linux import cpulist
from ...module_utils._text.host_ranges import fold
from .facts import CpuOwner, NodeFacts

ISOLATED = "isolated"


@dataclass(frozen=True)
class InterruptCpus:
    """The CPUs to which interrupts of a kind of device may be delivered, of those that can be moved."""

    kind: str
    cpus: str


@dataclass(frozen=True)
class DividedNuma:
    """A NUMA node, None for a machine without, with those who have some of its CPUs.

    ``interrupts`` are those of all nodes of the division together.
    """

    node: Optional[int]
    cpus: str
    owners: Tuple[CpuOwner, ...]
    interrupts: Tuple[InterruptCpus, ...]


@dataclass(frozen=True)
class CpuDivision:
    """Nodes that divide their CPUs alike; ``ranges`` are the nodes as ``h[001-020]``.

    On those that are ``stray``, interrupts that can be moved may be delivered to isolated CPUs.
    """

    nodes: Tuple[str, ...]
    ranges: Tuple[str, ...]
    stray: Tuple[str, ...]
    numa: Tuple[DividedNuma, ...]


def divisions_of(facts: Mapping[str, NodeFacts]) -> Tuple[CpuDivision, ...]:
    """``facts`` by node. The largest division comes first; a node whose CPUs nobody divides is in none."""
    members: Dict[Tuple[object, ...], List[str]] = {}
    for name, known in facts.items():
        if known.cpu_owners:
            members.setdefault((_places(known), known.cpu_owners), []).append(name)
    ordered = sorted(members.values(), key=lambda names: -len(names))
    return tuple(_division({name: facts[name] for name in names}) for names in ordered)


def _places(facts: NodeFacts) -> Tuple[Tuple[Optional[int], str], ...]:
    """The NUMA nodes that have CPUs; a machine without is one, and has as many CPUs as are online."""
    places = tuple((numa.node, numa.cpus) for numa in facts.numa if numa.cpus)
    return places or ((None, cpulist.render(range(facts.cpus or 0))),)


def _division(facts: Mapping[str, NodeFacts]) -> CpuDivision:
    first = next(iter(facts.values()))
    isolated = frozenset().union(*(cpulist.parse(one.cpus) for one in first.cpu_owners if one.kind == ISOLATED))
    delivered = {name: _delivered(known) for name, known in facts.items()}
    together: Dict[str, FrozenSet[int]] = {}
    for kinds in delivered.values():
        for kind, cpus in kinds.items():
            together[kind] = together.get(kind, frozenset()) | cpus
    return CpuDivision(
        nodes=tuple(facts),
        ranges=tuple(fold(facts)),
        stray=tuple(name for name, kinds in delivered.items() if any(cpus & isolated for cpus in kinds.values())),
        numa=tuple(_numa(node, cpus, first.cpu_owners, together) for node, cpus in _places(first)),
    )


def _delivered(facts: NodeFacts) -> Dict[str, FrozenSet[int]]:
    found: Dict[str, FrozenSet[int]] = {}
    for device in facts.devices:
        for delivery in device.interrupts:
            if delivery.movable:
                found[device.kind] = found.get(device.kind, frozenset()) | cpulist.parse(delivery.cpus)
    return found


def _numa(
    node: Optional[int], cpus: str, owners: Tuple[CpuOwner, ...], interrupts: Mapping[str, FrozenSet[int]]
) -> DividedNuma:
    own = cpulist.parse(cpus)
    here = [CpuOwner(one.kind, one.name, cpulist.render(cpulist.parse(one.cpus) & own)) for one in owners]
    return DividedNuma(
        node=node,
        cpus=cpus,
        owners=tuple(one for one in here if one.cpus),
        interrupts=tuple(
            InterruptCpus(kind, cpulist.render(of_kind & own))
            for kind, of_kind in sorted(interrupts.items())
            if of_kind & own
        ),
    )
