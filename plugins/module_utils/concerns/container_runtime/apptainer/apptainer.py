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
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from ...._core.errors import CannotLook, DeclarationError
from ..model import (
    APPTAINER,
    BIND_PATH,
    Configuration,
    Document,
    Installation,
    SettingName,
    Settings,
    WithoutDaemon,
)
from .meaning import ALWAYS_NV, CONTAINER_CLI, SWITCHES, settings_of

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ..model import Edit, WantedEngine

PROGRAM = "apptainer"
MAIN = "/etc/apptainer/apptainer.conf"
LOCAL = "/usr/local"
USE_CLI_OPTION, BIND_OPTION = "use_nvidia_container_cli", "bind_paths"


class Apptainer(WithoutDaemon):
    """``model.Kind`` of Apptainer. ``Configuration.parsed`` is the text.

    Its program judges only the file that is in place.
    """

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
        return Configuration(installation, (Document(path, text),), settings_of(path, text), parsed=text)

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

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        from . import edit

        return edit.edit(configuration, baseline)


def _bind(path: str) -> SettingName:
    if not re.fullmatch(r"/[^,\n\r]*", path) or path != path.strip():
        raise DeclarationError(
            "bind a path in {}",
            object=APPTAINER,
            cause=f"in {BIND_OPTION} {path!r} is not an absolute path",
            hint="write it as /data, or as /data:/mnt/data for another place in the container; a comma cannot be in it",
        )
    return SettingName(BIND_PATH, path)


KIND = Apptainer()
