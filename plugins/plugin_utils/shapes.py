# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shapes that an answer of a node must have to be taken for one.

A shape takes a value and returns what was asked for of it, complete: a mapping has all of its fields and no other, a
list that is not there is empty. It raises ``Malformed`` for anything else, with the place in the answer. So one reader
stands between the nodes and what is written about the fleet, and behind it nobody asks again what type a value has.
"""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Collection, Dict, Tuple

Shape = Callable[[Any], Any]

# More than any node has to say in one place, and less than what would cost the readers of all other nodes theirs.
LONGEST = 1 << 16
LARGEST = 1 << 63
DEEPEST = 32
KEY_SHOWN = 40
CPUS = re.compile(r"(?:\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*)?")


class Malformed(ValueError):
    """What is wrong with a value. The place is put together on the way out of it, from its end."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.place = ""

    def within(self, step: str) -> Malformed:
        self.place = f"{step}{self.place}"
        return self

    def __str__(self) -> str:
        return f"{self.place.lstrip('.') or 'it'} {self.what}"


def mapping(**fields: Shape) -> Shape:
    """A mapping with these fields; null is one without any of them."""

    def read(value: Any) -> Dict[str, Any]:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise _not_a("mapping", value)
        found = {}
        for name, shape in fields.items():
            try:
                found[name] = shape(value.get(name))
            except Malformed as error:
                raise error.within(f".{name}") from None
        return found

    return read


def by_name(shape: Shape, *, names: Collection[str] = ()) -> Shape:
    """A mapping whose keys are data; only ``names``, where there are any."""

    def read(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise _not_a("mapping", value)
        _short_enough(value, "entries")
        found = {}
        for name, entry in value.items():
            if not isinstance(name, str):
                raise Malformed(f"has a key that is {_kind(name)}")
            step = f".{name[:KEY_SHOWN]}"
            if names and name not in names:
                raise Malformed("is not known").within(step)
            try:
                found[name] = shape(entry)
            except Malformed as error:
                raise error.within(step) from None
        return found

    return read


def listed(shape: Shape) -> Shape:
    """A list of them; null is an empty one."""

    def read(value: Any) -> Tuple[Any, ...]:
        if value is None:
            return ()
        if not isinstance(value, (list, tuple)):
            raise _not_a("list", value)
        _short_enough(value, "entries")
        found = []
        for entry in value:
            try:
                found.append(shape(entry))
            except Malformed as error:
                raise error.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def rows(**fields: Shape) -> Shape:
    """A list of mappings with these fields, none of them null."""
    return listed(needed(mapping(**fields)))


def needed(shape: Shape) -> Shape:
    """What no answer is without."""

    def read(value: Any) -> Any:
        if value is None:
            raise Malformed("is missing")
        return shape(value)

    return read


def optional(shape: Shape) -> Shape:
    """None where it is not there, also for a mapping or a list."""
    return lambda value: None if value is None else shape(value)


def one_of(choices: Collection[str]) -> Shape:
    def read(value: Any) -> str:
        found = needed(text)(value)
        if found not in choices:
            raise Malformed(f"is {_quoted(found)}, and not one of {', '.join(choices)}")
        return str(found)

    return read


def text(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise _not_a("string", value)
    if value is not None:
        _short_enough(value, "characters")
    return value


def cpu_list(value: Any) -> Any:
    """CPUs as the kernel lists them. What reads it makes them one by one, so nobody may claim a billion."""
    if text(value) is not None and not CPUS.fullmatch(value):
        raise Malformed(f"is {_quoted(value)}, and not a list of CPUs")
    return value


def whole(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _not_a("whole number", value)
    return _sane(value)


def count(value: Any) -> Any:
    """How many there are; null is none."""
    return 0 if value is None else whole(value)


def number(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise _not_a("number", value)
    return _sane(value)


def truth(value: Any) -> Any:
    if value is not None and not isinstance(value, bool):
        raise _not_a("boolean", value)
    return value


def scalar(value: Any) -> Any:
    """What a setting can be: a string, a number, a boolean, or null."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, (dict, list, tuple)):
        raise _not_a("single value", value)
    return value if isinstance(value, bool) else number(value)


def length(value: Any) -> int:
    """Of a list of which nothing else matters."""
    return len(listed(lambda entry: None)(value))


def plain(value: Any, levels: int = DEEPEST) -> Any:
    """Any value that JSON can hold, and that whoever reads it can read."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return scalar(value)
    if not levels:
        raise Malformed(f"is nested more than {DEEPEST} levels deep")
    if isinstance(value, dict):
        return by_name(lambda entry: plain(entry, levels - 1))(value)
    return listed(lambda entry: plain(entry, levels - 1))(value)


def _sane(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed("is not a number")
    if value is not None and abs(value) >= LARGEST:
        raise Malformed("is a number with more than 64 bits")
    return value


def _short_enough(value: Any, unit: str) -> None:
    if len(value) > LONGEST:
        raise Malformed(f"has {len(value)} {unit}, more than {LONGEST}")


def _not_a(wanted: str, value: Any) -> Malformed:
    return Malformed(f"is {_kind(value)}, and not a {wanted}")


def _quoted(value: str) -> str:
    return repr(value if len(value) <= KEY_SHOWN else f"{value[: KEY_SHOWN - 3]}...")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds = ((dict, "a mapping"), ((list, tuple), "a list"), (str, "a string"), ((int, float), "a number"))
    return next((word for kind, word in kinds if isinstance(value, kind)), type(value).__name__)
