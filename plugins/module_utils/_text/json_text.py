# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON configuration files as they are read: what a text means, and where it is broken."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple

from .._core.errors import not_understood
from .._core.regex import regex

if TYPE_CHECKING:
    from .._core.errors import CannotLook

BOM = "\ufeff"
# What follows objects and lists into each other gets along with it; no program has files a tenth as deep.
MAX_DEPTH = 300
TOO_DEEP = "its objects and lists are nested too deeply"


class RepeatedKey(ValueError):
    """An object has a key twice."""


class NoValue(ValueError):
    """A word that Python takes for a number, and JSON does not."""


def parse(text: Optional[str], path: str) -> Dict[str, Any]:
    """The object that a file holds; nothing for a file that is not there, or that holds only blanks.

    Raises ``CannotLook`` with the line and column of what is not JSON (RFC 8259), of a byte that is not UTF-8, or of a
    key that an object has twice: readers do not agree which of the two counts.
    """
    if text is None or not text.lstrip(BOM).strip():
        return {}
    body = text[1:] if text.startswith(BOM) else text
    foreign = None if body.isascii() else re.search("[\udc80-\udcff]", body)
    if foreign is not None:
        raise _unreadable(path, body, foreign.start(), "a byte that is not UTF-8")
    try:
        value = json.loads(body, object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except NoValue as error:
        # Outside of texts there are no such letters.
        places = (match for match in re.finditer(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)', body) if match[0][0] != '"')
        raise _unreadable(path, body, next(places).start(), str(error)) from error
    except json.JSONDecodeError as error:
        raise _unreadable(path, body, error.pos, error.msg) from error
    except RepeatedKey as error:
        key, at = _repetition(body)
        raise _unreadable(path, body, at, f"the key {json.dumps(key)} occurs twice") from error
    except RecursionError as error:
        raise _unreadable(path, body, 0, TOO_DEEP) from error
    except ValueError as error:
        raise _unreadable(path, body, 0, str(error)) from error
    if is_deep(body, value):
        raise _unreadable(path, body, 0, TOO_DEEP)
    if not isinstance(value, dict):
        raise _unreadable(path, body, len(body) - len(body.lstrip()), "the file does not hold a mapping")
    return value


def is_deep(text: str, value: Any) -> bool:
    """Whether what a text means is nested more deeply than what reads it can follow."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    level = [value]
    for _depth in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _without_repetition(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made: Dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise RepeatedKey(key)
        made[key] = value
    return made


def _no_constant(word: str) -> None:
    raise NoValue(f"{word} is not JSON")


def _unreadable(path: str, text: str, at: int, cause: str) -> CannotLook:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return not_understood(path, f"line {line}, column {column}: {cause}")


# A string, with the colon that makes a key of it.
KEY_OR_BRACE = regex(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}]')


def _repetition(text: str) -> Tuple[str, int]:
    """A key that its object has already, and where it stands. The text has one."""
    around: List[Set[str]] = []
    for match in KEY_OR_BRACE.finditer(text):
        if match[0] == "{":
            around.append(set())
        elif match[0] == "}":
            around.pop()
        elif match[2]:
            key = json.loads(match[1])
            if key in around[-1]:
                return key, match.start()
            around[-1].add(key)
    raise LookupError("no key occurs twice")
