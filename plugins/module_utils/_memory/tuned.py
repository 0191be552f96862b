# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What profiles of tuned set. Imported only on a machine that runs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from .owners import SYSCTL_KNOB, THP, Assignment

if TYPE_CHECKING:
    from .._host.protocols import Files

FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
POLICY = ("transparent_hugepages", "transparent_hugepage")


def read_profiles(files: Files, names: Sequence[str]) -> Tuple[Assignment, ...]:
    """What these profiles set together, includes resolved: what comes later replaces what came before."""
    found: Dict[str, Assignment] = {}
    for name in names:
        _read_profile(files, name, found, depth=0)
    return tuple(found.values())


def _read_profile(files: Files, name: str, found: Dict[str, Assignment], *, depth: int) -> None:
    for folder in FOLDERS:
        path = f"{folder}/{name}/tuned.conf"
        text = files.read_optional(path)
        if text is not None:
            break
    else:
        return
    section = ""
    variables: Dict[str, str] = {}
    mine: List[Assignment] = []
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"\s*\[(.+)\]", line)
        section = heading[1] if heading else section
        key, equals, value = (part.strip() for part in line.partition("="))
        if heading or not equals or key.startswith(("#", ";")):
            continue
        value = re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], match[0]), value)
        if section == "main" and key == "include" and depth < 8:
            for parent in re.split(r"[,;\s]+", value):
                _read_profile(files, parent.lstrip("-"), found, depth=depth + 1)
        elif section == "variables":
            variables[key] = value
        else:
            knob = _tuned_knob(section, key)
            if knob:
                mine.append(Assignment("tuned", path, number, knob, value))
    found.update((assignment.knob, assignment) for assignment in mine)


def _tuned_knob(section: str, key: str) -> str:
    if section == "vm":
        return f"{THP}/enabled" if key in POLICY else ""
    if section == "sysctl":
        return SYSCTL_KNOB if key == "vm.nr_hugepages" else ""
    return key if section == "sysfs" and "hugepage" in key else ""
