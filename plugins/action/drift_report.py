# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils._core.change import DIFFERS, PENDING, RIGHT, UNKNOWN

UNREACHABLE = "unreachable"
# From best to worst: a node is called by the worst thing found on it.
SEVERITY = (RIGHT, PENDING, DIFFERS, UNKNOWN, UNREACHABLE)
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


class ActionModule(ActionBase):
    """Prints by the display, line by line: a table inside a JSON string cannot be read."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS = frozenset(("register", "fail_on_drift", "title"))

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        _validated, arguments = self.validate_argument_spec(
            {
                "register": {"type": "str", "required": True},
                "fail_on_drift": {"type": "bool", "default": False},
                "title": {"type": "str", "default": "Drift"},
            }
        )
        rows: List[Dict[str, Any]] = []
        counts = dict.fromkeys((RIGHT, DIFFERS, PENDING, UNKNOWN), 0)
        nodes: Dict[str, List[str]] = {status: [] for status in SEVERITY}
        reboots: Dict[str, List[str]] = {}
        for host in variables["ansible_play_hosts_all"]:
            look = variables["hostvars"][host].get(arguments["register"])
            if not look or "concerns" not in look:
                nodes[UNREACHABLE].append(host)
                continue
            found = rows_of(host, look)
            rows.extend(found)
            counts[RIGHT] += sum(entry["settings_right"] for entry in look["concerns"].values())
            for row in found:
                if row["status"] in counts:
                    counts[row["status"]] += 1
            worst = max(
                (row["status"] for row in found if row["status"] in SEVERITY), key=SEVERITY.index, default=RIGHT
            )
            nodes[worst].append(host)
            reasons = [reason for entry in look["concerns"].values() for reason in entry["reboot_reasons"]]
            if reasons:
                reboots[host] = reasons
        self._print(arguments["title"], rows, counts, nodes, reboots)
        result.update(changed=False, rows=rows, counts=counts, nodes=nodes, reboot_reasons=reboots)
        bad = [*nodes[DIFFERS], *nodes[UNKNOWN], *nodes[UNREACHABLE]]
        if arguments["fail_on_drift"] and bad:
            result.update(
                failed=True, msg=f"{len(bad)} of {len(variables['ansible_play_hosts_all'])} nodes are not right"
            )
        return result

    @staticmethod
    def _print(
        title: str,
        rows: Sequence[Mapping[str, Any]],
        counts: Mapping[str, int],
        nodes: Mapping[str, Sequence[str]],
        reboots: Mapping[str, Sequence[str]],
    ) -> None:
        display = Display()
        display.display("")
        display.display(title)
        for line in table(rows) if rows else ():
            display.display(f"  {line}")
        for host, reasons in reboots.items():
            for reason in reasons:
                display.display(f"  {host} needs a reboot: {reason}")
        for host in nodes[UNREACHABLE]:
            display.display(f"  {host} gave no answer")
        total = sum(len(names) for names in nodes.values())
        settings = ", ".join(f"{count} {status}" for status, count in counts.items() if count or status == RIGHT)
        display.display(f"  {len(nodes[RIGHT])} of {total} nodes are right. Settings: {settings}.")
