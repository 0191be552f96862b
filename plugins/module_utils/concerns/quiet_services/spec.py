# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of units that shall be quiet, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, Tuple

from ..._core.errors import DeclarationError
from ..._core.nearest import QUESTION, did_you_mean, nearest
from ..._core.value import frozen
from .vital import why_vital

NAME = "quiet_services"
GOAL = "quiet {}"
MASK, DISABLE = "mask", "disable"
KINDS = ("service", "socket", "timer", "path")
OTHER_KINDS = ("mount", "automount", "swap", "device", "target", "slice", "scope")
KEYS = ("name", "distribution", "method", "optional")
# UNIT_NAME_MAX of systemd, without its closing zero.
LONGEST = 255
LEAVE_OUT = "leave it out: a GPU node cannot do without it"


@frozen
class DeclaredUnit:
    """A unit as an entry of the list names it. ``distributions`` are those it is declared for, none for all.

    ``optional``: a machine may lack it.
    """

    name: str
    method: str
    optional: bool
    distributions: Tuple[str, ...]


@frozen
class QuietServicesDeclaration:
    """What is declared. ``known`` are units that ``state: absent`` looks at, ``stop_jobs`` as the option."""

    units: Tuple[DeclaredUnit, ...] = ()
    stop_jobs: bool = False
    known: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> QuietServicesDeclaration:
    """Raises ``DeclarationError`` on what is no unit, and on a unit that every node needs."""
    found: List[DeclaredUnit] = []
    taken: Dict[str, Tuple[str, ...]] = {}
    for index, entry in enumerate(params["units"]):
        for unit in _entry(f"units[{index}]", entry, params["method"]):
            # The first entry counts, unless it is for another distribution.
            if unit.name not in taken or (taken[unit.name] and taken[unit.name] != unit.distributions):
                found.append(unit)
            taken.setdefault(unit.name, unit.distributions)
    return QuietServicesDeclaration(tuple(found), params["stop_jobs"])


def _entry(where: str, entry: Any, method: str) -> Iterator[DeclaredUnit]:
    if not isinstance(entry, Mapping):
        yield DeclaredUnit(_name(where, entry), method, False, ())
        return
    for key in entry:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, otherwise=f"the keys are {', '.join(KEYS)}")
            raise DeclarationError("use {}", object=where, cause=f"there is no key {key}", hint=hint)
    names = _texts(where, "name", entry.get("name"))
    distributions = _texts(where, "distribution", entry["distribution"]) if entry.get("distribution") else ()
    own, optional = entry.get("method", method), entry.get("optional", False)
    if own not in (MASK, DISABLE):
        raise DeclarationError("use {}", object=where, cause=f"method is {own!r}, and must be {MASK} or {DISABLE}")
    if not isinstance(optional, bool):
        raise DeclarationError("use {}", object=where, cause=f"optional is {optional!r}, and must be true or false")
    for name in names:
        yield DeclaredUnit(_name(where, name), own, optional, distributions)


def _texts(where: str, key: str, value: Any) -> Tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        cause = f"{key} is {value!r}, and must be a string or a list of strings"
        raise DeclarationError("use {}", object=where, cause=cause)
    return tuple(texts)


def _name(where: str, name: Any) -> str:
    if not isinstance(name, str) or len(name) > LONGEST or not re.fullmatch(r"[A-Za-z0-9:_.\\@-]+", name):
        raise DeclarationError("use {}", object=where, cause=f"{name!r} is not the name of a unit")
    stem, _dot, kind = name.rpartition(".")
    if kind not in KINDS or not stem:
        cause = f"{name!r} does not end in .{', .'.join(KINDS[:-1])} or .{KINDS[-1]}"
        hint = "" if kind in OTHER_KINDS else f"write {name}.service, if it is a service"
        near = nearest(kind, KINDS)
        if stem and near:
            hint = f"{QUESTION} {stem}.{near}"
        raise DeclarationError("use {}", object=where, cause=cause, hint=hint)
    if stem.endswith("@"):
        cause = f"{name!r} is a template, of which only the instances start"
        raise DeclarationError("use {}", object=where, cause=cause, hint=f"name an instance, such as {stem}1.{kind}")
    refuse_vital(name)
    return name


def refuse_vital(name: str) -> None:
    """Raise ``DeclarationError`` for a unit that a node needs."""
    reason = why_vital(name)
    if reason:
        raise DeclarationError(GOAL, object=name, cause=reason, hint=LEAVE_OUT)
