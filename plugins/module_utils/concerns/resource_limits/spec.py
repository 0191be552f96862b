# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the limits of sessions and services, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, Iterator, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._kinds.own_files import FilesDeclaration, Key
from ..._kinds.service_values import DEFAULT
from ..._linux.systemd import is_service, is_template
from ..._linux.systemd_numbers import INFINITY

# The asterisk of limits.conf(5) does not mean root, who gets lines of his own.
ALL_USERS, ROOT = "*", "root"
SOFT, HARD = "soft", "hard"
TYPES = (SOFT, HARD)
UNLIMITED = "unlimited"
ITEMS = ("memlock", "nofile", "nproc", "rtprio")
KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}
HIGHEST_PRIORITY = 99
VALID = {
    "memlock": "a size with a unit (K, M, G or T), or unlimited",
    "nofile": "a number, such as 1048576",
    "nproc": "a number, or unlimited",
    "rtprio": f"a number from 0 to {HIGHEST_PRIORITY}",
}


@frozen
class LimitsDeclaration(FilesDeclaration):
    """What is declared of sessions, and of services: what systemd shall give each by default, and named ones.

    ``services`` has soft and hard limit as ``soft:hard`` by unit and item; the unit is ``DEFAULT`` for all of them.
    ``optional`` are units that a machine may lack.
    """

    services: Mapping[Key, Optional[str]] = field(default_factory=dict)
    optional: FrozenSet[str] = frozenset()


def parse(params: Mapping[str, Any]) -> LimitsDeclaration:
    """Raises ``DeclarationError`` on a limit that no machine could have."""
    values: Dict[Key, Optional[str]] = {}
    for item, soft, hard in _limits("sessions", params["sessions"] or {}):
        for domain in (ALL_USERS, ROOT):
            values.update({(domain, f"{SOFT} {item}"): soft, (domain, f"{HARD} {item}"): hard})
    services: Dict[Key, Optional[str]] = {}
    for item, soft, hard in _limits("services", params["services"] or {}):
        services[(DEFAULT, item)] = f"{_of_systemd(item, soft)}:{_of_systemd(item, hard)}"
    optional = set()
    for index, entry in enumerate(params["units"]):
        where, name = f"units[{index}]", entry["name"]
        if not is_service(name) or is_template(name):
            cause = f"{name!r} is not the name of a service"
            raise DeclarationError("use {}", object=where, cause=cause, hint="write it as slurmd.service")
        found = list(_limits(where, entry))
        if not found:
            raise DeclarationError("use {}", object=where, cause=f"no limit of {name} is set", hint="set one")
        for item, soft, hard in found:
            if (name, item) in services:
                raise DeclarationError("use {}", object=where, cause=f"{item} of {name} is set twice")
            services[(name, item)] = f"{_of_systemd(item, soft)}:{_of_systemd(item, hard)}"
        if entry["optional"]:
            optional.add(name)
    if not values and not services:
        raise DeclarationError(
            "read the declaration",
            cause="no limit is set in sessions, services or units",
            hint="set at least one limit, such as sessions: {memlock: unlimited}, or state: absent",
        )
    return LimitsDeclaration(values, services, frozenset(optional))


def _limits(where: str, declared: Mapping[str, Any]) -> Iterator[Tuple[str, str, str]]:
    """The items that are declared, each with its soft and its hard limit."""
    for item in ITEMS:
        text = declared.get(item)
        if text is None:
            continue
        soft, hard = (
            _limit(where, item, part.strip()) for part in (text.split(":") if text.count(":") == 1 else (text, text))
        )
        if _number(soft) > _number(hard):
            hint = "lower the soft limit, or raise the hard one"
            raise _wrong(where, item, "the soft limit is above the hard one", text, hint)
        yield item, soft, hard


def _of_systemd(item: str, limit: str) -> str:
    """A limit of limits.conf(5) as systemd shows it: memory in bytes."""
    if limit == UNLIMITED:
        return INFINITY
    return str(int(limit) * 1024) if item == "memlock" else limit


def _limit(where: str, item: str, text: str) -> str:
    """A limit as limits.conf(5) has it: memory in KiB."""
    if text == UNLIMITED and item in ("memlock", "nproc"):
        return text
    size = re.fullmatch(r"([0-9]{1,12})([KMGT])(?:i?B)?", text)
    if item == "memlock" and size:
        return str(int(size[1]) * KIB[size[2]])
    if item == "memlock" or not re.fullmatch(r"[0-9]{1,12}", text):
        raise _wrong(where, item, f"the limit is not {VALID[item]}", text, f"set {VALID[item]}")
    if item == "rtprio" and int(text) > HIGHEST_PRIORITY:
        raise _wrong(where, item, f"the highest priority is {HIGHEST_PRIORITY}", text, f"set {VALID[item]}")
    return str(int(text))


def _number(limit: str) -> float:
    return float("inf") if limit == UNLIMITED else int(limit)


def _wrong(where: str, item: str, cause: str, wanted: str, hint: str) -> DeclarationError:
    return DeclarationError("set {}", object=f"{where}.{item}", cause=cause, wanted=wanted, hint=hint)
