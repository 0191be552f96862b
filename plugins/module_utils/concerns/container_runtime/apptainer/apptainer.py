# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apptainer: the directives of apptainer.conf, lines of ``key = value``.

It has no runtimes. ``default`` is its ``always use nv``: every container gets the GPUs as with ``--nv``. Of a directive
with one value the first line counts, and ``bind path`` is a list of all its lines, which may have several with commas.
A directive without a value, or with a # before it, is none. Every command reads the file anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ...._core.errors import CannotLook, DeclarationError, not_understood
from ...._core.regex import regex
from ..model import (
    APPTAINER,
    BIND_PATH,
    Configuration,
    Document,
    Installation,
    SettingName,
    Settings,
    SingleFile,
    WithoutDaemon,
)

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Kind, WantedEngine

PROGRAM = "apptainer"
MAIN = "/etc/apptainer/apptainer.conf"
LOCAL = "/usr/local"
USE_CLI_OPTION, BIND_OPTION = "use_nvidia_container_cli", "bind_paths"
# A switch is called as its directive. Of a bound path the directive is the kind, and the path the name.
ALWAYS_NV, CONTAINER_CLI = SettingName("always use nv"), SettingName("use nvidia-container-cli")
SWITCHES = (ALWAYS_NV, CONTAINER_CLI)
WORDS = {"yes": True, "no": False}
# As its own reader has it (pkg/util/apptainerconf/parser.go). \s there has no \v.
DIRECTIVE = regex(r"^[ \t\n\f\r]*([a-zA-Z _-]+)[ \t]*=[ \t]*(.*)$", re.MULTILINE)


class Apptainer(SingleFile, WithoutDaemon):
    """``model.Kind`` of Apptainer. Its program judges only the file that is in place."""

    engine = APPTAINER

    def find(self, host: Host) -> Optional[Installation]:
        program = host.commands.find(PROGRAM)
        if program is None:
            return None
        main = f"{LOCAL}{MAIN}" if program.startswith(f"{LOCAL}/") else MAIN
        return Installation(APPTAINER, main, program=program)

    def read(self, files: Files, installation: Installation) -> Configuration:
        path = files.resolve(installation.main)
        text = files.read_optional(path)
        if text is None:
            raise CannotLook(
                "read the configuration",
                object=path,
                cause="it does not exist, and Apptainer runs nothing without it",
                hint="install Apptainer with its configuration",
            )
        return Configuration(installation, (Document(path, text),), settings_of(path, text))

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        if wanted.cdi is not None:
            raise DeclarationError(
                "set cdi",
                object=APPTAINER,
                cause="Apptainer knows no CDI in its configuration",
                hint="leave cdi out of this entry",
            )
        binds = [_bind(path) for path in wanted.options.get(BIND_OPTION) or ()]
        if not wanted.present:
            return {**dict.fromkeys(SWITCHES, False), **dict.fromkeys(binds)}
        switches = {ALWAYS_NV: wanted.default, CONTAINER_CLI: wanted.options.get(USE_CLI_OPTION)}
        settings: Dict[SettingName, Any] = {name: value for name, value in switches.items() if value is not None}
        return {**settings, **dict.fromkeys(binds, True)}

    def changed(self, text: str, setting: SettingName, value: Scalar, path: str) -> str:
        if setting.kind != BIND_PATH:
            # A switch that no line says is off, as one that is switched off.
            return _switched(text, setting.kind, "yes" if value else "no")
        return _added(text, BIND_PATH, setting.name) if value else _unbound(text, setting.name)


def _bind(path: str) -> SettingName:
    if not re.fullmatch(r"/[^,\n\r]*", path) or path != path.strip():
        raise DeclarationError(
            "bind a path in {}",
            object=APPTAINER,
            cause=f"in {BIND_OPTION} {path!r} is not an absolute path",
            hint="write it as /data, or as /data:/mnt/data for another place in the container; a comma cannot be in it",
        )
    return SettingName(BIND_PATH, path)


def values(text: str) -> Dict[str, List[str]]:
    """The values of every directive, in the order of their lines."""
    found: Dict[str, List[str]] = {}
    for match in DIRECTIVE.finditer(text):
        value = match[2].strip()
        if value:
            found.setdefault(match[1].strip(), []).extend(value.split(","))
    return found


def settings_of(path: str, text: str) -> Settings:
    found = values(text)
    settings: Dict[SettingName, Any] = {
        switch: _switch(path, text, switch.kind, found.get(switch.kind)) for switch in SWITCHES
    }
    for bind in found.get(BIND_PATH, ()):
        settings[SettingName(BIND_PATH, bind.strip())] = True
    return settings


def _switch(path: str, text: str, name: str, said: Optional[List[str]]) -> bool:
    # Both are off where nothing is said.
    word = said[0] if said else "no"
    if word not in WORDS:
        at = _lines(text, name)[0]
        line = text.count("\n", 0, at.start(1)) + 1
        column = at.start(2) - text.rfind("\n", 0, at.start(2))
        raise not_understood(path, f"line {line}, column {column}: {name} is {word}, and Apptainer takes yes or no")
    return WORDS[word]


def _switched(text: str, name: str, word: str) -> str:
    for match in _lines(text, name):
        return text[: match.start(2)] + word + text[match.start(2) + len(match[2].rstrip()) :]
    return _added(text, name, word)


def _added(text: str, name: str, value: str) -> str:
    """A new line: after the last one of the same directive, else at the end."""
    ending = "\r\n" if "\r\n" in text else "\n"
    line = f"{name} = {value}"
    matches = _lines(text, name)
    # A match ends before the line feed, a carriage return is still in it.
    position = matches[-1].end() + 1 if matches else len(text)
    if position > len(text) or (position == len(text) and text and not text.endswith("\n")):
        return f"{text}{ending}{line}"
    return f"{text[:position]}{line}{ending}{text[position:]}"


def _unbound(text: str, bind: str) -> str:
    """Without this path, wherever it is among the values of its lines."""
    for match in reversed(_lines(text, BIND_PATH)):
        kept = [part for part in match[2].split(",") if part.strip() != bind]
        if len(kept) == len(match[2].split(",")):
            continue
        if kept:
            tail = match[2][len(match[2].rstrip()) :]
            text = text[: match.start(2)] + ",".join(kept).rstrip() + tail + text[match.end(2) :]
        else:
            start = text.rfind("\n", 0, match.start(2)) + 1
            text = text[:start] + text[match.end() + 1 :]
    return text


def _lines(text: str, name: str) -> List[re.Match[str]]:
    """The lines that give the directive a value."""
    return [match for match in DIRECTIVE.finditer(text) if match[1].strip() == name and match[2].strip()]


KIND: Kind = Apptainer()
