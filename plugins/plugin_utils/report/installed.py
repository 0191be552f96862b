# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was declared and never converged on a node, told apart from what was converged and has drifted since.

A node that is new to the inventory is no alarm, and a node that somebody changed by hand is none of its kind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, List, Sequence

from ...module_utils._core.setting import DRIFTED
from ...module_utils._node.table import AS_DECLARED
from ..summary import SEVERITY, Row, Summary

NOT_INSTALLED = "not_installed"
# From best to worst, as SEVERITY.
STATUSES = tuple(status for one in SEVERITY for status in ((NOT_INSTALLED, one) if one == DRIFTED else (one,)))


def never_converged(rows: Sequence[Row]) -> FrozenSet[str]:
    """The concerns of these rows of one node whose declaration was never written on it."""
    return frozenset(
        row["concern"]
        for row in rows
        if row["setting"] == "declaration" and row["wanted"] == AS_DECLARED and row["effective"] is row["boot"] is None
    )


def split_never_converged(found: Summary) -> Summary:
    """The same summary, in which what differs for want of a first converge has a status of its own."""
    rows: Dict[str, List[Row]] = {}
    counts = {**{status: 0 for status in STATUSES if status in (*found.counts, NOT_INSTALLED)}, **found.counts}
    nodes: Dict[str, List[str]] = {status: list(found.nodes.get(status, ())) for status in STATUSES}
    for node, those in found.rows.items():
        absent = never_converged(those)
        rows[node] = [
            {**row, "status": NOT_INSTALLED} if row["status"] == DRIFTED and row["concern"] in absent else row
            for row in those
        ]
        moved = sum(row["status"] == NOT_INSTALLED for row in rows[node])
        counts[DRIFTED] -= moved
        counts[NOT_INSTALLED] += moved
        others = [
            name
            for name, entry in found.looks[node]["concerns"].items()
            if entry["status"] == DRIFTED and name not in absent
        ]
        drifted = others or any(row["status"] == DRIFTED for row in rows[node])
        if node in nodes[DRIFTED] and not drifted:
            nodes[DRIFTED].remove(node)
            nodes[NOT_INSTALLED].append(node)
    return replace(found, rows=rows, counts=counts, nodes=nodes)
