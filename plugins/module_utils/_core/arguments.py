# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A declaration made complete and converted as Ansible does it for a module, without Ansible.

Its ``ArgumentSpecValidator`` costs a look more to import than all concerns together, and a node need not have it. What
is here is what our specifications use: types, defaults, choices, elements, sub-options, and what is required. Of what
is wrong, the messages are Ansible's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .errors import DeclarationError
from .nearest import did_you_mean

Options = Mapping[str, Mapping[str, Any]]
"""An argument specification: what Ansible takes for each option, by its name."""

TRUE = ("y", "yes", "on", "1", "true", "t", 1, True)
FALSE = ("n", "no", "off", "0", "false", "f", 0, False)
# What a number in a declaration never has. Beyond that the conversion alone would take minutes.
MOST_DIGITS = 1000


def validated(
    options: Options, declaration: Any, *, goal: str = "read the declaration", stored: bool = False
) -> Dict[str, Any]:
    """The declaration with the defaults of ``options`` at every depth, each value converted to its type.

    ``goal`` completes "Cannot ...". What is ``stored`` on a node had its paths expanded when it was declared: they are
    taken as they are. Raises ``DeclarationError``.
    """
    if not isinstance(declaration, Mapping):
        raise DeclarationError(goal, cause=f"it must be a dictionary of options, not {declaration!r}")
    reading = Reading(stored=stored)
    values = reading.read(options, declaration, ())
    causes, hint = reading.causes, ""
    if reading.unsupported:
        where, known = reading.unsupported[0]
        names = ", ".join(sorted({".".join(map(str, path)) for path, _known in reading.unsupported}))
        causes.append(f"unsupported option {names}. Supported parameters include: {', '.join(sorted(known))}")
        hint = did_you_mean(where[-1], known)
    if causes:
        raise DeclarationError(goal, cause="; ".join(cause.rstrip(".") for cause in causes), hint=hint)
    return values


class Reading:
    """One declaration while it is read. ``causes`` is what is wrong; ``unsupported`` are the paths of the options that
    there are not, with the names of those that there are.
    """

    def __init__(self, *, stored: bool) -> None:
        self.causes: List[str] = []
        self.unsupported: List[Tuple[Tuple[str, ...], Sequence[str]]] = []
        self._types = {**TYPES, "path": as_text} if stored else TYPES

    def read(self, options: Options, given: Mapping[str, Any], place: Tuple[str, ...]) -> Dict[str, Any]:
        """The values of one dictionary of options. ``place`` are the names of the options that it is in."""
        self.unsupported += [((*place, name), tuple(options)) for name in given if name not in options]
        values = dict(given)
        missing = sorted(name for name, option in options.items() if option.get("required") and name not in given)
        if missing:
            self.causes.append(f"missing required arguments: {', '.join(missing)}{_found_in(place)}")
        for name, option in options.items():
            if name in given:
                values[name] = self._value(name, option, given[name], place)
            else:
                values[name] = self._inner(name, option, _copied(option.get("default")), place)
        return values

    def _value(self, name: str, option: Mapping[str, Any], value: Any, place: Tuple[str, ...]) -> Any:
        if value is None and not option.get("required") and option.get("default") is None:
            # Ansible converts no null, and then looks for it among the choices.
            return self._choice(name, option["choices"], None, place) if "choices" in option else None
        kind = option.get("type", "str")
        try:
            value = self._types[kind](value)
        except (TypeError, ValueError) as error:
            found = f" found in '{' -> '.join(place)}'." if place else ""
            self.causes.append(
                f"argument '{name}' is of type {type(value).__name__}{found} and we were unable to convert to {kind}: "
                f"{error}"
            )
            return value
        if "elements" in option:
            value = self._elements(name, option["elements"], value, place)
        if "choices" in option:
            value = self._choice(name, option["choices"], value, place)
        return self._inner(name, option, value, place)

    def _elements(self, name: str, kind: str, values: Sequence[Any], place: Tuple[str, ...]) -> List[Any]:
        converted = []
        for value in values:
            try:
                converted.append(self._types[kind](value))
            except (TypeError, ValueError) as error:
                found = f" found in '{' -> '.join(place)}'" if place else ""
                self.causes.append(
                    f"Elements value for option '{name}'{found} is of type {type(value).__name__} and we were unable "
                    f"to convert to {kind}: {error}"
                )
        return converted

    def _choice(self, name: str, choices: Sequence[Any], value: Any, place: Tuple[str, ...]) -> Any:
        if isinstance(value, list):
            others = [entry for entry in value if entry not in choices]
            if others:
                self.causes.append(
                    f"value of {name} must be one or more of: {_listed(choices)}. Got no match for: {_listed(others)}"
                    f"{_found_in(place)}"
                )
            return value
        # YAML makes booleans of words such as off. Where only one of the choices can have been meant, it is that one.
        for text, words in (("False", FALSE), ("True", TRUE)):
            meant = [choice for choice in choices if choice in words]
            if value == text and value not in choices and len(meant) == 1:
                return meant[0]
        if value not in choices:
            self.causes.append(
                f"value of {name} must be one of: {_listed(choices)}, got: {value}{_found_in(place)}",
            )
        return value

    def _inner(self, name: str, option: Mapping[str, Any], value: Any, place: Tuple[str, ...]) -> Any:
        """The value with that of its sub-options, where it has any."""
        options = option.get("options")
        if options is None or value is None:
            return value
        inner = (*place, name)
        if isinstance(value, list):
            return [self.read(options, entry, inner) for entry in value]
        return self.read(options, value, inner)


def refuse_booleans_as_numbers(options: Options, values: Mapping[str, Any], place: Tuple[str, ...] = ()) -> None:
    """Raise ``DeclarationError`` for true or false where a whole number belongs.

    Ansible takes them for numbers, and would write the word True. ``values`` are validated, ``place`` are
    the names of the options that they are in.
    """
    for name, option in options.items():
        value = values.get(name)
        if not value and value is not False:
            continue
        entries = value if isinstance(value, list) else (value,)
        if "int" in (option.get("type"), option.get("elements")) and any(isinstance(one, bool) for one in entries):
            cause = f"{'.'.join((*place, name))} is {str(value).lower()}, and must be a whole number"
            raise DeclarationError("read the declaration", cause=cause, hint="write the number itself")
        if "options" in option:
            for entry in entries:
                refuse_booleans_as_numbers(option["options"], entry, (*place, name))


# --- types ------------------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    return "" if value is None else str(value)


def as_path(value: Any) -> str:
    import os

    return os.path.expanduser(os.path.expandvars(as_text(value)))


def as_bool(value: Any) -> bool:
    if not isinstance(value, (bool, str, int, float)):
        raise TypeError(f"{type(value)} cannot be converted to a bool")
    normal = value.lower().strip() if isinstance(value, str) else value
    if normal in TRUE:
        return True
    if normal in FALSE:
        return False
    raise TypeError(f"The value '{value}' is not a valid boolean")


def as_int(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isdigit() and value.isascii() and len(value) <= MOST_DIGITS:
        return int(value)
    from decimal import Decimal, DecimalException

    try:
        exact = Decimal(value)
        if exact.is_finite() and exact.adjusted() <= MOST_DIGITS and exact == int(exact):
            return int(exact)
    except (DecimalException, TypeError, ValueError):
        pass
    raise TypeError(f'"{value!r}" cannot be converted to an int')


def as_list(value: Any) -> List[Any]:
    if isinstance(value, list):
        return list(value)
    if isinstance(value, str):
        return list(value.split(","))
    if isinstance(value, (int, float)):
        return [str(value)]
    raise TypeError(f"{type(value)} cannot be converted to a list")


def as_dict(value: Any) -> Dict[str, Any]:
    if isinstance(value, dict):
        return dict(value)
    if not isinstance(value, str):
        raise TypeError(f"{type(value)} cannot be converted to a dict")
    if value.startswith("{"):
        return _evaluated(value)
    if "=" in value:
        pairs = [part.partition("=") for part in _parts(value)]
        if all(equals for _name, equals, _value in pairs):
            return {name: text for name, _equals, text in pairs}
        raise TypeError('unable to evaluate string in the "key=value" format as dictionary')
    raise TypeError("dictionary requested, could not parse JSON or key=value")


def as_it_is(value: Any) -> Any:
    return value


TYPES: Mapping[str, Callable[[Any], Any]] = {
    "str": as_text,
    "path": as_path,
    "bool": as_bool,
    "int": as_int,
    "list": as_list,
    "dict": as_dict,
    "raw": as_it_is,
}


def _evaluated(text: str) -> Dict[str, Any]:
    """A dictionary as JSON or Python writes it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        from ast import literal_eval

        try:
            found = literal_eval(text)
        except Exception:
            found = None
    if isinstance(found, dict):
        return found
    raise TypeError("unable to evaluate string as dictionary")


def _parts(text: str) -> List[str]:
    """What commas and blanks separate, but for those behind a backslash or between quotation marks."""
    parts: List[List[str]] = [[]]
    quote: Optional[str] = None
    escaped = False
    for letter in text.strip():
        if escaped:
            parts[-1].append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif quote is None and letter in ("'", '"'):
            quote = letter
        elif letter == quote:
            quote = None
        elif quote is None and letter in (",", " "):
            parts.append([])
        else:
            parts[-1].append(letter)
    return ["".join(part) for part in parts if part]


def _found_in(place: Sequence[str]) -> str:
    return f" found in {' -> '.join(place)}" if place else ""


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(str(value) for value in values)


def _copied(value: Any) -> Any:
    """A default is the specification's own, and must not become somebody's value to change."""
    if isinstance(value, dict):
        return {name: _copied(entry) for name, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list) else value
