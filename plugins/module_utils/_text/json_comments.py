# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON with comments (``//`` and ``/* */``) as JsonCpp reads it, which many programs in C++ have in them.

JsonCpp takes a comment nearly everywhere: not between a key and its colon, and not in a list without entries. It takes
neither an empty file nor a byte-order mark.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

from .._core.errors import not_understood
from .._core.regex import regex
from .json_text import BOM, parse

# A string holds no comment; a slash outside of both is left for the parser of JSON to name.
_TOKEN = regex(r'"(?:[^"\\]|\\.)*"|(//[^\r\n]*|/\*(?:[^*]|\*(?!/))*\*/|/\*)')
_COVERED = regex(r"[^\r\n]")


def comments(text: str) -> Iterator[Tuple[int, int]]:
    """Where each comment begins, and the place behind it."""
    if "/" in text:
        for match in _TOKEN.finditer(text):
            if match[1] is not None:
                yield match.span(1)


def blanked(text: str) -> str:
    """The text with a blank for each character of a comment: all else stands where it stood."""
    parts = []
    at = 0
    for start, end in comments(text):
        parts += [text[at:start], _COVERED.sub(" ", text[start:end])]
        at = end
    return "".join((*parts, text[at:]))


def parse_commented(text: str, path: str) -> Dict[str, Any]:
    """The object that a file holds. Raises ``CannotLook`` with the place of what JsonCpp would not read."""
    if text.startswith(BOM):
        raise not_understood(path, "it begins with a byte-order mark, which its reader refuses")
    if not text.strip():
        raise not_understood(path, "it is empty, which its reader refuses")
    for start, end, before, after in _neighbours(text):
        cause = ""
        if text[start:end] == "/*":
            cause = "the comment does not end"
        elif after == ":":
            cause = "a comment stands between a key and its colon, which its reader refuses"
        elif before == "[" and after == "]":
            cause = "a comment stands in a list without entries, which its reader refuses"
        if cause:
            line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
            raise not_understood(path, f"line {line}, column {column}: {cause}")
    return parse(blanked(text), path)


def _neighbours(text: str) -> Iterator[Tuple[int, int, str, str]]:
    """Each comment by its place, with the letters before and after it that are neither blanks nor in a comment."""
    spans = tuple(comments(text))
    starts, ends = [start for start, _end in spans], [end for _start, end in spans]
    between = [text[start:end].strip() for start, end in zip((0, *ends), (*starts, len(text)))]
    before, last = [], ""
    for one in between:
        last = one[-1:] or last
        before.append(last)
    after, following = [], ""
    for one in reversed(between):
        following = one[:1] or following
        after.append(following)
    after.reverse()
    for number, (start, end) in enumerate(spans):
        yield start, end, before[number], after[number + 1]
