# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of the active profile of tuned.

As in tuned 2.20 and after: profiles/loader.py, merger.py, unit.py and variables.py, and plugins/base.py.
"""

from __future__ import annotations

import re
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.value import frozen
from .foreign_files import foreign

if TYPE_CHECKING:
    from .._core.protocols import Files
    from .shell_writes import ShellWrite

ACTIVE, POST_LOADED = "/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile"
ENABLED = "/etc/systemd/system/multi-user.target.wants/tuned.service"
MAIN = "/etc/tuned/tuned-main.conf"
FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
SCRIPT = "script"

_Line = Tuple[str, int, str]
_Units = Dict[str, Dict[str, _Line]]
_TRUE = ("True", "true", "1")
# Those that a later section of the same name sets again, also where it does not have them.
_OF_SECTION = ("type", "enabled", "devices")
_NO_OPTIONS = (*_OF_SECTION, "replace", "prepend", "priority", "drop", "script_pre", "script_post")
# A section with one of these is only for machines or devices that agree.
_CONDITIONS = ("devices_udev_regex", "cpuinfo_regex", "uname_regex")
_FOLDER = "${i:PROFILE_DIR}"
_PROCESS = regex(r"^\s*process\s+[\"']?\$[@*1]", re.MULTILINE)


@frozen
class Option:
    """One option that counts, with the line that says it. ``plugin`` is the type of its section, mostly its name.

    ``devices`` is what the section says of the devices it is for, all of them where it says nothing. What tuned works
    out at run time (``${f:...}``) stays in ``value`` as it is written. ``conditional``: the section may not be for this
    machine, or not for all these devices.
    """

    path: str
    line: int
    section: str
    plugin: str
    devices: str
    key: str
    value: str
    conditional: bool = False


@frozen
class Script:
    """A script that tuned runs with ``start`` when it loads the profile, and the variables that it gives it."""

    path: str
    conditional: bool
    variables: Tuple[Tuple[str, str], ...]


def read_active(files: Files) -> Tuple[Option, ...]:
    """What the active profile of an enabled tuned sets: it does so whenever it starts, after everybody else at boot."""
    return read_profiles(foreign(files), _active(files))


def _active(files: Files) -> List[str]:
    active = files.read_optional(ACTIVE)
    if not active or not files.exists(ENABLED):
        return []
    return [*active.split(), *(files.read_optional(POST_LOADED) or "").split()]


def read_scripts(files: Files) -> Tuple[Script, ...]:
    """The scripts of the active profile of an enabled tuned, those of included profiles first."""
    units, variables = _merged(files, _active(files))
    given = tuple((f"TUNED_{name}", _expand(value, variables)) for name, value in variables.items())
    return tuple(
        Script(path, option.conditional, given)
        for option in _options(units, variables)
        if option.plugin == option.key == SCRIPT
        for path in option.value.split("\n")
        # tuned runs no others (_safe_script_path).
        if path.startswith(FOLDERS)
    )


def read_script(script: Script, text: str) -> Tuple[ShellWrite, ...]:
    """The writes of a script of this text, in which ``process`` of /usr/lib/tuned/functions calls the function that its
    argument names.
    """
    from . import shell_writes

    calls = {"start": True, "stop": False, "verify": False} if _PROCESS.search(text) else {}
    return shell_writes.read_script(text, {**dict(script.variables), "1": "start"}, calls=calls)


def reapplies_sysctl(files: Files) -> bool:
    """Whether tuned applies sysctl.d of /run and /etc, and /etc/sysctl.conf, again behind the keys of a profile."""
    said = re.findall(r"^\s*reapply_sysctl\s*=\s*(\S+)", files.read_optional(MAIN) or "", re.MULTILINE)
    return not said or said[-1].lower() in ("1", "true", "yes", "on")


def modified(value: str, before: Optional[str]) -> Optional[str]:
    """The value behind an option, None where it leaves the one before it: ``>`` and ``<`` in front of a number
    only write what is larger or smaller (``_process_assignment_modifiers``).
    """
    sign, text = value[:1], value[1:]
    if sign not in ("<", ">") or not text:
        return value
    if before is None:
        return text
    try:
        number, known = int(text), int(before)
    except ValueError:
        return value
    return text if (number > known if sign == ">" else number < known) else None


def read_profiles(files: Files, names: Sequence[str]) -> Tuple[Option, ...]:
    """What these profiles set together, includes and variables resolved.

    As tuned merges them: sections of the same name become one, in which the later option counts; one that says
    ``replace`` starts anew. Variables get their values when all is merged.
    """
    return tuple(_options(*_merged(files, names)))


def _merged(files: Files, names: Sequence[str]) -> Tuple[_Units, Dict[str, str]]:
    units: _Units = {}
    _read(files, names, units, [])
    variables = _variables(files, units.pop("variables", {}))
    units.pop("main", None)
    return units, variables


def _variables(files: Files, options: Dict[str, _Line]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for key, (_path, _line, value) in options.items():
        if key != "include":
            found[key] = value
            continue
        path = normpath(_expand(value, found))
        lines = _parse(path, f"[{key}]\n{files.read_optional(path) or ''}").get(key, {})
        found.update((name, text) for name, (_path, _line, text) in lines.items())
    return found


def _options(units: _Units, variables: Dict[str, str]) -> List[Option]:
    found: List[Option] = []
    for section, options in units.items():
        said = {key: _expand(value, variables) for key, (_path, _line, value) in options.items()}
        if said.get("enabled", "1") not in _TRUE:
            continue
        plugin, devices = said.get("type", section), said.get("devices", "*")
        conditional = any(key in options for key in _CONDITIONS)
        for key, (path, line, _value) in options.items():
            if key not in _NO_OPTIONS:
                # plugin_sysctl takes quotes off, others keep them.
                value = re.sub(r'^"(.*)"$', r"\1", said[key]) if plugin == "sysctl" else said[key]
                found.append(Option(path, line, section, plugin, devices, key, value, conditional))
    return found


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
            replaces = options.get("replace", ("", 0, ""))[2] in _TRUE
            units[section] = _joined({} if replaces else units.get(section, {}), options, section)


def _joined(earlier: Dict[str, _Line], options: Dict[str, _Line], section: str) -> Dict[str, _Line]:
    """A section with those of a later profile: an option keeps its place, and scripts are run one after the other."""
    dropped = re.split(r"\s*[,;]\s*", options["drop"][2]) if "drop" in options else []
    unit = {key: line for key, line in earlier.items() if key not in (*_OF_SECTION, *dropped)}
    for key, (path, line, value) in options.items():
        before = unit[key][2] if key == section == SCRIPT and key in unit else ""
        unit[key] = (path, line, f"{before}\n{value}" if before else value)
    return unit


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
            value = value.replace(_FOLDER, dirname(path))
            if key == SCRIPT:
                value = normpath(join(dirname(path), value))
            units.setdefault(section, {})[key] = (path, number, value)
    return units


def _expand(text: str, variables: Dict[str, str]) -> str:
    for _depth in range(8):
        expanded = re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], match[0]), text)
        if expanded == text:
            break
        text = expanded
    return text
