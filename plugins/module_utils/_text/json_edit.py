# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON texts with one value set or removed, and every other byte as it was.

The order of keys, the indentation, the ends of lines and a byte-order mark stay. A new key goes last into its object,
written as the one before it. The texts have passed ``json_text.parse``.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .._core.errors import DeclarationError, GpuFleetError
from .._core.regex import regex
from .._core.value import frozen
from .json_text import BOM, parse

INDENTATION = " " * 4
BLANKS = regex(r"[ \t\r\n]*")
DECODER = json.JSONDecoder()


@frozen
class Member:
    """A key of an object with its value, as positions in the text; the ends lie behind the last character."""

    key: str
    key_start: int
    key_end: int
    start: int
    end: int


@frozen
class Layout:
    """How an object writes its members.

    ``lead`` is the blank before a key, ``colon`` what stands between a key and its value. ``indent`` is one level of
    indentation, empty in an object that stands on one line.
    """

    lead: str
    colon: str
    indent: str


@frozen
class Edit:
    """``new`` in the place of the characters from ``start`` to ``end``: a member that is added, or another value.

    ``key`` is that of the member. ``added`` says that the object did not have it; then ``closing`` is what stands
    between it and the end of the object, where that had no member before.
    """

    start: int
    end: int
    new: str
    key: str
    added: bool
    closing: str = ""

    def applied(self, text: str) -> str:
        return f"{text[: self.start]}{self.new}{self.closing}{text[self.end :]}"


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """The text with the value at the keys of ``path``; objects on the way are made where they are not there.

    Raises ``DeclarationError`` where something else than an object is on the way.
    """
    mark, body = _split(text)
    body = body if body.strip() else "{}\n"
    result = mark + edit_of(body, path, value).applied(body)
    wanted = table = parse(text, "")
    for key in path[:-1]:
        if table.get(key) is None:
            table[key] = {}
        table = table[key]
    table[path[-1]] = value
    return _proven(result, wanted)


def remove(text: str, path: Sequence[str]) -> str:
    """The text without the key at the end of ``path``; the same text where it is not there."""
    mark, body = _split(text)
    if not body.strip():
        return text
    start = _skip(body, 0)
    for key in path[:-1]:
        step = find(members_of(body, start), key)
        if step is None or body[step.start] != "{":
            return text
        start = step.start
    members = members_of(body, start)
    found = find(members, path[-1])
    if found is None:
        return text
    index = members.index(found)
    if index:
        first, last = members[index - 1].end, found.end
    elif len(members) > 1:
        first, last = found.key_start, members[1].key_start
    else:
        first, last = start + 1, _end_of(body, start) - 1
    wanted = table = parse(text, "")
    for key in path[:-1]:
        table = table[key]
    del table[path[-1]]
    return _proven(mark + body[:first] + body[last:], wanted)


def _split(text: str) -> Tuple[str, str]:
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)


def find(members: Sequence[Member], key: str) -> Optional[Member]:
    """The member of this name, None where there is none."""
    return next((member for member in members if member.key == key), None)


def edit_of(text: str, path: Sequence[str], value: Any) -> Edit:
    """What to change in a text for the value at the keys of ``path``. Raises as ``set_value``."""
    start = _skip(text, 0)
    outer: List[int] = []
    for depth, key in enumerate(path):
        members = members_of(text, start)
        found = find(members, key)
        if found is None:
            return _insertion(text, start, outer, path[depth:], value)
        if depth == len(path) - 1 or text.startswith("null", found.start):
            layout = _layout(text, start, outer, members)
            rest = _nested(path[depth + 1 :], value)
            return Edit(found.start, found.end, _written(text, rest, layout), key, added=False)
        if text[found.start] != "{":
            raise DeclarationError(
                f"set {'.'.join(path)}",
                cause=f"{'.'.join(path[: depth + 1])} is not a mapping",
                found=text[found.start : found.end][:40],
            )
        outer.append(start)
        start = found.start
    raise ValueError("no key is named")


def _insertion(text: str, start: int, outer: Sequence[int], path: Sequence[str], value: Any) -> Edit:
    """A new member at the end of the object at ``start``. ``outer`` are the objects around it."""
    members = members_of(text, start)
    layout = _layout(text, start, outer, members)
    written = _written(text, _nested(path[1:], value), layout)
    member = f"{layout.lead}{json.dumps(path[0], ensure_ascii=False)}{layout.colon}{written}"
    if members:
        at = members[-1].end
        return Edit(at, at, f",{member}", path[0], added=True)
    closing = layout.lead[: len(layout.lead) - len(layout.indent)] if "\n" in layout.lead else ""
    return Edit(start + 1, _end_of(text, start) - 1, member, path[0], added=True, closing=closing)


def _layout(text: str, start: int, outer: Sequence[int], members: Sequence[Member]) -> Layout:
    """How the object at ``start`` writes a member: as its last one, or one level deeper than the object around it."""
    if members:
        last = members[-1]
        before = members[-2].end if len(members) > 1 else start
        lead = _last_line(text[_skip_back(text, last.key_start, before) : last.key_start])
        colon = text[last.key_end : last.start]
        if not lead and len(members) == 1 and colon.endswith(" "):
            lead = " "
        return Layout(lead, colon if "\n" not in colon else ": ", _indentation(text) if "\n" in lead else "")
    if outer:
        around = _layout(text, outer[-1], outer[:-1], members_of(text, outer[-1]))
        lead = around.lead + around.indent if "\n" in around.lead else ""
        return Layout(lead, around.colon, around.indent)
    indent = _indentation(text)
    return Layout(_line_end(text) + indent, ": ", indent)


def _skip_back(text: str, at: int, limit: int) -> int:
    while at > limit and text[at - 1] in " \t\r\n":
        at -= 1
    return at


def _last_line(blank: str) -> str:
    """A blank without the empty lines in it, of which the members that are added need none."""
    above, newline, line = blank.rpartition("\n")
    return f"{above[-1:] if above.endswith(chr(13)) else ''}{newline}{line}"


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indentation(text: str) -> str:
    """One level of indentation: the blank before the first key of the whole text."""
    found = re.match(r"\s*\{[^\S\n]*\n(?:[^\S\n]*\n)*([ \t]+)\"", text)
    return found[1] if found else INDENTATION


def _written(text: str, value: Any, layout: Layout) -> str:
    """A value as the object writes its own, every line at its place."""
    if "\n" not in layout.lead:
        separators = (", ", ": ") if layout.colon.endswith(" ") else (",", ":")
        return json.dumps(value, ensure_ascii=False, separators=separators)
    lines = json.dumps(value, ensure_ascii=False, indent=layout.indent).split("\n")
    here = layout.lead.rpartition("\n")[2]
    return (_line_end(text) + here).join(lines)


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _proven(text: str, wanted: Dict[str, Any]) -> str:
    # What no edit may ever do is worth a second parse: to lose or to change what it was not asked for.
    if parse(text, "") != wanted:
        raise GpuFleetError("edit the configuration", cause="the new text would not mean what was intended")
    return text


def _skip(text: str, at: int) -> int:
    match = BLANKS.match(text, at)
    return match.end() if match else at


def _end_of(text: str, start: int) -> int:
    return DECODER.raw_decode(text, start)[1]


def members_of(text: str, start: int) -> Tuple[Member, ...]:
    """The members of the object that begins at ``start``, in their order."""
    members: List[Member] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, key_end = DECODER.raw_decode(text, at)
        value_start = _skip(text, _skip(text, key_end) + 1)
        value_end = _end_of(text, value_start)
        members.append(Member(key, at, key_end, value_start, value_end))
        at = _skip(text, value_end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return tuple(members)
