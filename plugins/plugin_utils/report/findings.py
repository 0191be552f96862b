# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong in how many places: one finding for all nodes that have the same thing wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ...module_utils._core.setting import ACCEPTED, UNKNOWN, Scalar
from ...module_utils._node.table import CONFLICT, MANY, NOTHING, is_ours
from ...module_utils._text.host_ranges import fold, natural
from ..summary import Row
from .installed import NOT_INSTALLED, STATUSES

# From what must be seen first.
ORDER = (*reversed(STATUSES), CONFLICT, ACCEPTED)

# The kinds of findings, those that endanger jobs first.
DRIFT, BOOKKEEPING = "drift", "bookkeeping"
KINDS = (DRIFT, BOOKKEEPING, NOT_INSTALLED)
# The concern that is our own program on the node.
OWN_PROGRAM = "node_tools"
OWN_FILES = "own files"
OUTDATED = "The collection's own files on the node are not what it would write today."
NEVER = "Declared, and never converged on these nodes."

Key = Tuple[str, str, str, Scalar, Scalar, Scalar, str, str]


@dataclass(frozen=True)
class Finding:
    """The same setting with the same values, or the same note, on these objects of these nodes.

    The interrupts or queues of devices are one finding whatever their values, which then are None; so are the files of
    ours that a concern has. ``kind`` says whether jobs run on it (``drift``), the collection has it for itself
    (``bookkeeping``), or the concern was never converged on these nodes (``not_installed``). ``ranges`` are the nodes
    as ``h[001-020]``. Where one cause keeps several concerns from being looked at, such as a driver that hangs, they
    are one finding, and ``concerns`` has them all.
    """

    concern: str
    setting: str
    status: str
    wanted: Scalar
    effective: Scalar
    boot: Scalar
    note: str
    kind: str
    objects: Tuple[str, ...]
    nodes: Tuple[str, ...]
    ranges: Tuple[str, ...]
    concerns: Tuple[str, ...]


def findings_of(rows: Mapping[str, Sequence[Row]], concerns: Sequence[str]) -> Tuple[Finding, ...]:
    """``rows`` by node; ``concerns`` in their order. What endangers jobs comes first and bookkeeping last, among those
    the worst, what is wrong now before what is wrong at the next boot, and what many nodes have before what few have.
    """
    places = {name: place for place, name in enumerate(concerns)}
    found: Dict[Key, Tuple[Dict[str, None], Dict[str, None], Dict[str, None]]] = {}
    for node, those in rows.items():
        for row in those:
            of_concerns, objects, nodes = found.setdefault(_key(row), ({}, {}, {}))
            of_concerns[row["concern"]] = objects[row["object"]] = nodes[node] = None
    findings = []
    for key, (of_concerns, objects, nodes) in found.items():
        names = tuple(sorted(of_concerns, key=lambda name: (places.get(name, len(places)), name)))
        where = tuple(sorted(nodes, key=natural))
        findings.append(
            Finding(names[0], *key[1:], tuple(sorted(objects, key=natural)), where, tuple(fold(nodes)), names)
        )

    def weight(one: Finding) -> Tuple[Any, ...]:
        later = one.effective == one.wanted and one.boot != one.wanted
        place = places.get(one.concern, len(places))
        ours = one.setting == OWN_FILES
        return (KINDS.index(one.kind), ORDER.index(one.status), ours, later, -len(one.nodes), place, one.setting)

    return tuple(sorted(findings, key=weight))


def kind_of(row: Row) -> str:
    """Whether a row is about what jobs run on, or about what the collection itself has on the node."""
    if row["status"] == NOT_INSTALLED:
        return NOT_INSTALLED
    return BOOKKEEPING if _is_own(row) else DRIFT


def _is_own(row: Row) -> bool:
    return is_ours(row) or row["concern"] == OWN_PROGRAM


def _key(row: Row) -> Key:
    """The parts that rows of one finding share. The first is the concern, empty where others may have its cause."""
    kind, note = kind_of(row), row.get("note") or ""
    if _is_own(row) and not note:
        absent = kind == NOT_INSTALLED
        concern, said = ("", NEVER) if absent else (row["concern"], OUTDATED)
        return concern, OWN_FILES, row["status"], None, None, None, said, kind
    word = row["setting"].partition(" ")[0]
    many = word in MANY and not note
    values: List[Scalar] = [None if many else row[name] for name in ("wanted", "effective", "boot")]
    setting = f"{word} (many)" if many else row["setting"]
    concern = "" if row["status"] == UNKNOWN and note and setting == NOTHING else row["concern"]
    return concern, setting, row["status"], values[0], values[1], values[2], note, kind
