# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TOML 1.0 (https://toml.io/en/v1.0.0) without a library, with the places where everything is in the text.

Strict: what is not TOML 1.0 is an error with its line and column. Only a byte-order mark is skipped, as containerd 1.x
does; containerd 2.x refuses it.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cached_property
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple, Union

from .._core.regex import regex
from .._core.value import frozen

Path = Tuple[Union[str, int], ...]

# What keeps the recursion from ending the process; no engine has a table a tenth as deep.
DEEPEST = 100
BYTE_ORDER_MARK = "\ufeff"

_CONTROL = "\x00-\x08\x0a-\x1f\x7f"
_COMMENT = rf"#[^{_CONTROL}]*"
_BLANK_LINES = rf"(?:[ \t]*(?:{_COMMENT})?\r?\n)*[ \t]*"
_BASIC_TEXT = rf'[^"\\{_CONTROL}]*(?:\\.[^"\\{_CONTROL}]*)*'
_LITERAL_TEXT = rf"[^'{_CONTROL}]*"
_BARE = "[A-Za-z0-9_-]+"
_PART = rf"""(?:{_BARE}|"{_BASIC_TEXT}"|'{_LITERAL_TEXT}')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"

_GAP = regex(_BLANK_LINES)
BLANKS = regex(r"[ \t]*")
_START = regex(rf"{_BLANK_LINES}(?:{_COMMENT})?")
# The rest of a line, and all that says nothing before the next statement.
_REST = regex(rf"[ \t]*(?:{_COMMENT})?(?:\r?\n{_BLANK_LINES}(?:{_COMMENT})?|\Z)")
_ASSIGNMENT = regex(rf"(?:({_BARE})|({_KEY}))[ \t]*=[ \t]*")
_HEADER = regex(rf"(\[\[?)[ \t]*((?:{_PART}[ \t]*\.[ \t]*)*)({_PART})[ \t]*(\]\]?)")
_KEY_PARTS = regex(rf"""({_BARE})|"({_BASIC_TEXT})"|'({_LITERAL_TEXT})'""")
# The end of a header that goes the same way as the one before it, with a name without escapes.
_BESIDE = regex(rf"""(?:({_BARE})|"([^"\\{_CONTROL}]*)"|'({_LITERAL_TEXT})')\](?!\])""")
# A string without escapes, or what may be a number, a date or a word; a date may have a blank before its time.
_PLAIN = rf"""(?:"([^"\\{_CONTROL}]*)"(?!")|'({_LITERAL_TEXT})'(?!'))"""
_SIMPLE = regex(rf"{_PLAIN}|([-+0-9A-Za-z_.:]+(?:(?<=-[0-9]{{2}}) [0-9][-+0-9:.Zz]+)?)")
# A string without escapes as an item of an array, with all around it up to the next item or to the end.
_ITEM = regex(rf"{_BLANK_LINES}{_PLAIN}{_BLANK_LINES}(?:,|(?=\]))")
_STRINGS = {
    '"""': regex(r'(?s)"""(?:\r?\n)?([^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*"{0,2})"""'),
    "'''": regex(r"'''(?:\r?\n)?([^']*(?:'{1,2}(?!')[^']*)*'{0,2})'''"),
    '"': regex(rf'"({_BASIC_TEXT})"'),
    "'": regex(rf"'({_LITERAL_TEXT})'"),
}
_OPENING = regex(r"\[\[?[ \t]*")
_WHOLE_KEY = regex(_KEY)
_NO_TEXT = regex(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_ESCAPE = regex(r'\r\n|\\(?:([btnfr"\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([ \t]*\r?\n[ \t\r\n]*))?')
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_WORDS = {"true": True, "false": False}
_DIGITS = "[0-9](?:_?[0-9])*"
_WHOLE = "[-+]?(?:0|[1-9](?:_?[0-9])*)"
_INTEGER = regex(rf"{_WHOLE}|0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*")
_FLOAT = regex(rf"{_WHOLE}(?:\.{_DIGITS})?(?:[eE][-+]?{_DIGITS})?|[-+]?(?:inf|nan)")
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_OFFSET = r"(?:[Zz]|[-+](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_MOMENT = regex(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})(?:[Tt ]{_TIME}{_OFFSET}?)?|{_TIME}")
_NOT_UTF_8 = regex("[\ud800-\udfff]")

# How a table came to be, which says what may still be added to it: by a header, by a header of a table in it, by a
# dotted key; and an array of tables.
_DEFINED, _IMPLIED, _DOTTED, _ARRAY = range(4)


class TomlError(ValueError):
    """A text that is not TOML. ``line`` and ``column`` count from 1, in characters."""

    def __init__(self, line: int, column: int, cause: str) -> None:
        super().__init__(f"line {line}, column {column}: {cause}")
        self.line = line
        self.column = column
        self.cause = cause


class Moment(str):
    """A date, a time or both, as it was written."""


class Span(NamedTuple):
    """From one offset in the text up to another."""

    start: int
    end: int


class Place(NamedTuple):
    """Where a value is; ``key`` is where its key starts. An item of an array starts with itself."""

    key: int
    start: int
    end: int


@frozen
class TomlDocument:
    """A text and what it means. A path has the keys from the top, and the index where an array is on the way.

    ``written`` has every value that is written, those inside inline tables and arrays too, each with what makes its
    ``Place``. ``tables`` has the table at the top (the empty path) and those with a header, each from its header to the
    end of its last own value, in the order of the text.
    """

    text: str
    data: Dict[str, Any]
    written: Mapping[Path, Tuple[int, int, int]]
    tables: Mapping[Path, Span]

    @cached_property
    def places(self) -> Mapping[Path, Place]:
        """Where every value is. Who only reads needs none of them, and they are most of what there is to be made."""
        return {path: Place(*where) for path, where in self.written.items()}

    def get(self, path: Path) -> Any:
        """The value at a path, None where there is none."""
        found: Any = self.data
        for part in path:
            if isinstance(found, dict):
                there = part in found
            else:
                there = isinstance(found, list) and isinstance(part, int) and 0 <= part < len(found)
            if not there:
                return None
            found = found[part]
        return found


def parse(text: str) -> TomlDocument:
    """Raises ``TomlError``."""
    return _Parser(text).document()


class _Parser:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data: Dict[str, Any] = {}
        self.written: Dict[Path, Tuple[int, int, int]] = {}
        self.tables: Dict[Path, Span] = {}
        self.kinds: Dict[Path, int] = {(): _DEFINED}
        # How the last header is written up to its last name, and the table that this comes into: most go the same way.
        self.way = "["
        self.around: Tuple[Path, Dict[str, Any]] = ((), self.data)

    def document(self) -> TomlDocument:
        text = self.text
        broken = None if text.isascii() else _NOT_UTF_8.search(text)
        if broken:
            raise self.error(broken.start(), "this is not UTF-8")
        start = end = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
        path: Path = ()
        table = self.data
        position = skip(_START, text, start)
        while position < len(text):
            if text.startswith("[", position):
                self.tables[path] = Span(start, end)
                path, table, end = self.open(position)
                start = position
            else:
                assignment = _ASSIGNMENT.match(text, position)
                if assignment is None:
                    raise self.misplaced(position)
                end = self.assign(table, path, assignment)
            rest = _REST.match(text, end)
            if rest is None:
                raise self.error(skip(_START, text, end), "only a comment may follow on this line")
            position = rest.end()
        self.tables[path] = Span(start, end)
        return TomlDocument(text, self.data, self.written, self.tables)

    def error(self, position: int, cause: str) -> TomlError:
        if _NO_TEXT.match(self.text, position):
            cause = f"the control character {self.text[position]!r} may not be here"
        before = self.text[:position].lstrip(BYTE_ORDER_MARK)
        return TomlError(before.count("\n") + 1, len(before) - before.rfind("\n"), cause)

    def misplaced(self, position: int) -> TomlError:
        """What is neither an assignment nor a header, at the place from which on it is not."""
        opening = _OPENING.match(self.text, position)
        key = _WHOLE_KEY.match(self.text, opening.end() if opening else position)
        if key is None:
            what = "header of a table" if opening else "key with an = after it"
            return self.error(opening.end() if opening else position, f"this is not a {what}")
        cause = "the header of a table goes on with a dot or ends with ]" if opening else "an = must follow the key"
        return self.error(skip(BLANKS, self.text, key.end()), cause)

    def open(self, position: int) -> Tuple[Path, Dict[str, Any], int]:
        """The table that a header begins, and where the header ends.

        Its path has the index of the last item of every array on the way.
        """
        text, way = self.text, self.way
        beside = _BESIDE.match(text, position + len(way)) if text.startswith(way, position) else None
        if beside is None:
            return self.open_anywhere(position)
        path, table = self.define(*self.around, beside[beside.lastindex or 0], position)
        return path, table, beside.end()

    def open_anywhere(self, position: int) -> Tuple[Path, Dict[str, Any], int]:
        header = _HEADER.match(self.text, position)
        if header is None:
            raise self.misplaced(position)
        opening, way, name, closing = header.groups()
        if len(opening) != len(closing):
            raise self.error(header.start(4), f"the header begins with {opening} and does not end so")
        path: Path = ()
        table = self.data
        for part in self.parts(way, header.start(2)):
            path, table = self.enter(path, table, part, position)
        # Not past an item of an array: a way from before may go through the one before it.
        beside = (self.text[position : header.start(3)], (path, table)) if opening == "[" else ("[", ((), self.data))
        self.way, self.around = beside
        (name,) = self.parts(name, header.start(3))
        path, table = self.define(path, table, name, position, is_item=opening == "[[")
        return path, table, header.end()

    def enter(self, path: Path, table: Dict[str, Any], part: str, position: int) -> Tuple[Path, Dict[str, Any]]:
        path += (part,)
        kind = self.kinds.get(path)
        if kind is None:
            if part in table:
                raise self.error(position, f"{_name(path)} has a value already, and cannot get a table in it")
            self.kinds[path] = _IMPLIED
            table[part] = {}
        if kind == _ARRAY:
            return (*path, len(table[part]) - 1), table[part][-1]
        return path, table[part]

    def define(
        self, path: Path, table: Dict[str, Any], name: str, position: int, *, is_item: bool = False
    ) -> Tuple[Path, Dict[str, Any]]:
        path += (name,)
        self.check_depth(path, position)
        kind = self.kinds.get(path)
        made: Dict[str, Any] = {}
        if is_item:
            if kind is None and name not in table:
                self.kinds[path] = _ARRAY
                table[name] = []
            elif kind != _ARRAY:
                raise self.error(position, f"{_name(path)} is already defined, and is not an array of tables")
            table[name].append(made)
            path += (len(table[name]) - 1,)
        elif kind is None and name not in table:
            table[name] = made
        elif kind == _IMPLIED:
            made = table[name]
        else:
            raise self.error(position, f"{_name(path)} is already defined")
        self.kinds[path] = _DEFINED
        return path, made

    def assign(self, table: Dict[str, Any], path: Path, assignment: re.Match[str]) -> int:
        """Take the value of a key that was read, and say where it ends."""
        start, position = assignment.span()
        name = assignment[1]
        if name is None:
            *parents, name = self.parts(assignment[2], start)
            self.check_depth((*path, *parents), start)
            for part in parents:
                path += (part,)
                table = self.dotted(path, table, start)
        path += (name,)
        if name in table:
            raise self.error(start, f"{_name(path)} is already defined")
        value, end = self.value(path, position)
        table[name] = value
        self.written[path] = (start, position, end)
        return end

    def dotted(self, path: Path, table: Dict[str, Any], position: int) -> Dict[str, Any]:
        name = str(path[-1])
        kind = self.kinds.get(path)
        if kind is None and name not in table:
            table[name] = {}
        elif kind not in (_IMPLIED, _DOTTED):
            raise self.error(position, f"{_name(path)} is already defined, and a dotted key cannot add to it")
        self.kinds[path] = _DOTTED
        found: Dict[str, Any] = table[name]
        return found

    def parts(self, written: str, position: int) -> List[str]:
        found = []
        for match in _KEY_PARTS.finditer(written):
            if match.lastindex == 2:
                found.append(self.unescape(match[2], position + match.start(2)))
            else:
                found.append(match[match.lastindex or 0])
        return found

    def value(self, path: Path, position: int) -> Tuple[Any, int]:
        """A value, and where it ends."""
        character = self.text[position : position + 1]
        simple = _SIMPLE.match(self.text, position) if character != "[" else None
        if simple:
            found = simple[simple.lastindex or 0]
            return found if simple.lastindex != 3 else self.word(found, position), simple.end()
        self.check_depth(path, position)
        if character == "[":
            return self.array(path, position)
        if character == "{":
            return self.inline(path, position)
        if character in _STRINGS:
            return self.string(position)
        raise self.error(position, "this is not a value" if character.strip() else "the value is missing")

    def word(self, word: str, position: int) -> Union[bool, int, float, Moment]:
        if word in _WORDS:
            return _WORDS[word]
        if _INTEGER.fullmatch(word):
            # Sixty-four digits are the longest of them, in the base of two.
            number = int(word, 0) if len(word) < 150 else 1 << 64
            if not -(1 << 63) <= number < 1 << 63:
                raise self.error(position, "the number does not fit in 64 bits")
            return number
        if _FLOAT.fullmatch(word):
            return float(word)
        moment = _MOMENT.fullmatch(word)
        if moment is None:
            raise self.error(position, f"{word} is not a value; strings are quoted")
        if moment[1] and not _is_date(moment):
            raise self.error(position, f"{word} is not a date that exists")
        return Moment(word)

    def string(self, position: int) -> Tuple[str, int]:
        text = self.text
        quotes = text[position] * (3 if text.startswith(text[position] * 3, position) else 1)
        match = _STRINGS[quotes].match(text, position)
        if match is None:
            raise self.error(position, "the text does not end, or has a control character")
        wrong = _NO_TEXT.search(text, *match.span(1))
        if wrong:
            raise self.error(wrong.start(), "this is not text")
        if quotes[0] == "'":
            return match[1].replace("\r\n", "\n"), match.end()
        return self.unescape(match[1], match.start(1)), match.end()

    def unescape(self, raw: str, position: int) -> str:
        """What a basic string means: its escapes, and its Windows line ends as plain ones."""

        def replaced(match: re.Match[str]) -> str:
            kind, found = match.lastindex, match[match.lastindex or 0]
            if kind == 1:
                return _ESCAPED[found]
            if kind in (2, 3) and not 0xD800 <= int(found, 16) <= 0xDFFF and int(found, 16) <= 0x10FFFF:
                return chr(int(found, 16))
            if kind == 4:
                return ""
            if found == "\r\n":
                return "\n"
            raise self.error(position + match.start(), "this is not an escape sequence of TOML")

        return _ESCAPE.sub(replaced, raw) if "\\" in raw or "\r" in raw else raw

    def array(self, path: Path, position: int) -> Tuple[List[Any], int]:
        text = self.text
        found: List[Any] = []
        position += 1
        while not text.startswith("]", position):
            item = (*path, len(found))
            plain = _ITEM.match(text, position)
            if plain:
                kind = plain.lastindex or 0
                start = plain.start(kind) - 1
                self.written[item] = (start, start, plain.end(kind) + 1)
                found.append(plain[kind])
                position = plain.end()
                continue
            position = skip(_GAP, text, position)
            if text.startswith("]", position):
                break
            value, end = self.value(item, position)
            self.written[item] = (position, position, end)
            found.append(value)
            position = skip(_GAP, text, end)
            if text.startswith(",", position):
                position += 1
            elif not text.startswith("]", position):
                raise self.error(position, "an array goes on with a comma or ends with ]")
        return found, position + 1

    def inline(self, path: Path, position: int) -> Tuple[Dict[str, Any], int]:
        text = self.text
        found: Dict[str, Any] = {}
        position = skip(BLANKS, text, position + 1)
        ended = text.startswith("}", position)
        while not ended:
            assignment = _ASSIGNMENT.match(text, position)
            if assignment is None:
                raise self.misplaced(position)
            position = skip(BLANKS, text, self.assign(found, path, assignment))
            ended = text.startswith("}", position)
            if not ended and not text.startswith(",", position):
                raise self.error(position, "an inline table goes on with a comma or ends with }, on the same line")
            position = position if ended else skip(BLANKS, text, position + 1)
        return found, position + 1

    def check_depth(self, path: Path, position: int) -> None:
        if len(path) > DEEPEST:
            raise self.error(position, f"this is nested more than {DEEPEST} tables deep")


def skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _name(path: Path) -> str:
    return ".".join(str(part) for part in path)


def _is_date(moment: re.Match[str]) -> bool:
    # Hardly a file has one, and importing this costs as much as reading a file.
    try:
        date(int(moment[1]), int(moment[2]), int(moment[3]))
    except ValueError:
        return False
    return True
