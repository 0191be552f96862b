# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes to the text of a TOML document that leave every other byte as it is.

Every edit takes a text and gives one. What comes out is read again and has to mean what was asked for, so a text that
would mean anything else never leaves this file: ``TomlEditError``. A text that is not TOML raises ``TomlError``.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.regex import regex
from .nested import merged
from .toml_text import BYTE_ORDER_MARK, Moment, Path, Place, Span, TomlDocument, TomlError, parse

_BARE_KEY = regex("[A-Za-z0-9_-]+")
_TO_ESCAPE = regex(r'[\x00-\x1f\x7f"\\]')
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
# What may be between an item and the comma after it.
_TO_COMMA = regex(r"(?:[ \t\r\n]|#[^\n]*\n)*,")


class TomlEditError(ValueError):
    """An edit that the text does not take. The message is the cause, without the name of the file."""


class TomlBlockError(TomlEditError):
    """A block that is not as it was left."""


def set_value(text: str, path: Path, value: Any) -> str:
    """The text with a value at a path of keys; the same text where it is there already.

    A value is replaced in its place, and of an array only the items that differ where their order allows it. A new key
    comes after the last one of its table, indented as that is, at the top before the first header; a new table at the
    end. A dict is written as an inline table, and cannot replace a table with a header: set its keys.
    """
    document = parse(text)
    found = document.get(path)
    if found is not None and same(found, value):
        return text
    if isinstance(found, list) and isinstance(value, list) and path in document.places:
        after = _exchange_items(text, path, found, value)
    elif path in document.places:
        place = document.places[path]
        after = text[: place.start] + literal(value) + text[place.end :]
    elif found is None:
        after = _insert(document, path, value)
    else:
        raise TomlEditError(f"{_dotted(path)} is a table, which cannot get the value {literal(value)}")
    return _checked(after, _with(document.data, path, value), _dotted(path))


def remove(text: str, path: Path) -> str:
    """The text without a key, an item of an array, or a table with the tables in it; the same where there is none.

    A comment on a line that goes, or between the header and the last key of a table that goes, goes too, and so does
    one empty line before a header. All other comments stay.
    """
    document = parse(text)
    if not path or document.get(path) is None:
        return text
    expected = _with(document.data, path, None)
    _prune(expected, path[:-1])
    return _checked(_cut(document, path), expected, _dotted(path), shrinks=path[:-1])


def add_to_array(text: str, path: Path, item: Any) -> str:
    """The text with an item at the end of an array, which is made where it is not there."""
    document = parse(text)
    found = document.get(path)
    if found is None:
        return set_value(text, path, [item])
    if not isinstance(found, list) or path not in document.places:
        raise TomlEditError(f"{_dotted(path)} is not an array of values")
    if any(same(present, item) for present in found):
        return text
    after = _add_item(document, path, literal(item))
    return _checked(after, _with(document.data, path, [*found, item]), _dotted(path))


def remove_from_array(text: str, path: Path, item: Any) -> str:
    """The text without an item, however often it is there. The array stays, also when nothing is left in it."""
    document = parse(text)
    found = document.get(path)
    if not isinstance(found, list) or path not in document.places:
        return text
    after = text
    for index in reversed(range(len(found))):
        if same(found[index], item):
            after = _cut(parse(after), (*path, index))
    left = [present for present in found if not same(present, item)]
    return _checked(after, _with(document.data, path, left), _dotted(path))


def set_block(text: str, marker: str, body: str) -> str:
    """The text with the lines of ``body``, which begin with a header, between two comments that bear ``marker``.

    They are replaced where they are, and else come at the end, after an empty line.
    """
    document = parse(text)
    ending = _line_end(text)
    lines = [f"# BEGIN {marker}", *body.replace("\r\n", "\n").rstrip("\n").split("\n"), f"# END {marker}"]
    block = "".join(line + ending for line in lines)
    span = _block(document, marker)
    if span is None:
        after = _insert_lines(text, len(text), _separator(text) + block)
    else:
        unended = span.end == len(text) and not text.endswith("\n")
        after = text[: span.start] + (block[: -len(ending)] if unended else block) + text[span.end :]
    rest = parse(remove_block(text, marker)).data
    return _checked(after, merged(rest, parse(body).data, joins_lists=True), f"the block {marker}")


def block_body(text: str, marker: str) -> str:
    """The lines between the two comments of such a block, empty where there is none."""
    span = _block(parse(text), marker)
    return _inside(text, span) if span else ""


def remove_block(text: str, marker: str) -> str:
    """The text without such a block, its two comments, and one empty line before it; the same where there is none."""
    document = parse(text)
    span = _block(document, marker)
    if span is None:
        return text
    body = parse(_inside(text, span)).data
    after = _delete_lines(text, [_with_blank(text, span)])
    rest = _reread(after, f"the block {marker}")
    if not same(merged(rest, body, joins_lists=True), document.data):
        raise TomlBlockError(f"the lines after the block {marker} belong to a table in it")
    return after


def dump(data: Mapping[str, Any]) -> str:
    """A document of ours, a table with a header for every mapping that has values of its own."""
    text = "\n".join("".join(f"{line}\n" for line in lines) for lines in _tables((), data))
    return _checked(text, data, "the document")


def literal(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Moment)):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return '"' + _TO_ESCAPE.sub(_escaped, value) + '"'
    if isinstance(value, list):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(key)} = {literal(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    raise TomlEditError(f"TOML has no value like {value!r}")


def same(one: Any, other: Any) -> bool:
    """Whether two values mean the same: unlike Python, TOML tells true from 1 and 1 from 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(left, right) for left, right in zip(one, other))
    # By their text, for nan is not equal to itself.
    return type(one) is type(other) and repr(one) == repr(other)


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else literal(key)


def _dotted(path: Path) -> str:
    return ".".join(_key(str(part)) for part in path)


def _tables(path: Path, table: Mapping[str, Any]) -> Iterator[List[str]]:
    """The lines of a table, and of those in it."""
    own = [f"{_key(key)} = {literal(value)}" for key, value in table.items() if not isinstance(value, dict)]
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    if own or (path and not inner):
        yield [f"[{_dotted(path)}]", *own] if path else own
    for key, value in inner.items():
        yield from _tables((*path, key), value)


# --- What an edit has to mean


def _checked(after: str, expected: Mapping[str, Any], what: str, *, shrinks: Path = ()) -> str:
    """``shrinks``: empty tables on this path do not count; without a header they go with the last thing in them."""
    data = _reread(after, what)
    _prune(data, shrinks)
    if not same(data, expected):
        raise TomlEditError(f"{what} cannot be changed in place as it is written")
    return after


def _reread(after: str, what: str) -> Dict[str, Any]:
    try:
        return parse(after).data
    except TomlError as error:
        raise TomlEditError(f"{what} cannot be changed in place as it is written: {error}") from error


def _with(data: Mapping[str, Any], path: Path, value: Any) -> Dict[str, Any]:
    """The document with a value at a path, None for what goes from there."""
    changed = deepcopy(dict(data))
    table: Any = changed
    for part in path[:-1]:
        table = table.setdefault(part, {}) if isinstance(table, dict) else table[part]
    if value is None:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    return changed


def _prune(data: Any, path: Path) -> None:
    """Drop what is empty on the way to a path, from its end on."""
    if path and (path[0] in data if isinstance(data, dict) else isinstance(path[0], int) and path[0] < len(data)):
        _prune(data[path[0]], path[1:])
        if data[path[0]] in ({}, []):
            del data[path[0]]


# --- Lines


def _line_end(text: str) -> str:
    """The line end of the document: that of its first line."""
    return "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"


def _is_empty(text: str) -> bool:
    return text in ("", BYTE_ORDER_MARK)


def _line_start(text: str, position: int) -> int:
    start = text.rfind("\n", 0, position) + 1
    return start + len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK, start) else start


def _next_line(text: str, position: int) -> int:
    return text.find("\n", position) + 1 or len(text)


def _separator(text: str) -> str:
    return "" if _is_empty(text) else _line_end(text)


def _insert_lines(text: str, position: int, lines: str) -> str:
    """``lines`` have their line ends; ``position`` is the start of a line or the end of the text."""
    ending = _line_end(text)
    if position == len(text) and not _is_empty(text) and not text.endswith("\n"):
        # The last line had no end, and has none now.
        return text + ending + lines[: -len(ending)]
    return text[:position] + lines + text[position:]


def _delete_lines(text: str, spans: Sequence[Span]) -> str:
    """``spans`` are whole lines; the last line of the text keeps its end, or has none as before."""
    for span in reversed(_joined(spans)):
        start = span.start
        if span.end == len(text) and not text.endswith("\n"):
            before = text[:start]
            start = len(before) - (2 if before.endswith("\r\n") else 1 if before.endswith("\n") else 0)
        text = text[:start] + text[span.end :]
    return text


def _joined(spans: Sequence[Span]) -> List[Span]:
    made: List[Span] = []
    for span in sorted(spans):
        if made and span.start <= made[-1].end:
            made[-1] = Span(made[-1].start, max(made[-1].end, span.end))
        else:
            made.append(span)
    return made


def _with_blank(text: str, span: Span) -> Span:
    """The lines and one empty line before them, where there is one."""
    if span.start == _line_start(text, 0) or _line_before(text, span.start):
        return span
    return Span(_line_start(text, span.start - 1), span.end)


def _line_before(text: str, position: int) -> str:
    """The line before the one that starts at a position, without the blanks around it; empty where there is none."""
    return text[_line_start(text, position - 1) : position].strip() if _line_start(text, 0) < position else ""


def _blank_before(text: str, position: int) -> Optional[str]:
    """What is before a position on its line, where that is blanks alone."""
    before = text[_line_start(text, position) : position]
    return None if before.strip() else before


# --- Keys and tables


def _insert(document: TomlDocument, path: Path, value: Any) -> str:
    """A key that is not there, in the innermost table around it that is."""
    owner = _owner(document, path)
    rest = path[len(owner) :]
    if any(isinstance(part, int) for part in rest):
        raise TomlEditError(f"{_dotted(path)} has an index beyond the end of the array")
    line = f"{_dotted(rest)} = {literal(value)}"
    if owner in document.places:
        if not isinstance(document.get(owner), dict):
            raise TomlEditError(f"{_dotted(owner)} is not a table")
        return _add_item(document, owner, line)
    beside = document.get((*owner, rest[0]))
    if isinstance(beside, list):
        raise TomlEditError(f"{_dotted((*owner, rest[0]))} is an array of tables")
    if len(rest) == 1 or (beside is not None and _has_dotted_keys(document, owner, rest[0])):
        position, indent = _end_of_keys(document, owner)
        return _insert_lines(document.text, position, indent + line + _line_end(document.text))
    return _add_table(document, path, value)


def _owner(document: TomlDocument, path: Path) -> Path:
    """The longest way to a path that is written down: a table with a header, or a value."""
    for length in range(len(path) - 1, 0, -1):
        if path[:length] in document.places or path[:length] in document.tables:
            return path[:length]
    return ()


def _has_dotted_keys(document: TomlDocument, owner: Path, name: Any) -> bool:
    """Whether a table is made by dotted keys of its owner, and so cannot have a header."""
    inside = (*owner, name)
    return any(at[: len(inside)] == inside and _owner(document, at) == owner for at in document.places)


def _end_of_keys(document: TomlDocument, owner: Path) -> Tuple[int, str]:
    """The start of the line after the last key of a table, and the indentation of that key, or else of the header."""
    text, span = document.text, document.tables[owner]
    last = next((place.key for place in document.places.values() if place.end == span.end), span.start)
    if owner or span.end > span.start:
        return _next_line(text, span.end), _blank_before(text, last) or ""
    return _top(document), ""


def _top(document: TomlDocument) -> int:
    """Where the first key of all comes: before the first header and the comment right above that.

    The comment with which the text begins is about the text.
    """
    text = document.text
    first = document.tables[()].start
    header = min((_line_start(text, span.start) for at, span in document.tables.items() if at), default=len(text))
    position = header
    while _line_before(text, position).startswith("#"):
        position = _line_start(text, position - 1)
    if position == first or header == len(text):
        return header
    while position > first and not _line_before(text, position):
        position = _line_start(text, position - 1)
    return position


def _add_table(document: TomlDocument, path: Path, value: Any) -> str:
    """A header and the first key of its table: at the end of the text, or of the item of an array that has it."""
    text, ending = document.text, _line_end(document.text)
    names = [part for part in path[:-1] if isinstance(part, str)]
    lines = f"[{_dotted(tuple(names))}]{ending}{_dotted(path[-1:])} = {literal(value)}{ending}"
    position = len(text)
    for length in range(len(path), 0, -1):
        if isinstance(path[length - 1], int):
            item = path[:length]
            position = _next_line(text, max(span.end for at, span in document.tables.items() if at[:length] == item))
            break
    return _insert_lines(text, position, _separator(text) + lines)


def _cut(document: TomlDocument, path: Path) -> str:
    """The text without all that is written at a path or below."""
    item = next((at for at in document.places if at[: len(path)] == path and _is_held(document, at, path)), None)
    if item is not None:
        after = _cut_item(document, item)
        # A table that dotted keys make inside an inline table has more than one item.
        left = parse(after) if item != path else None
        return _cut(left, path) if left is not None and left.get(path) is not None else after
    text = document.text
    spans = [
        _with_blank(text, Span(_line_start(text, span.start), _next_line(text, span.end)))
        for at, span in document.tables.items()
        if at[: len(path)] == path
    ]
    spans += [
        Span(_line_start(text, place.key), _next_line(text, place.end))
        for at, place in document.places.items()
        if at[: len(path)] == path and not _holder(document, at)
    ]
    return _delete_lines(text, spans)


# --- Items of arrays and inline tables


def _holder(document: TomlDocument, path: Path) -> Optional[Path]:
    """The array or inline table that a value is in; None for one with a line of its own."""
    for length in range(len(path) - 1, 0, -1):
        if path[:length] in document.places:
            return path[:length]
    return None


def _is_held(document: TomlDocument, at: Path, path: Path) -> bool:
    """Whether a value is an item of what a path leads into, so that it has no line of its own to cut."""
    holder = _holder(document, at)
    return holder is not None and len(holder) < len(path)


def _items(document: TomlDocument, holder: Path) -> List[Place]:
    return sorted(place for at, place in document.places.items() if _holder(document, at) == holder)


def _exchange_items(text: str, path: Path, found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Item by item, which keeps the comments between them; as a whole where their order would not come out right."""
    after = text
    for item in found:
        if not any(same(item, other) for other in wanted):
            after = remove_from_array(after, path, item)
    for item in wanted:
        after = add_to_array(after, path, item)
    if same(parse(after).get(path), list(wanted)):
        return after
    place = parse(text).places[path]
    return text[: place.start] + literal(wanted) + text[place.end :]


def _comma_after(text: str, place: Place) -> Optional[int]:
    match = _TO_COMMA.match(text, place.end)
    return match.end() - 1 if match else None


def _ends_its_line(text: str, position: int) -> bool:
    rest = text[position : _next_line(text, position)]
    return rest.endswith("\n") and (not rest.strip() or rest.lstrip().startswith("#"))


def _has_own_line(text: str, place: Place, comma: Optional[int]) -> bool:
    after = place.end if comma is None else comma + 1
    starts = _blank_before(text, place.key) is not None
    return starts and "\n" not in text[place.end : after] and _ends_its_line(text, after)


def _add_item(document: TomlDocument, holder: Path, item: str) -> str:
    """One more item after the last, on a line of its own where that has one."""
    text = document.text
    items = _items(document, holder)
    if not items:
        opening = document.places[holder].start + 1
        return text[:opening] + item + text[opening:]
    last = items[-1]
    comma = _comma_after(text, last)
    indent = _blank_before(text, last.key)
    if _has_own_line(text, last, comma):
        line = f"{indent}{item}{'' if comma is None else ','}{_line_end(text)}"
        position = _next_line(text, last.end)
        between = text[last.end : position]
        return text[: last.end] + ("," if comma is None else "") + between + line + text[position:]
    separator = ", " if indent is None else f",{_line_end(text)}{indent}"
    return text[: last.end] + separator + item + text[last.end :]


def _cut_item(document: TomlDocument, path: Path) -> str:
    """The text without one item and the comma that goes with it."""
    text = document.text
    place = document.places[path]
    items = _items(document, _holder(document, path) or ())
    index = items.index(place)
    comma = _comma_after(text, place)
    before = items[index - 1] if index else None
    if _has_own_line(text, place, comma):
        start, end = _line_start(text, place.key), _next_line(text, place.end)
        after = text[:start] + text[end:]
        return _drop(after, _comma_after(text, before)) if before and comma is None else after
    if before:
        if "#" not in text[before.end : place.key]:
            return text[: before.end] + text[place.end :]
        return _drop(text[: place.key] + text[place.end :], _comma_after(text, before))
    after = _drop(text, comma)
    if index + 1 < len(items) and "#" not in text[place.end : items[index + 1].key]:
        return text[: place.key] + text[items[index + 1].key :]
    return after[: place.key] + after[place.end :]


def _drop(text: str, position: Optional[int]) -> str:
    return text if position is None else text[:position] + text[position + 1 :]


# --- Blocks


def _block(document: TomlDocument, marker: str) -> Optional[Span]:
    """The lines of a block with its two comments. What looks like one inside a value is none."""
    begins = _comments(document, f"# BEGIN {marker}")
    ends = _comments(document, f"# END {marker}")
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        raise TomlBlockError(f"the block {marker} needs its first and last line once each, in this order")
    return Span(begins[0], _next_line(document.text, ends[0]))


def _inside(text: str, span: Span) -> str:
    """The lines of a block without its two comments."""
    return "".join(text[span.start : span.end].splitlines(keepends=True)[1:-1])


def _comments(document: TomlDocument, comment: str) -> List[int]:
    """The starts of the lines that are this comment alone."""
    found = re.finditer(rf"^{BYTE_ORDER_MARK}?[ \t]*{re.escape(comment)}[ \t]*\r?$", document.text, re.MULTILINE)
    starts = [_line_start(document.text, match.end()) for match in found]
    return [start for start in starts if not any(place.start < start < place.end for place in document.places.values())]
