# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs of control groups: what units ask for (``AllowedCPUs=``, systemd.resource-control(5)), and what they have.

Of the kernel's two files ``cpuset.cpus`` is what somebody asked for, and ``cpuset.cpus.effective`` what counts: where
nothing of the first can be had, the second is all that the parent has (Documentation/admin-guide/cgroup-v2.rst).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, FrozenSet, Iterator, Optional, Set, Tuple

from . import systemd
from .cpus import FOLDER as CPUS
from .cpus import read_cpus

if TYPE_CHECKING:
    from .._core.protocols import Files

ROOT = "/sys/fs/cgroup"
ASKED, EFFECTIVE = "cpuset.cpus", "cpuset.cpus.effective"
KEY = "Slice.AllowedCPUs"
SYSTEM = "system.slice"


def unavailable(files: Files) -> str:
    """Why ``AllowedCPUs=`` would do nothing on this machine; empty where it works."""
    controllers = files.read_optional(f"{ROOT}/cgroup.controllers")
    if controllers is None:
        return "it has version 1 of control groups, where systemd ignores AllowedCPUs="
    return "" if "cpuset" in controllers.split() else "its control groups have no cpuset controller"


def folder_of(name: str) -> str:
    """The control group of a slice: a dash in its name stands for a parent (systemd.slice(5))."""
    parts = name[: -len(".slice")].split("-")
    return "/".join((ROOT, *(f"{'-'.join(parts[:count])}.slice" for count in range(1, len(parts) + 1))))


def has(name: str, inner: str) -> bool:
    """Whether a slice is another one, or has it."""
    return f"{folder_of(inner)}/".startswith(f"{folder_of(name)}/")


def parse_allowed(text: str) -> Optional[FrozenSet[int]]:
    """A list as systemd reads it (``parse_cpu_set`` of its cpu-set-util.c), None for a line that it ignores.

    It takes commas and blanks, and drops a range that goes backwards.
    """
    found: Set[int] = set()
    for word in text.replace(",", " ").split():
        match = re.fullmatch("([0-9]{1,5})(?:-([0-9]{1,5}))?", word)
        if match is None:
            return None
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def assigned(files: Files, unit: str) -> Iterator[Tuple[str, str]]:
    """Each file that assigns CPUs to a slice, with the value, in the order in which they count."""
    for path in systemd.sources(files, unit) or systemd.drop_ins(files, unit):
        for key, value in systemd.assignments(files.read_optional(path) or ""):
            if key == KEY:
                yield path, value


def allowed(files: Files, unit: str, *, without: str = "") -> FrozenSet[int]:
    """The CPUs that the files give to a slice, none where they do not limit it. Lines add up until an empty one."""
    found: FrozenSet[int] = frozenset()
    for path, value in assigned(files, unit):
        if path != without:
            found = found | (parse_allowed(value) or frozenset()) if value else frozenset()
    return found


def confined_to(files: Files, name: str) -> FrozenSet[int]:
    """The CPUs of a slice, none where it has all that its parent has.

    What it asked for and is offline is among them: the kernel gives that back when it comes online, and nothing else.
    """
    folder = folder_of(name)
    if not files.exists(f"{folder}/{EFFECTIVE}"):
        return frozenset()
    own = read_cpus(files, f"{folder}/{EFFECTIVE}")
    above = read_cpus(files, f"{os.path.dirname(folder)}/{EFFECTIVE}") or read_cpus(files, f"{CPUS}/online")
    offline = read_cpus(files, f"{CPUS}/offline")
    asked = read_cpus(files, f"{folder}/{ASKED}") if offline else frozenset()
    # Without one online it has those of its parent, for as long.
    if asked & own:
        own, above = own | (asked & offline), above | offline
    return frozenset() if own >= above else own


def slice_of(files: Files, unit: str, *, without: str = "") -> str:
    """The slice in which a service starts, by its files; an instance has one for its template by default."""
    said = systemd.unit_lines(files, unit, without=without).get("Service.Slice", ())
    if said:
        return said[-1]
    template, at, _instance = unit.partition("@")
    return f"system-{template}.slice" if at else SYSTEM
