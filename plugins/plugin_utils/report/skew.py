# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions differ among nodes of one kind: a job that spans them meets the oldest of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Tuple

from .facts import NodeFacts

NO_GPU = "no GPU"


@dataclass(frozen=True)
class Version:
    """A version, and the nodes that have it."""

    version: str
    nodes: Tuple[str, ...]


@dataclass(frozen=True)
class Component:
    """Something with a version, the most frequent version first. ``of`` is what it belongs to, such as a model.

    A node that has several of it with different versions is with each. ``missing`` do not tell.
    """

    component: str
    of: str
    versions: Tuple[Version, ...]
    missing: Tuple[str, ...]

    @property
    def skewed(self) -> bool:
        return len(self.versions) > 1


@dataclass(frozen=True)
class VersionGroup:
    """Nodes with the same GPUs."""

    name: str
    nodes: Tuple[str, ...]
    components: Tuple[Component, ...]


def groups_of(facts: Mapping[str, NodeFacts]) -> Tuple[VersionGroup, ...]:
    """``facts`` by node. The largest group comes first."""
    members: Dict[str, List[str]] = {}
    for node, known in facts.items():
        members.setdefault(known.models or NO_GPU, []).append(node)
    ordered = sorted(members.items(), key=lambda member: (-len(member[1]), member[0]))
    return tuple(_group(name, nodes, facts) for name, nodes in ordered)


def _group(name: str, nodes: List[str], facts: Mapping[str, NodeFacts]) -> VersionGroup:
    found: Dict[Tuple[str, str], Dict[str, List[str]]] = {}
    for node in nodes:
        for entry in facts[node].versions:
            found.setdefault((entry.component, entry.of), {}).setdefault(entry.version, []).append(node)
    return VersionGroup(
        name=name,
        nodes=tuple(nodes),
        components=tuple(_component(component, of, found[component, of], nodes) for component, of in found),
    )


def _component(component: str, of: str, versions: Mapping[str, List[str]], nodes: List[str]) -> Component:
    known = {node for having in versions.values() for node in having}
    ordered = sorted(versions.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    # Not every node has such a card or drive; what a node itself has one of, it should tell.
    missing = () if of else tuple(node for node in nodes if node not in known)
    return Component(component, of, tuple(Version(name, tuple(having)) for name, having in ordered), missing)
