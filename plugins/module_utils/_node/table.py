# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look found, as a table for people: of the whole fleet on the controller, of one node on the node."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .._core.change import DIFFERS, RIGHT
from .._topology import cpulist

HEADER = ("NODE", "OBJECT", "SETTING", "WANTED", "IN EFFECT", "AT BOOT", "STATUS")
DEVICE_HEADER = ("NODE", "DEVICE", "NUMA", "INTERRUPTS", "WANTED", "IN EFFECT", "ELSEWHERE", "UNMANAGED")
WIDEST = 60
# What an object has many of, a word of its settings; of more than a few of a kind the CPUs are shown together.
MANY = ("interrupt", "rps", "xps")
FEW = 3


def rows_of(node: str, look: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The lines of one node: every setting that is not right, and what could not be looked at."""
    rows = []
    for concern, result in look["concerns"].items():
        if "failure" in result:
            message = str(result["msg"])
            rows.append(_row(node, concern, "-", status=result["status"], note=message))
        rows.extend({"node": node, "concern": concern, **row} for row in result["settings"] if row["status"] != RIGHT)
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
    for row in _folded(rows):
        cells.append(
            tuple(_text(row[key]) for key in ("node", "object", "setting", "wanted", "effective", "boot", "status"))
        )
        if row.get("note"):
            notes[len(cells) - 1] = row["note"]
    lines = []
    for number, line in enumerate(_columns(cells)):
        lines.append(line)
        if number in notes:
            lines.append(f"    {notes[number]}")
    return lines


def devices_of(node: str, look: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The devices of the concerns of one node that tell of them."""
    results = look["concerns"].values()
    return [{"node": node, **device} for result in results for device in result.get("devices", ())]


def device_table(devices: Sequence[Mapping[str, Any]]) -> List[str]:
    """A line for each device; the reasons why nobody can set something of it are numbered below."""
    reasons = list(dict.fromkeys(reason for device in devices for reason in device["unmanaged"]))
    keys = ("node", "device", "numa_node", "interrupts", "wanted", "effective", "elsewhere")
    cells: List[Tuple[str, ...]] = [DEVICE_HEADER]
    for device in devices:
        unmanaged = (f"{count} [{reasons.index(reason) + 1}]" for reason, count in device["unmanaged"].items())
        cells.append((*(_text(device[key]) for key in keys), ", ".join(unmanaged) or "0"))
    return [*_columns(cells), *(f"[{number}] {reason}" for number, reason in enumerate(reasons, start=1))]


def _folded(rows: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """The rows with one for all settings of a kind of an object, where these are many: its interrupts or its queues."""
    groups: Dict[Tuple[str, ...], List[Mapping[str, Any]]] = {}
    for row in rows:
        kind = row["setting"].partition(" ")[0]
        name = kind if kind in MANY and not row.get("note") else row["setting"]
        groups.setdefault((row["node"], row["object"], row["status"], name, row.get("note") or ""), []).append(row)
    folded: List[Mapping[str, Any]] = []
    for key, group in groups.items():
        if len(group) <= FEW or key[3] not in MANY:
            folded += group
        else:
            together = {name: _together([row[name] for row in group]) for name in ("wanted", "effective", "boot")}
            folded.append({**group[0], "setting": f"{key[3]} ({len(group)})", **together})
    return folded


def _together(values: Sequence[Any]) -> Any:
    """The CPUs of all of them."""
    if len(set(values)) == 1:
        return values[0]
    try:
        return cpulist.render(cpu for value in values for cpu in cpulist.parse(str(value)))
    except ValueError:
        return "various"


def _columns(cells: Sequence[Tuple[str, ...]]) -> List[str]:
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def _text(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def _row(node: str, concern: str, setting: str, *, status: str, note: str) -> Dict[str, Any]:
    return {
        "node": node,
        "concern": concern,
        "object": concern,
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
