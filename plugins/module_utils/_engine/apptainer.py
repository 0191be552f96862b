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
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .._core.errors import CannotLook, DeclarationError
from .model import APPTAINER, Configuration, Document, Installation, Settings, WithoutDaemon, not_understood

if TYPE_CHECKING:
    from .._host.protocols import Files, Host
    from .model import Edit, WantedEngine

PROGRAM = "apptainer"
MAIN = "/etc/apptainer/apptainer.conf"
LOCAL = "/usr/local"

ALWAYS_NV, CONTAINER_CLI, BIND_PATH = "always use nv", "use nvidia-container-cli", "bind path"
SWITCHES = (ALWAYS_NV, CONTAINER_CLI)
WORDS = {"yes": True, "no": False}
BIND = f"{BIND_PATH} "
USE_CLI_OPTION, BIND_OPTION = "use_nvidia_container_cli", "bind_paths"

# As its own reader has it (pkg/util/apptainerconf/parser.go). \s there has no \v.
DIRECTIVE = re.compile(r"^[ \t\n\f\r]*([a-zA-Z _-]+)[ \t]*=[ \t]*(.*)$", re.MULTILINE)


class Apptainer(WithoutDaemon):
    """``model.Kind`` of Apptainer. ``Configuration.parsed`` is the text."""

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
                cause="it is not there, and Apptainer runs nothing without it",
                hint="install Apptainer with its configuration",
            )
        return Configuration(installation, (Document(path, text),), _settings(path, text), parsed=text)

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
        settings: Dict[str, Any] = {name: value for name, value in switches.items() if value is not None}
        return {**settings, **dict.fromkeys(binds, True)}

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        return self.give_back(configuration, self.wanted(wanted, configuration))

    def give_back(self, configuration: Configuration, found: Settings) -> Tuple[Edit, ...]:
        from . import apptainer_edit

        return apptainer_edit.edit(configuration, found)

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        # Its program judges only the file that is in place.
        return None


def values(text: str) -> Dict[str, List[str]]:
    """The values of every directive, in the order of their lines."""
    found: Dict[str, List[str]] = {}
    for match in DIRECTIVE.finditer(text):
        value = match[2].strip()
        if value:
            found.setdefault(match[1].strip(), []).extend(value.split(","))
    return found


def _settings(path: str, text: str) -> Settings:
    found = values(text)
    settings: Dict[str, Any] = {name: _switch(path, text, name, found.get(name)) for name in SWITCHES}
    for bind in found.get(BIND_PATH, ()):
        settings[f"{BIND}{bind.strip()}"] = True
    return settings


def _switch(path: str, text: str, name: str, said: Optional[List[str]]) -> bool:
    # Both are off where nothing is said.
    word = said[0] if said else "no"
    if word not in WORDS:
        at = next(match for match in DIRECTIVE.finditer(text) if match[1].strip() == name and match[2].strip())
        line = text.count("\n", 0, at.start(1)) + 1
        column = at.start(2) - text.rfind("\n", 0, at.start(2))
        raise not_understood(path, f"line {line}, column {column}: {name} is {word}, and Apptainer takes yes or no")
    return WORDS[word]


def _bind(path: str) -> str:
    if not re.fullmatch(r"/[^,\n\r]*", path) or path != path.strip():
        raise DeclarationError(
            "bind a path",
            object=APPTAINER,
            cause=f"in {BIND_OPTION} {path!r} is no absolute path",
            hint="write it as /data, or as /data:/mnt/data for another place in the container; a comma cannot be in it",
        )
    return f"{BIND}{path}"


KIND = Apptainer()
