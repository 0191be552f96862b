# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong in how many places: one finding for all nodes that have the same thing wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple

from ...module_utils._core.errors import Scalar
from ...module_utils._node.table import MANY
from ..summary import SEVERITY, Row

CONFLICT = "conflict"
# From what must be seen first.
ORDER = (*reversed(SEVERITY), CONFLICT)


@dataclass(frozen=True)
class Finding:
    """The same setting with the same values, or the same note, on these objects of these nodes.

    The interrupts or queues of devices are one finding whatever their values, which then are None.
    """

    concern: str
    setting: str
    status: str
    wanted: Scalar
    effective: Scalar
    boot: Scalar
    note: str
    objects: Tuple[str, ...]
    nodes: Tuple[str, ...]


def findings_of(rows: Mapping[str, Sequence[Row]]) -> Tuple[Finding, ...]:
    """``rows`` by node. The worst come first, and among them those of the most nodes."""
    found: Dict[Tuple[str, str, str, Scalar, Scalar, Scalar, str], Tuple[Dict[str, None], Dict[str, None]]] = {}
    for node, those in rows.items():
        for row in those:
            objects, nodes = found.setdefault(_key(row), ({}, {}))
            objects[row["object"]] = nodes[node] = None
    findings = [Finding(*key, tuple(objects), tuple(nodes)) for key, (objects, nodes) in found.items()]
    return tuple(sorted(findings, key=lambda one: (ORDER.index(one.status), -len(one.nodes), one.concern, one.setting)))


def _key(row: Row) -> Tuple[str, str, str, Scalar, Scalar, Scalar, str]:
    kind = row["setting"].partition(" ")[0]
    many = kind in MANY and not row.get("note")
    values: List[Scalar] = [None if many else row[name] for name in ("wanted", "effective", "boot")]
    setting = f"{kind} (many)" if many else row["setting"]
    return row["concern"], setting, row["status"], values[0], values[1], values[2], row.get("note") or ""
