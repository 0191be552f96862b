# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of udev(7) as they are written: what a rule means for a device is decided where it is asked.

Of files with the same name only that of the strongest folder is read, and then all by name across the folders: what is
assigned later counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Sequence, Tuple

from .._core.regex import regex
from .._core.value import frozen
from . import dropins

if TYPE_CHECKING:
    from .._core.protocols import Files

KIND = "udev/rules.d"
SUFFIX = ".rules"

# A line of more bytes, without its end, is not read by every udev (src/udev/udev-rules.c: UDEV_LINE_SIZE is 16384, and
# UTIL_LINE_SIZE before 240 the same with the end of the line and a NUL).
_LINE_BYTES = 16381

# A plain text keeps its backslashes, those before a quote excepted; one with e before it is escaped as in C.
_TOKEN = regex(
    r"[\s,]*([A-Z_]+)(?:\{([^}]*)\})?\s*(==|!=|\+=|-=|:=|=)\s*"
    r'(?:(i?)"([^"\\]*(?:\\(?:"|(?!"))[^"\\]*)*)"|(ei?|ie)"((?:[^"\\]|\\.)*)")'
)


@frozen
class UdevToken:
    """One part of a rule: ``key`` with the ``attribute`` in its braces, if any, ``operator`` and ``value``.

    The value is without the quotes around it and the escapes in it; ``ignore_case`` is the ``i`` before it.
    """

    key: str
    attribute: str
    operator: str
    value: str
    ignore_case: bool

    @property
    def is_condition(self) -> bool:
        return self.operator in ("==", "!=")


@frozen
class UdevRule:
    """One rule, with the number of the line it begins at.

    ``malformed``: the line goes on behind these parts with what udev cannot read. It leaves out the rule, and before
    243 that rest alone.
    """

    number: int
    tokens: Tuple[UdevToken, ...]
    malformed: bool


@frozen
class UdevRuleFile:
    """The rules of one file in order, without those that are too long when what they are continued with is joined.

    ``overlong``: one line is too long by itself. udev reads nothing from there on, and the jumps before it go nowhere;
    releases before 240 leave out the line alone.
    """

    path: str
    rules: Tuple[UdevRule, ...]
    overlong: bool


def walk(files: Files) -> Iterator[str]:
    """The files of rules, in the order in which they are read."""
    return dropins.walk_kind(files, KIND, SUFFIX)


def read_texts(files: Files, mentioning: str = "") -> Dict[str, str]:
    """The texts of all files by path, in the order in which they are read; only those that have ``mentioning``."""
    return dropins.read_texts(files, KIND, SUFFIX, mentioning)


def parse(path: str, text: str) -> UdevRuleFile:
    """The rules of one file."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    rules = tuple(UdevRule(number, *_tokens(line)) for number, line in _logical_lines(lines))
    return UdevRuleFile(path, rules, any(map(_too_long, lines)))


def _tokens(line: str) -> Tuple[Tuple[UdevToken, ...], bool]:
    """The parts of a rule, and whether it goes on with what is none."""
    found: List[UdevToken] = []
    at = 0
    token = _TOKEN.match(line)
    while token is not None:
        key, attribute, operator, ignore_case, value, escaped, text = token.groups()
        if escaped:
            from .escapes import unescape

            ignore_case = "i" if "i" in escaped else ""
            try:
                value = unescape(text)
            except ValueError:
                break
        elif "\\" in value:
            value = value.replace('\\"', '"')
        found.append(UdevToken(key, attribute or "", operator, value, ignore_case == "i"))
        at = token.end()
        token = _TOKEN.match(line, at)
    return tuple(found), line[at:].strip(" \t\n\r,") != ""


def _logical_lines(lines: Sequence[str]) -> Iterator[Tuple[int, str]]:
    """The lines with those that end in a backslash joined, each with the number of its first; no comments, which also
    stand between joined lines, and none that is too long.
    """
    start, pending = 0, ""
    for number, line in enumerate(lines, 1):
        line = line.lstrip()
        if line[:1] == "#":
            continue
        start = start or number
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        whole = pending + line
        if whole.strip() and not _too_long(whole):
            yield start, whole
        start, pending = 0, ""


def _too_long(line: str) -> bool:
    return len(line) > _LINE_BYTES // 4 and len(line.encode("utf-8", "surrogateescape")) > _LINE_BYTES
