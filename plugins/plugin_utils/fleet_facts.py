# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of a fleet as one document: an entry for each node, also for those that have none."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence

from ..module_utils._core.version import VERSION
from .report.facts import facts_in

NAME = "gpufleet-facts.json"
# It grows with a field that is taken away or means something else, and not with one that is added.
SCHEMA = 1

Answer = Mapping[str, Any]


def document(
    infos: Mapping[str, Optional[Answer]], groups: Mapping[str, Sequence[str]], *, generated: str
) -> Dict[str, Any]:
    """``infos`` are registered results of ``gpu_node_info``; ``groups`` are those of each node.

    ``generated`` is a moment in UTC as ISO 8601 has it.
    """
    nodes = [_node(name, info, groups[name]) for name, info in infos.items()]
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "generated": generated,
        "nodes_total": len(infos),
        "missing": list(missing(nodes)),
        "nodes": nodes,
    }


def _node(name: str, info: Optional[Answer], groups: Sequence[str]) -> Dict[str, Any]:
    found = facts_in(info, whole_answer=True)
    return {"name": name, "groups": groups, "facts": found.answer, "facts_missing": found.missing}


def missing(nodes: Sequence[Mapping[str, Any]]) -> Dict[str, str]:
    """Why a node of the document has no facts, of those that have none."""
    return {node["name"]: node["facts_missing"] for node in nodes if node["facts_missing"]}
