# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of YAML that specifications of CDI are written in, without a library.

What ``nvidia-ctk`` and the libraries of CDI write: block mappings and sequences, plain and quoted scalars, comments.
A document of JSON is read too. All scalars are texts. Anchors, tags, block scalars, other flow collections than those
that are JSON, and several documents are refused: no answer is better than a wrong one. A caller whose program reads all
flow collections asks for them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.value import frozen
from .json_text import TOO_DEEP, is_deep

_KEY = regex(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'\[\]{},&*!|>%@`#?-].*?|[?-]\S.*?)[ ]*:(?:[ ]+(.*))?$""")
_COMMENT = regex(r"""(?:^|(?<=\s))#.*$""")
# What ends a line in some versions of YAML and in no file of these programs.
_BREAK = regex("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\r(?!\n)")
_QUOTED = regex(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ ]*(?:#.*)?$""")
# What begins a part of YAML that is not read here; a ? only before a blank.
_STRANGE = regex(r"[&*!|>%@`]|\?(?:[ ]|$)")
# Of flow collections such as {cpu: 1, memory: 2Gi}, which may go on over lines.
_FLOW_BLANK = regex(r"(?:[ \t\n]|(?:(?<=[ \t\n])|^)#[^\n]*)*")
_FLOW_QUOTED = regex(r"""\"(?:[^"\\\n]|\\.)*\"|'(?:[^'\n]|'')*'""")
# A plain scalar ends at a colon before a blank or a bracket, and at a comment. What begins with these is not read here.
_FLOW_PLAIN = regex(
    r"""(?:[^\s\[\]{},:#&*!|>%@`"'?-]|[:?-](?![\s\[\]{},]|$))"""
    r"(?:[^\s\[\]{},:]|:(?![\s\[\]{},]|$)|[ \t]+(?![\s\[\]{},:#]))*"
)


class YamlError(ValueError):
    """A text that is not of this part of YAML. ``line`` counts from 1."""

    def __init__(self, line: int, cause: str) -> None:
        super().__init__(f"line {line}: {cause}")
        self.line = line
        self.cause = cause


@frozen
class _Line:
    number: int
    indent: int
    text: str


def parse(text: str, *, flow: bool = False) -> Any:
    """Mappings as dicts, sequences as lists, scalars as texts, an empty one as None. Raises ``YamlError``.

    With ``flow``, flow collections need not be JSON.
    """
    text = text.lstrip("\ufeff")
    if text.lstrip().startswith("{"):
        try:
            return _json(text)
        except YamlError:
            if not flow:
                raise
    reader = _Reader(_lines(text), flow=flow)
    try:
        value = reader.block(0) if reader.lines else None
    except RecursionError as error:
        raise YamlError(1, TOO_DEEP) from error
    if is_deep(text, value):
        raise YamlError(1, TOO_DEEP)
    if reader.at < len(reader.lines):
        line = reader.lines[reader.at]
        raise YamlError(line.number, f"{line.text!r} does not go on from the lines before it")
    return value


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise YamlError(error.lineno, error.msg) from error
    except RecursionError as error:
        raise YamlError(1, TOO_DEEP) from error
    if is_deep(text, value):
        raise YamlError(1, TOO_DEEP)
    return value


def _lines(text: str) -> List[_Line]:
    found: List[_Line] = []
    strange = _BREAK.search(text)
    if strange is not None:
        number = text.count("\n", 0, strange.start()) + 1
        raise YamlError(number, f"parsers disagree on whether the character {strange[0]!r} ends the line; remove it")
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        content = raw.strip(" \t")
        if not content or content.startswith("#"):
            continue
        if raw.startswith("---"):
            if found:
                raise YamlError(number, "this begins a second document")
            content = raw[3:].strip()
            if content and not content.startswith("#"):
                raise YamlError(number, "a document begins on a line of its own")
            continue
        if raw.rstrip() == "...":
            break
        indent = len(raw) - len(raw.lstrip(" "))
        if raw[indent] == "\t":
            raise YamlError(number, "a tab cannot indent")
        found.append(_Line(number, indent, content))
    return found


class _Reader:
    """One pass over the lines; ``at`` is the next one."""

    def __init__(self, lines: List[_Line], *, flow: bool) -> None:
        self.lines = lines
        self.at = 0
        self.flow = flow

    def block(self, indent: int) -> Any:
        """The collection or the scalar that begins at the next line, which is indented at least so far."""
        line = self.lines[self.at]
        if line.indent < indent:
            raise YamlError(line.number, "it is indented less than the line before it")
        if _is_item(line.text):
            return self.sequence(line.indent)
        if _KEY.match(line.text):
            return self.mapping(line.indent)
        self.at += 1
        return self.scalar(line.text, line)

    def sequence(self, indent: int) -> List[Any]:
        found: List[Any] = []
        while self.here(indent) and _is_item(self.lines[self.at].text):
            line = self.lines[self.at]
            rest = line.text[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self.at += 1
                found.append(self.nested(indent + 1))
                continue
            if _is_item(rest) or (_KEY.match(rest) and rest[0] not in "[{"):
                # What stands behind the dash begins a block there.
                self.lines[self.at] = _Line(line.number, indent + len(line.text) - len(rest), rest)
                found.append(self.block(indent + 1))
                continue
            self.at += 1
            found.append(self.scalar(rest, line))
        return found

    def mapping(self, indent: int) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        while self.here(indent) and not _is_item(self.lines[self.at].text):
            line = self.lines[self.at]
            match = _KEY.match(line.text)
            if match is None:
                raise YamlError(line.number, f"{line.text!r} is not a key with a colon after it")
            key = _unquoted(match[1], line.number)
            if key in found:
                raise YamlError(line.number, f"{key} is already defined")
            self.at += 1
            rest = match[2] or ""
            if rest and not rest.startswith("#"):
                found[key] = self.scalar(rest, line)
            elif self.here(indent) and _is_item(self.lines[self.at].text):
                # The items of a key may stand right below it.
                found[key] = self.sequence(indent)
            else:
                found[key] = self.nested(indent + 1)
        return found

    def here(self, indent: int) -> bool:
        return self.at < len(self.lines) and self.lines[self.at].indent == indent

    def nested(self, indent: int) -> Any:
        """The block below a key or a dash, None where nothing is."""
        if self.at == len(self.lines) or self.lines[self.at].indent < indent:
            return None
        return self.block(indent)

    def scalar(self, text: str, line: _Line) -> Any:
        if text[0] in "[{":
            try:
                return json.loads(text)
            except ValueError:
                if not self.flow:
                    raise YamlError(line.number, f"{text!r} is a flow collection that is not JSON") from None
            value, used = _parse_flow([text, *(one.text for one in self.lines[self.at :])], line.number)
            self.at += used - 1
            return value
        if text[0] in "\"'":
            return _unquoted(text, line.number)
        if _STRANGE.match(text):
            raise YamlError(line.number, f"{text!r} is YAML that is not supported here")
        words = [_COMMENT.sub("", text).strip()]
        # A long plain one goes on in deeper lines.
        while (
            self.at < len(self.lines) and self.lines[self.at].indent > line.indent and not _begins(self.lines[self.at])
        ):
            words.append(_COMMENT.sub("", self.lines[self.at].text).strip())
            self.at += 1
        return " ".join(words)


class _Unfinished(Exception):
    """The text ends within a collection."""


def _parse_flow(lines: Sequence[str], number: int) -> Tuple[Any, int]:
    """The collection that begins with the first line, and how many lines it has. Raises ``YamlError``."""
    for count in range(1, len(lines) + 1):
        reader = _Flow("\n".join(lines[:count]), number)
        try:
            return reader.whole(), count
        except _Unfinished:
            continue
    raise YamlError(number, f"{lines[0]!r} begins a flow collection that does not end")


class _Flow:
    """One pass over a text; ``at`` is the next character."""

    def __init__(self, text: str, number: int) -> None:
        self.text = text
        self.number = number
        self.at = 0

    def whole(self) -> Any:
        value = self.value()
        self.blank()
        if self.at < len(self.text):
            raise self.error()
        return value

    def value(self) -> Any:
        head = self.peek()
        if head == "[":
            return self.items()
        return self.pairs() if head == "{" else self.scalar()

    def items(self) -> List[Any]:
        found: List[Any] = []
        self.at += 1
        while self.peek() != "]":
            found.append(self.value())
            self.separated("]")
        self.at += 1
        return found

    def pairs(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        self.at += 1
        while self.peek() != "}":
            key = self.scalar()
            if key in found:
                raise YamlError(self.line, f"{key} is already defined")
            found[key] = None
            if self.peek() == ":":
                self.at += 1
                if self.peek() not in ",}":
                    found[key] = self.value()
            self.separated("}")
        self.at += 1
        return found

    def scalar(self) -> str:
        self.peek()
        match = _FLOW_QUOTED.match(self.text, self.at) or _FLOW_PLAIN.match(self.text, self.at)
        if match is None:
            raise self.error()
        self.at = match.end()
        return _unquoted(match[0], self.line)

    def separated(self, end: str) -> None:
        head = self.peek()
        if head == ",":
            self.at += 1
        elif head != end:
            raise self.error()

    def peek(self) -> str:
        self.blank()
        if self.at == len(self.text):
            raise _Unfinished
        return self.text[self.at]

    def blank(self) -> None:
        match = _FLOW_BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    @property
    def line(self) -> int:
        return self.number + self.text.count("\n", 0, self.at)

    def error(self) -> YamlError:
        rest = self.text[self.at :].partition("\n")[0]
        return YamlError(self.line, f"{rest!r} cannot be read as part of a flow collection")


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _begins(line: _Line) -> bool:
    return _is_item(line.text) or _KEY.match(line.text) is not None


def _unquoted(text: str, number: int) -> str:
    """A scalar without its quotes, plain ones as they are; ``number`` is its line. Raises ``YamlError``."""
    if text[0] not in "\"'":
        return text
    match: Optional[re.Match[str]] = _QUOTED.match(text)
    if match is None:
        raise YamlError(number, f"{text!r} does not end on its line")
    if text[0] == "'":
        return match[1][1:-1].replace("''", "'")
    try:
        return str(json.loads(match[1]))
    except ValueError:
        raise YamlError(number, f"{match[1]} has an escape that is not supported here") from None
