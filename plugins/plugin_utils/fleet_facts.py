# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of a fleet as one document: an entry for each node, also for those that have none."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence

from ..module_utils._core.version import VERSION
from .report.facts import why_missing

NAME = "gpufleet-facts.json"
# It grows with a field that is taken away or means something else, and not with one that is added.
SCHEMA = 1

Answer = Mapping[str, Any]


def missing(infos: Mapping[str, Optional[Answer]]) -> Dict[str, str]:
    """Why a node has no facts, of those that have none. ``infos`` are registered results of ``gpu_node_info``."""
    reasons = {name: why_missing(info) for name, info in infos.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def document(
    infos: Mapping[str, Optional[Answer]], groups: Mapping[str, Sequence[str]], *, generated: str
) -> Dict[str, Any]:
    """``generated`` is a moment in UTC as ISO 8601 has it; ``groups`` are those of each node."""
    without = missing(infos)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "generated": generated,
        "nodes_total": len(infos),
        "missing": list(without),
        "nodes": [
            {
                "name": name,
                "groups": groups[name],
                "facts": None if name in without else (info or {})["node"],
                "facts_missing": without.get(name),
            }
            for name, info in infos.items()
        ],
    }
