# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the active profile of tuned sets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Files

ACTIVE = "/etc/tuned/active_profile"
ENABLED = "/etc/systemd/system/multi-user.target.wants/tuned.service"
MAIN = "/etc/tuned/tuned-main.conf"
FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")

_Line = Tuple[str, int, str]
_Units = Dict[str, Dict[str, _Line]]


@frozen
class Option:
    """One option that counts, with the line that says it. ``plugin`` is the type of its section, mostly its name.

    ``devices`` is what the section says of the devices it is for, all of them where it says nothing. What tuned works
    out at run time (``${f:...}``) stays in ``value`` as it is written.
    """

    path: str
    line: int
    section: str
    plugin: str
    devices: str
    key: str
    value: str


def read_active(files: Files) -> Tuple[Option, ...]:
    """What the active profile of an enabled tuned sets: it does so whenever it starts, after everybody else at boot."""
    active = files.read_optional(ACTIVE)
    if not active or not files.exists(ENABLED):
        return ()
    return read_profiles(files, active.split())


def reapplies_sysctl(files: Files) -> bool:
    """Whether tuned applies sysctl.d of /run and /etc, and /etc/sysctl.conf, again behind the keys of a profile."""
    said = re.findall(r"^\s*reapply_sysctl\s*=\s*(\S+)", files.read_optional(MAIN) or "", re.MULTILINE)
    return not said or said[-1].lower() in ("1", "true", "yes", "on")


def read_profiles(files: Files, names: Sequence[str]) -> Tuple[Option, ...]:
    """What these profiles set together, includes and variables resolved.

    As tuned merges them: sections of the same name become one, in which the later option counts; one that says
    ``replace`` starts anew. Variables get their values when all is merged.
    """
    units: _Units = {}
    _read(files, names, units, [])
    variables = {key: value for key, (_path, _line, value) in units.pop("variables", {}).items()}
    units.pop("main", None)
    found: List[Option] = []
    for section, options in units.items():
        said = {key: _expand(value, variables) for key, (_path, _line, value) in options.items()}
        if said.get("enabled", "1").lower() in ("0", "false", "no", "off"):
            continue
        plugin, devices = said.get("type", section), said.get("devices", "*")
        found.extend(
            Option(path, line, section, plugin, devices, key, said[key])
            for key, (path, line, _value) in options.items()
            if key not in ("type", "devices", "enabled", "replace")
        )
    return tuple(found)


def _read(files: Files, names: Sequence[str], units: _Units, read: List[str]) -> None:
    for name in names:
        # A profile may include one of its own name from a weaker folder; none is read twice.
        places = (f"{folder}/{name.lstrip('-')}/tuned.conf" for folder in FOLDERS)
        path = next((place for place in places if place not in read and files.exists(place)), None)
        if not name or path is None:
            continue
        read.append(path)
        mine = _parse(path, files.read(path))
        parents = mine.get("main", {}).get("include")
        if parents is not None:
            own = {key: value for key, (_path, _line, value) in mine.get("variables", {}).items()}
            _read(files, re.split(r"[,;\s]+", _expand(parents[2], own)), units, read)
        for section, options in mine.items():
            if options.get("replace", ("", 0, ""))[2].lower() in ("1", "true", "yes", "on"):
                units.pop(section, None)
            unit = units.setdefault(section, {})
            for key, line in options.items():
                # Last, also where an earlier profile has it: of two keys for the same thing the later one counts.
                unit.pop(key, None)
                unit[key] = line


def _parse(path: str, text: str) -> _Units:
    units: _Units = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"\s*\[([^\]]+)\]", line)
        if heading:
            section = heading[1]
            continue
        key, equals, value = (part.strip() for part in re.sub(r"\s#.*", "", line).partition("="))
        if equals and not key.startswith(("#", ";")):
            units.setdefault(section, {})[key] = (path, number, value)
    return units


def _expand(text: str, variables: Dict[str, str]) -> str:
    for _depth in range(8):
        expanded = re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], match[0]), text)
        if expanded == text:
            break
        text = expanded
    return text
