# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look found, as a table for people: of the whole fleet on the controller, of one node on the node."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._core.change import DIFFERS, RIGHT

HEADER = ("NODE", "OBJECT", "SETTING", "WANTED", "IN EFFECT", "AT BOOT", "STATUS")
WIDEST = 60


def rows_of(node: str, look: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The lines of one node: every setting that is not right, and what could not be looked at."""
    rows = []
    for concern, result in look["concerns"].items():
        if "failure" in result:
            message = str(result["msg"])
            rows.append(_row(node, concern, "-", status=result["status"], note=message))
        rows.extend({"node": node, **row} for row in result["settings"] if row["status"] != RIGHT)
        rows.extend(
            _row(node, concern, entry["setting"], status="conflict", note=_conflict(entry))
            for entry in result["conflicts"]
            if entry["wins"] == "them"
        )
    rows.extend(
        _row(node, concern, "declaration", status=DIFFERS, note="on the node, and not in the inventory")
        for concern in look["undeclared"]
    )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> List[str]:
    """The rows as lines of text in columns; a note takes the place of the values."""
    cells: List[Tuple[str, ...]] = [HEADER]
    notes: Dict[int, str] = {}
    for row in rows:
        cells.append(
            tuple(_text(row[key]) for key in ("node", "object", "setting", "wanted", "effective", "boot", "status"))
        )
        if row.get("note"):
            notes[len(cells) - 1] = row["note"]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    lines = []
    for number, line in enumerate(cells):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        if number in notes:
            lines.append(f"    {notes[number]}")
    return lines


def _text(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def _row(node: str, object_: str, setting: str, *, status: str, note: str) -> Dict[str, Any]:
    return {
        "node": node,
        "object": object_,
        "setting": setting,
        "wanted": None,
        "effective": None,
        "boot": None,
        "status": status,
        "note": note,
    }


def _conflict(entry: Mapping[str, Any]) -> str:
    place = f"{entry['path']}:{entry['line']}" if entry["line"] else entry["path"]
    return f"{entry['owner']} sets it to {entry['value']} in {place}"
