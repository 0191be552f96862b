# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look found, as a table for people: of the whole fleet on the controller, of one node on the node.

What is equal on many nodes is one line, and so is what is equal on many objects of a kind. Every setting is counted in
exactly one line.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from .._core.change import THEM, US
from .._core.setting import ACCEPTED, DRIFTED, IN_SYNC, INVALID, PENDING, UNKNOWN
from .._core.wording import counted
from .._linux import cpulist

CONFLICT = "conflict"
# What matched a declaration, and what nobody can set. It makes no node differ.
UNMANAGED = "unmanaged"
# What is counted of settings, in this order; ``invalid`` is counted by concern, and so is ``unknown`` where a concern
# could not be looked at.
COUNTED = (IN_SYNC, DRIFTED, PENDING, UNKNOWN, INVALID, ACCEPTED, UNMANAGED)
HEADER = ("NODE", "OBJECT", "SETTING", "WANTED", "IN EFFECT", "AT BOOT", "STATUS")
DEVICE_HEADER = ("NODE", "DEVICE", "NUMA", "INTERRUPTS", "WANTED", "IN EFFECT", "ELSEWHERE", "UNMANAGED")
VALUES = ("wanted", "effective", "boot")
WIDEST = 60
# What an object has many of, a word of its settings; of more than a few the CPUs are not shown one by one.
MANY = ("interrupt", "rps", "xps")
FEW = 3
# Names of objects stand in a line up to so many characters; of more there is the count.
NAMED = 24
NOTHING = "-"
VARIOUS = "various"
LEGEND = f"{NOTHING}  is not set, or absent"
# What objects are called that are more than one, by how their names begin; others are objects.
KINDS = (("gpu", "GPU"), ("nvme", "drive"), ("sd", "drive"), ("md", "drive"), ("dm-", "drive"), ("node", "NUMA node"))
# What is wanted of a file that only this collection writes.
AS_DECLARED = "as declared"
DEVICE, FILE, OBJECT = "device", "gpufleet file", "object"
# From what must be seen first.
ORDER = (INVALID, UNKNOWN, CONFLICT, DRIFTED, PENDING, IN_SYNC, ACCEPTED, UNMANAGED)

Row = Mapping[str, Any]
Where = Callable[[Sequence[str]], str]


class TableLine(NamedTuple):
    """A line of the table: the rows that it stands for by node, the text of its cells behind the node, and its note."""

    rows: Mapping[str, Sequence[Row]]
    cells: Tuple[str, ...]
    note: str
    bookkeeping: bool

    @property
    def settings(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def stays(self) -> bool:
        """Whether it is a refusal or a conflict, which a run does not mend: those are first, and are never cut."""
        return self.cells[-1] in (INVALID, CONFLICT) or bool(self.note and not self.cells[1])


def rows_of(node: str, look: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The rows of one node: every setting that is not right, and what could not be looked at."""
    rows = []
    for concern, result in look["concerns"].items():
        if "failure" in result:
            rows.append(note_row(node, concern, status=result["status"], note=str(result["msg"])))
        rows.extend({"node": node, "concern": concern, **row} for row in result["settings"] if row["status"] != IN_SYNC)
        rows.extend(
            {
                **note_row(node, concern, entry["setting"], status=CONFLICT, note=_conflict(entry)),
                "object": entry["object"],
            }
            for entry in result["conflicts"]
            if entry["wins"] == THEM and not entry["accepted"]
        )
    rows.extend(
        note_row(node, concern, "declaration", status=DRIFTED, note="on the node, but not in the inventory")
        for concern in look["orphaned"]
    )
    return rows


def unmanaged_of(node: str, look: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The rows of what nobody can set on one node, as far as the look lists it; a full look lists all."""
    return [
        {**note_row(node, concern, entry["setting"], status=UNMANAGED, note=entry["reason"]), "object": entry["object"]}
        for concern, result in look["concerns"].items()
        for entry in result["unmanaged"]
    ]


def losers_of(look: Mapping[str, Any]) -> List[str]:
    """Who else sets on one node what is declared, and loses, a sentence each: that is as declared, and has no row."""
    return [
        # What is at work below a control group is in its way too, and sets nothing.
        f"{entry['owner']} {entry['value']}, and is confined by {entry['setting']}"
        if str(entry["path"]).startswith("/sys/fs/cgroup")
        else f"{entry['owner']} sets {entry['object']} {entry['setting']} to {_value(entry)} in {_place(entry)}, "
        "and is overridden"
        for result in look["concerns"].values()
        for entry in result["conflicts"]
        if entry["wins"] == US
    ]


def counts_of(look: Mapping[str, Any], rows: Iterable[Row]) -> Dict[str, int]:
    """The settings of one node by status; ``rows`` are its ``rows_of``."""
    counts = dict.fromkeys(COUNTED, 0)
    counts[IN_SYNC] = sum(result["settings_in_sync"] for result in look["concerns"].values())
    counts[UNMANAGED] = sum(result["unmanaged_total"] for result in look["concerns"].values())
    for row in rows:
        if row["status"] in counts:
            counts[row["status"]] += 1
    return counts


def spelled(status: str) -> str:
    """A status as part of a sentence."""
    return status.replace("_", " ")


def describe_counts(counts: Mapping[str, int]) -> str:
    """The counts as part of a sentence, such as ``431 in sync, 3 drifted``."""
    return ", ".join(f"{count} {spelled(status)}" for status, count in counts.items() if count or status == IN_SYNC)


def table(
    rows: Sequence[Row], *, where: Where = ",".join, most: int = 0, full: bool = False, rest: str = ""
) -> List[str]:
    """The rows as lines of text in columns; a note takes the place of the values.

    ``where`` makes a text of the names of nodes. With ``most`` there are at most so many lines, and one that counts
    what is not shown, with ``rest`` behind it. ``full`` has a line for each row, and for each reason why nobody can set
    something.
    """
    if full:
        folded = [_line([row]) for row in rows if row["status"] != UNMANAGED]
        folded += fold(row for row in rows if row["status"] == UNMANAGED)
    else:
        folded = fold(rows)
    shown = _within(folded, most - 1) if most and sum(map(_height, folded)) > most else folded
    cells = [HEADER, *((_nodes(line.rows, where), *line.cells) for line in shown)]
    lines = []
    for line, text in zip((None, *shown), columns(cells)):
        lines.append(text)
        if line and line.note:
            lines.extend(f"    {part}" for part in line.note.splitlines())
    left = folded[len(shown) :]
    if left:
        nodes = {node for line in left for node in line.rows}
        settings = counted(sum(line.settings for line in left), "setting")
        lines.append(f"and {counted(len(left), 'more line')}, {settings} on {counted(len(nodes), 'node')}{rest}")
    if any(NOTHING in line.cells for line in shown):
        lines.append(LEGEND)
    return lines


def fold(rows: Iterable[Row]) -> List[TableLine]:
    """The lines of the rows, what weighs most first and what is about our own files last."""
    groups: Dict[Tuple[Any, ...], Dict[str, List[Row]]] = {}
    for row in rows:
        groups.setdefault(_key(row), {}).setdefault(row["node"], []).append(row)
    lines = []
    for by_node in groups.values():
        together = [row for group in by_node.values() for row in group]
        few = len(by_node) == 1 and len(together) <= FEW and _many(together[0])
        lines += [_line([row]) for row in together] if few else [_line(together)]
    return sorted(
        lines,
        key=lambda line: (
            line.bookkeeping,
            not line.stays,
            ORDER.index(_status(line)),
            -len(line.rows),
            -line.settings,
        ),
    )


def devices_of(node: str, look: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The devices of the concerns of one node that tell of them."""
    results = look["concerns"].values()
    return [{"node": node, **device} for result in results for device in result.get("devices", ())]


def device_table(devices: Sequence[Row], *, where: Where = ",".join) -> List[str]:
    """A line for each device that nodes have alike; why nobody can set something of it is numbered below."""
    reasons = list(dict.fromkeys(reason for device in devices for reason in device["unmanaged"]))
    nodes: Dict[Tuple[str, ...], List[str]] = {}
    for device in devices:
        unmanaged = (f"{count} [{reasons.index(reason) + 1}]" for reason, count in device["unmanaged"].items())
        keys = ("device", "numa_node", "interrupts", *VALUES[:2], "elsewhere")
        key = (*(_text(device[name]) for name in keys), ", ".join(unmanaged) or "0")
        nodes.setdefault(key, []).append(device["node"])
    cells = [DEVICE_HEADER, *((_nodes(names, where), *key) for key, names in nodes.items())]
    return [*columns(cells), *(f"[{number}] {reason}" for number, reason in enumerate(reasons, start=1))]


def kind_of(row: Row) -> str:
    """What the object of a row is, in one word or two."""
    if _many(row):
        return DEVICE
    if is_ours(row):
        return FILE
    name = str(row["object"])
    return next((kind for start, kind in KINDS if re.match(rf"{start}[a-z]*[0-9]", name)), OBJECT)


def _status(line: TableLine) -> str:
    return line.cells[-1]


def _key(row: Row) -> Tuple[Any, ...]:
    """What rows of one line have alike."""
    if row["status"] == UNMANAGED:
        # What one reason keeps several concerns from is said once.
        return row["status"], _word(row) if _word(row) in MANY else row["setting"], row["note"]
    note = row.get("note")
    if note and all(row[name] is None for name in VALUES):
        return row.get("concern"), row["object"], row["setting"], row["status"], note
    kind = kind_of(row)
    if kind == DEVICE:
        return row.get("concern"), kind, _word(row), row["status"]
    # A kind that is not known says nothing of what its objects have in common.
    alike = (row["object"],) if kind == OBJECT else ()
    named = () if is_ours(row) else (row.get("concern"), row["setting"])
    return (kind, *alike, *named, *(row[name] for name in VALUES), row["status"], note)


def _line(rows: Sequence[Row]) -> TableLine:
    by_node: Dict[str, List[Row]] = {}
    for row in rows:
        by_node.setdefault(row["node"], []).append(row)
    first = rows[0]
    note = first.get("note") or ""
    if note:
        kind = DEVICE if _word(first) in MANY else kind_of(first)
        setting = "" if first["setting"] == NOTHING else _settings(by_node)
        values = _values(rows) if any(first[name] is not None for name in VALUES) else [""] * len(VALUES)
        return TableLine(by_node, (_objects(by_node, kind), setting, *values, first["status"]), note, False)
    cells = (_objects(by_node, kind_of(first)), _settings(by_node), *_values(rows), first["status"])
    return TableLine(by_node, cells, "", is_ours(first))


def _values(rows: Sequence[Row]) -> List[str]:
    alone = len({row["object"] for row in rows}) == 1
    return [_text(_together([row[name] for row in rows], alone=alone)) for name in VALUES]


def _objects(by_node: Mapping[str, Sequence[Row]], kind: str) -> str:
    of_node = [tuple(dict.fromkeys(str(row["object"]) for row in rows)) for rows in by_node.values()]
    names = list(dict.fromkeys(name for objects in of_node for name in objects))
    if len(names) == 1:
        return names[0]
    text = ranged(names)
    if len(set(of_node)) == 1:
        return text if len(text) <= NAMED and kind not in (DEVICE, FILE) else counted(len(names), kind)
    counts = {len(objects) for objects in of_node}
    if len(counts) == 1:
        return counted(counts.pop(), kind)
    return f"{counted(sum(map(len, of_node)), kind)} in all"


def _settings(by_node: Mapping[str, Sequence[Row]]) -> str:
    names = {row["setting"] for rows in by_node.values() for row in rows}
    if len(names) == 1:
        return str(names.pop())
    first = next(iter(by_node.values()))[0]
    word = _word(first) if _word(first) in MANY else "content"
    counts = {len(rows) for rows in by_node.values()}
    if word == "content":
        return word
    return f"{word} ({counts.pop()})" if len(counts) == 1 else f"{word} ({sum(map(len, by_node.values()))} in all)"


def _together(values: Sequence[Any], *, alone: bool) -> Any:
    """One value for all of them; of one object alone the CPUs of all its interrupts or queues."""
    if len(set(values)) == 1:
        return values[0]
    try:
        return cpulist.render(cpu for value in values for cpu in cpulist.parse(str(value))) if alone else VARIOUS
    except ValueError:
        return VARIOUS


def ranged(names: Sequence[str]) -> str:
    """Names of one node as ranges of their first number, such as ``gpu[0-7]``."""
    found: Dict[Tuple[str, str], List[int]] = {}
    for name in names:
        parts = re.fullmatch(r"(\D*)(0|[1-9]\d*)(.*)", name)
        if not parts:
            return ",".join(names)
        found.setdefault((parts[1], parts[3]), []).append(int(parts[2]))
    return ",".join(
        f"{before}{numbers[0]}{after}" if len(numbers) == 1 else f"{before}[{cpulist.render(numbers)}]{after}"
        for (before, after), numbers in found.items()
    )


def _many(row: Row) -> bool:
    return _word(row) in MANY and not row.get("note")


def _word(row: Row) -> str:
    return str(row["setting"]).partition(" ")[0]


def is_ours(row: Row) -> bool:
    """Whether it is about a file that only this collection writes, and not about a setting."""
    return str(row["object"]).startswith("/") and AS_DECLARED in [row[name] for name in VALUES]


def _within(lines: Sequence[TableLine], most: int) -> List[TableLine]:
    """The first lines, at least one and those that stay, that take no more than so many with their notes."""
    shown: List[TableLine] = []
    height = 0
    for line in lines:
        height += _height(line)
        if shown and height > most and not line.stays:
            break
        shown.append(line)
    return shown


def _height(line: TableLine) -> int:
    return 1 + len(line.note.splitlines())


def _nodes(nodes: Iterable[str], where: Where) -> str:
    names = list(nodes)
    return names[0] if len(names) == 1 else f"{where(names)} ({len(names)})"


def columns(cells: Sequence[Tuple[str, ...]]) -> List[str]:
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def _text(value: Any) -> str:
    text = NOTHING if value is None else str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def note_row(node: str, concern: str, setting: str = NOTHING, *, status: str, note: str) -> Dict[str, Any]:
    """A row that says something in place of values, of a concern as a whole."""
    of = {"node": node, "concern": concern, "object": concern, "setting": setting}
    return {**of, **dict.fromkeys(VALUES), "status": status, "note": note}


def _conflict(entry: Mapping[str, Any]) -> str:
    return f"{entry['owner']} sets it to {_value(entry)} in {_place(entry)}, and wins"


def _value(entry: Mapping[str, Any]) -> str:
    return str(entry["value"] or "a value of its own choice")


def _place(entry: Mapping[str, Any]) -> str:
    return f"{entry['path']}:{entry['line']}" if entry["line"] else str(entry["path"])
