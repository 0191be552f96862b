# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of ``KEY=VALUE`` lines, as fabricmanager.cfg and config.cfg of IMEX are: read by meaning, changed in place.

Pure. What is not a line of a key that changes stays as it is, byte for byte.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.value import frozen
from .spec import NUMBER


@frozen
class Assignment:
    """One line: ``number`` counts from 1, ``head`` is all of it before the value, ``tail`` all after it."""

    number: int
    key: str
    head: str
    value: str
    tail: str


def assignments(text: str) -> Iterator[Assignment]:
    for number, line in enumerate(text.split("\n"), 1):
        left, equals, right = line.partition("=")
        key = left.strip()
        if equals and key and not key.startswith("#"):
            # Where there is no value, all blanks are before it, so that one that comes and goes leaves them.
            gap = right[: len(right) - len(right.lstrip())]
            value = right.strip()
            yield Assignment(number, key, f"{left}={gap}", value, right[len(gap) + len(value) :])


def values_of(text: str) -> Dict[str, str]:
    """All keys with their values; of one that is there several times the last."""
    return {one.key: one.value for one in assignments(text)}


def contradictions(text: str) -> Dict[str, Tuple[int, ...]]:
    """The keys that have several values, with their lines: which of them counts the daemon does not say."""
    found: Dict[str, List[Assignment]] = {}
    for one in assignments(text):
        found.setdefault(one.key, []).append(one)
    return {
        key: tuple(one.number for one in lines)
        for key, lines in found.items()
        if any(not is_same(one.value, lines[0].value) for one in lines)
    }


def is_same(one: Optional[str], other: Optional[str]) -> bool:
    """Whether two values mean the same: 04 is 4, and no value is none."""
    if one == other or one is None or other is None:
        return one == other
    if NUMBER.fullmatch(one) and NUMBER.fullmatch(other):
        return int(one) == int(other)
    return False


def changed(text: str, values: Mapping[str, Optional[str]]) -> str:
    """The text with these values, each in its place; None takes the lines of a key away. New ones come last."""
    lines: List[str] = text.split("\n")
    there = set()
    gone = set()
    for one in assignments(text):
        if one.key not in values:
            continue
        there.add(one.key)
        value = values[one.key]
        if value is None:
            gone.add(one.number)
        elif value != one.value:
            lines[one.number - 1] = f"{one.head}{value}{one.tail}"
    kept = [line for number, line in enumerate(lines, 1) if number not in gone]
    new = [f"{key}={value}" for key, value in sorted(values.items()) if value is not None and key not in there]
    if not new:
        return "\n".join(kept)
    # Where the last line ends there is an empty one after it, and it stays the last.
    at = len(kept) - 1 if kept and kept[-1] == "" else len(kept)
    return "\n".join([*kept[:at], *new, *kept[at:]])
