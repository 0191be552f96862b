# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit of NVIDIA: /etc/nvidia-container-runtime/config.toml, which its runtime reads at every container.

Keys that nobody declared stay, known or not: the package adds some at an update (``nvidia-ctk config --in-place``).
A key that is not in the file has the toolkit's default. Settings are called as the keys, dotted from the top.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional

from ...._core.errors import Refused
from ..entries import TOOLKIT
from ..merged_toml import read_layer
from ..model import Configuration, Installation, SettingName, Settings, SingleFile, WithoutDaemon
from .options import FROM_CONTAINER, KEYS, LDCONFIG, TEXTS, as_scalar, flat, wrong

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Kind, WantedEngine

PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime")
MAIN = "/etc/nvidia-container-runtime/config.toml"


class Toolkit(SingleFile, WithoutDaemon):
    """As ``model.Kind``, for the one file of the toolkit. ``WantedEngine.options`` is what ``declared`` makes.

    Its programs take every file that is TOML, and skip what they do not know: ``declared`` looks closer.
    """

    engine = TOOLKIT

    def find(self, host: Host) -> Optional[Installation]:
        program = next(filter(None, (host.commands.find(name) for name in PROGRAMS)), None)
        return None if program is None else Installation(TOOLKIT, MAIN, program=program)

    def read(self, files: Files, installation: Installation) -> Configuration:
        layer = read_layer(files, installation.main)
        settings = {SettingName(key): as_scalar(value) for key, value in flat(layer.data)}
        return Configuration(installation, (layer.document,), settings)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        settings = {SettingName(key): as_scalar(value) for key, value in wanted.options.items()}
        result = {**configuration.settings, **settings}
        ldconfig, from_container = result.get(SettingName(LDCONFIG)), result.get(SettingName(FROM_CONTAINER))
        if LDCONFIG in wanted.options and ldconfig and not str(ldconfig).startswith("@") and not from_container:
            raise wrong(
                LDCONFIG,
                f"{ldconfig} is a path in the container, and the toolkit runs that only with {FROM_CONTAINER}",
                f"write it as @{ldconfig} for the one of this machine",
            )
        return settings

    def changed(self, text: str, setting: SettingName, value: Scalar, path: str) -> str:
        """Raises ``Refused`` where the text does not take it."""
        from ...._text.toml_edit import TomlEditError, remove, set_value

        keys = tuple(setting.kind.split("."))
        try:
            return remove(text, keys) if value is None else set_value(text, keys, _typed(setting.kind, value))
        except TomlEditError as error:
            raise Refused(f"set {setting}", object=path, cause=str(error), hint="edit the file by hand") from error


def _typed(name: str, value: Scalar) -> Any:
    """The value of a setting as the file has it: a list is its text there. One that others wrote may be no list."""
    if not isinstance(value, str) or not value.startswith("[") or KEYS.get(name, TEXTS) != TEXTS:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


KIND: Kind = Toolkit()
