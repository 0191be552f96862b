# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A configuration of several TOML files brought to other settings, through the drop-in file that is ours.

Other files are touched only where nothing else helps: to take a value away that they give.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, List, Mapping, Sequence, Tuple

from ..._core.errors import OwnedByAnother, Refused
from ..._core.setting import Scalar
from ..._text.nested import get, put
from ..._text.toml_edit import TomlEditError, dump, remove
from .merged_toml import HEADER, Keys, Layer, MergedToml, make_layer, missing_dirs
from .model import CDI, DEFAULT_RUNTIME, RUNTIME, Configuration, Document, Edit, SettingName, Settings, shown


def bring(kind: MergedToml, configuration: Configuration, target: Settings, *, tidy: bool) -> Tuple[Edit, ...]:
    """The edits after which the settings in ``target`` have its values; None in it is a value that no file gives.

    ``tidy``: on the way back, where our file goes and what others say is left to them.
    Raises ``OwnedByAnother`` where a file that is read after ours says something else, and ``Refused`` where a text
    takes no edit.
    """
    layers: Sequence[Layer] = configuration.parsed
    ours = configuration.installation.drop_in
    now = list(layers)
    for setting, value in target.items():
        if tidy or kind.settings_of(now).get(setting) != value:
            now = _brought(kind, now, ours, setting=setting, value=value, tidy=tidy)
    result = kind.settings_of(now)
    for setting, value in target.items():
        # Taken out is as near as files get to a value that came from a file of others that is gone.
        if value is not None and result.get(setting) != value and not tidy:
            raise _overruled(kind, now, ours, setting=setting, value=value, found=result.get(setting))
    return _edits(layers, now)


def take_out(kind: MergedToml, configuration: Configuration, name: str) -> Tuple[Edit, ...]:
    """The edits after which no file has the runtime, nor names it as the default. Our file goes."""
    places, layers = kind.places, configuration.parsed
    now = []
    for layer in layers:
        if layer.name == configuration.installation.drop_in:
            now.append(_our_file(layer, {}))
            continue
        is_default = layer.value(places.default, str) == name
        without = _removed(layer, places.default) if is_default else layer
        now.append(_removed(without, places.keys(SettingName(RUNTIME, name))))
    return _edits(layers, now)


def _edits(layers: Sequence[Layer], now: Sequence[Layer]) -> Tuple[Edit, ...]:
    return tuple(
        Edit(before.document.path, before.document.text, after.document.text)
        for before, after in zip(layers, now)
        if before.document.text != after.document.text
    )


def _brought(
    kind: MergedToml, layers: List[Layer], ours: str, *, setting: SettingName, value: Scalar, tidy: bool
) -> List[Layer]:
    keys = kind.places.keys(setting)
    others = [layer for layer in layers if layer.name != ours]
    right = kind.settings_of(others).get(setting) == value
    theirs = tidy and any(layer.value(keys, object) is not None for layer in others)
    written = None if right or theirs or value is None else _written(kind, setting, value, others)
    goes = value is None and not right and not theirs
    now: List[Layer] = []
    for layer in layers:
        if layer.name == ours:
            now.append(_with(layer, keys, written))
        else:
            now.append(_removed(layer, keys) if goes else layer)
    return now


def _written(kind: MergedToml, setting: SettingName, value: Scalar, others: Sequence[Layer]) -> Any:
    """What our file has to have; None where no file can bring it about."""
    if setting == CDI:
        dirs = kind.spec_dirs(others)
        # Not added to what is there, for a reader of version 4 knows no attributes.
        return [*dirs, *missing_dirs(dirs)] if value else None
    return value if setting == DEFAULT_RUNTIME else kind.entry(setting.name, str(value), others)


def _with(layer: Layer, keys: Keys, value: Any) -> Layer:
    """Our file with a value at these keys; None takes it away, with the tables that nothing is left in."""
    if get(layer.data, keys) is None and value is None:
        return layer
    data = deepcopy(dict(layer.data))
    put(data, keys, value)
    return _our_file(layer, data)


def _our_file(layer: Layer, data: Mapping[str, Any]) -> Layer:
    text = HEADER + dump(data) if data else None
    return make_layer(layer.name, Document(layer.document.path, text))


def _removed(layer: Layer, keys: Keys) -> Layer:
    """A file of others without what it says at these keys; the rest of its text stays as it is."""
    if layer.value(keys, object) is None:
        return layer
    try:
        text = remove(layer.document.text or "", keys)
    except TomlEditError as error:
        raise Refused(
            f"remove {'.'.join(keys)}",
            object=layer.document.path,
            cause=str(error),
            hint="remove it by hand; nothing was changed",
        ) from error
    return make_layer(layer.name, Document(layer.document.path, text))


def _overruled(
    kind: MergedToml, layers: Sequence[Layer], ours: str, *, setting: SettingName, value: Scalar, found: Scalar
) -> OwnedByAnother:
    keys = kind.places.keys(setting)
    others = [layer for layer in layers if layer.name != ours and layer.value(keys, object) is not None]
    return OwnedByAnother(
        f"set {setting}",
        object=others[-1].document.path,
        cause=f"this file is read after {ours} and overrides it",
        found=shown(found),
        wanted=shown(value),
        hint="remove it from that file, or let the file come earlier in the order of names",
    )
