# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``daemon.json`` as a text with settings changed."""

from __future__ import annotations

import shlex
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ...._core.setting import Scalar
from ...._text import json_edit, json_text
from ..gpu_operator import refuse
from ..model import DEFAULT_ULIMITS, DOCKER, RUNTIME, Configuration, Edit, SettingName, Settings, WantedEngine
from .meaning import EXEC_OPTS, KEYS


def edit(configuration: Configuration, wanted: WantedEngine, settings: Settings) -> Tuple[Edit, ...]:
    """The same for a declaration. Raises ``OwnedByAnother`` where the GPU Operator writes the file."""
    made = edits(configuration, settings)
    for setting, program in configuration.settings.items() if made and wanted.present else ():
        if setting.kind == RUNTIME:
            refuse(DOCKER, configuration.documents[0].path, str(program), settings.get(setting))
    return made


def edits(configuration: Configuration, settings: Settings) -> Tuple[Edit, ...]:
    """The file with these settings, of which None is one that goes; nothing where it means that already.

    The values are those of ``Configuration.settings``: the baseline can be restored with them.
    """
    document = configuration.documents[0]
    values: Dict[str, Any] = json_text.parse(document.text, document.path)
    text = document.text or ""
    for setting, value in settings.items():
        if configuration.settings.get(setting) != value:
            for path, wanted in _places(setting, value, values):
                text = json_edit.remove(text, path) if wanted is None else json_edit.set_value(text, path, wanted)
            # An object that we leave without a key would say less than nothing.
            outer = KEYS[setting.kind][:1]
            values = json_text.parse(text, document.path)
            if value is None and values.get(outer[0]) == {}:
                text = json_edit.remove(text, outer)
                values = json_text.parse(text, document.path)
    return () if text == (document.text or "") else (Edit(document.path, document.text, text),)


def _places(setting: SettingName, value: Scalar, values: Mapping[str, Any]) -> List[Tuple[Sequence[str], Any]]:
    """What to set where; None removes."""
    kind, name = setting.kind, setting.name
    path = (*KEYS[kind], name) if name else KEYS[kind]
    if value is None:
        return [(path, None)]
    if kind == RUNTIME:
        return _runtime(path, str(value), (values.get("runtimes") or {}).get(name))
    if setting == EXEC_OPTS:
        return [(path, str(value).split(" "))]
    if kind == DEFAULT_ULIMITS:
        soft, _colon, hard = str(value).partition(":")
        return [(path, {"Name": name, "Soft": int(soft), "Hard": int(hard)})]
    return [(path, value)]


def _runtime(path: Sequence[str], value: str, found: Any) -> List[Tuple[Sequence[str], Any]]:
    """A runtime of ours beside what others said of it; with ``runtimeType`` dockerd takes no path."""
    program, *arguments = shlex.split(value) or [""]
    if program.startswith("io.containerd."):
        return [(path, {"runtimeType": program})]
    if not isinstance(found, dict) or "path" not in found or "runtimeType" in found:
        return [(path, {"path": program, "args": arguments} if arguments else {"path": program})]
    made: List[Tuple[Sequence[str], Any]] = [((*path, "path"), program)]
    if (found.get("args") or found.get("runtimeArgs") or []) != arguments:
        made += [((*path, "runtimeArgs"), None), ((*path, "args"), arguments)]
    return made
