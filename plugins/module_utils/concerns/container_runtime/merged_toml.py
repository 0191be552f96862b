# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that are several TOML files, read one after the other, with one drop-in file of ours among them.

So CRI-O and Podman read theirs: a later value replaces an earlier one, and where a table maps names to something (the
runtimes) a later entry replaces the whole earlier one of that name (``unifyMap`` of BurntSushi/toml, which both use).
A key may be in any case, but for those names. With two spellings of one key in a file either may count, for Go goes
through them in no order (``unifyStruct`` of its decode.go, in CRI-O's vendored copy).

They are brought to other settings through the drop-in file that is ours. Other files are touched only where nothing
else helps: to take a value away that they give.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import DeclarationError, OwnedByAnother, Refused, not_understood
from ..._core.value import field, frozen
from ..._text.nested import get, put
from ..._text.toml_text import TomlError, parse
from .model import CDI, DEFAULT_RUNTIME, NAME, RUNTIME, SPEC_DIRS, Document, Edit, Kind, SettingName, shown

if TYPE_CHECKING:
    from ..._core.errors import CannotLook
    from ..._core.protocols import Files
    from ..._core.setting import Scalar
    from .model import Configuration, Settings, WantedEngine

Keys = Tuple[str, ...]
HEADER = f"# Written by gpufleet.node, module {NAME}. A change made here is overwritten by the next run.\n"


@frozen
class Layer:
    """One of the files, by the name that the engine reads, and what it says; nothing where it is not there.

    ``names`` is the table whose keys are names, which have one spelling.
    """

    name: str
    document: Document
    data: Mapping[str, Any] = field(default_factory=dict)
    names: Keys = ()

    def value(self, keys: Keys, kind: type) -> Any:
        """What it says at these keys, None where it says nothing. Raises ``CannotLook`` where it is no ``kind``."""
        found: Any = self.data
        for key in self.spelled(keys):
            if key not in found:
                return None
            found = found[key]
        if not isinstance(found, kind):
            raise self._strange(keys, found, kind)
        return found

    def spelled(self, keys: Keys) -> Keys:
        """The keys as they are written. Raises ``CannotLook`` where one is there in two spellings."""
        made: List[str] = []
        found: Any = self.data
        for depth, key in enumerate(keys):
            if not isinstance(found, dict):
                raise self._strange(keys[:depth], found, dict)
            alike = [key] if keys[:depth] == self.names else [one for one in found if one.lower() == key.lower()]
            if len(alike) > 1:
                cause = f"{' and '.join(alike)} are the same key in other case, and either may count: keep one"
                raise not_understood(self.document.path, cause)
            made += alike or [key]
            found = found.get(made[-1], {})
        return tuple(made)

    def texts(self, keys: Keys) -> Optional[List[Any]]:
        """The same for a list of strings; items that are tables are Podman's attributes and stay as they are."""
        found: Optional[List[Any]] = self.value(keys, list)
        for item in found or ():
            if not isinstance(item, (str, dict)):
                raise self._strange(keys, item, str)
        return found

    def _strange(self, keys: Keys, found: Any, kind: type) -> CannotLook:
        name, there = ".".join(keys), _KINDS.get(type(found), "of another kind")
        return not_understood(self.document.path, f"{name} is {there}, and has to be {_KINDS[kind]}")


_KINDS: Dict[type, str] = {
    dict: "a table",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def read_layer(files: Files, name: str, names: Keys = ()) -> Layer:
    """Raises ``CannotLook`` with line and column for a file that is not TOML."""
    path = files.resolve(name)
    text = files.read_optional(path)
    return make_layer(name, Document(path, text), names)


def make_layer(name: str, document: Document, names: Keys = ()) -> Layer:
    if document.text is None:
        return Layer(name, document, names=names)
    try:
        return Layer(name, document, parse(document.text).data, names)
    except TomlError as error:
        raise not_understood(document.path, str(error)) from error


def last(layers: Sequence[Layer], keys: Keys, kind: type) -> Any:
    """The value that counts, None where no file says one."""
    found = None
    for layer in layers:
        value = layer.value(keys, kind)
        found = found if value is None else value
    return found


def entries(layers: Sequence[Layer], keys: Keys) -> Mapping[str, Layer]:
    """The entries of a table that maps names to something, each with the file whose entry counts."""
    return {name: layer for layer in layers for name in layer.value(keys, dict) or ()}


def missing_dirs(dirs: Sequence[str]) -> Tuple[str, ...]:
    """The usual folders of specifications that are not among these; /run and /var/run are one."""
    there = {f"/var{folder}" if folder.startswith("/run/") else folder for folder in dirs}
    return tuple(folder for folder in SPEC_DIRS if folder not in there)


@frozen
class Places:
    """Where an engine has its settings: the table of its runtimes, the name of the default, the folders of CDI."""

    runtimes: Keys
    default: Keys
    dirs: Keys

    def keys(self, setting: SettingName) -> Keys:
        if setting.kind == RUNTIME:
            return (*self.runtimes, setting.name)
        return self.dirs if setting == CDI else self.default


class MergedToml(Kind):
    """The part of ``Kind`` that is alike where files are read so. ``Configuration.parsed`` are the layers."""

    places: Places

    def program(self, layer: Layer, name: str) -> str:
        """What a runtime starts, by the file whose entry counts."""
        raise NotImplementedError

    def spec_dirs(self, layers: Sequence[Layer]) -> Tuple[str, ...]:
        """Where the engine looks for specifications of CDI."""
        raise NotImplementedError

    def entry(self, name: str, program: str, others: Sequence[Layer]) -> Any:
        """A runtime as our file has it beside all others."""
        raise NotImplementedError

    def settings_of(self, layers: Sequence[Layer]) -> Dict[SettingName, Any]:
        """What the files mean together. An empty name of the default is none: the engine takes its own then."""
        settings: Dict[SettingName, Any] = {
            SettingName(RUNTIME, name): self.program(layer, name)
            for name, layer in entries(layers, self.places.runtimes).items()
        }
        settings[DEFAULT_RUNTIME] = last(layers, self.places.default, str) or None
        settings[CDI] = not missing_dirs(self.spec_dirs(layers))
        return settings

    def others_default(self, layers: Sequence[Layer], name: str) -> Optional[str]:
        """The default runtime that the files leave once none of them names this one."""
        names = [layer.value(self.places.default, str) for layer in layers]
        return next((found for found in reversed(names) if found and found != name), None)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        layers: Sequence[Layer] = configuration.parsed
        runtime = SettingName(RUNTIME, wanted.runtime_name)
        if not wanted.present:
            # With the runtime our file goes, and its default.
            layers = [layer for layer in layers if layer.name != configuration.installation.drop_in]
            return {runtime: None, DEFAULT_RUNTIME: self.others_default(layers, wanted.runtime_name)}
        if wanted.cdi is False:
            raise DeclarationError(
                "disable CDI",
                object=wanted.engine,
                cause="it always looks up CDI devices, and cannot be told not to",
                hint="leave cdi out of this entry",
            )
        settings: Dict[SettingName, Any] = {runtime: wanted.runtime_path}
        if wanted.default is not None:
            others = self.others_default(layers, wanted.runtime_name)
            settings[DEFAULT_RUNTIME] = wanted.runtime_name if wanted.default else others
        if wanted.cdi:
            settings[CDI] = True
        return settings

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        if not wanted.present:
            return self._take_out(configuration, wanted.runtime_name)
        return self._bring(configuration, self.wanted(wanted, configuration), tidy=False)

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        return self._bring(configuration, baseline, tidy=True)

    def _bring(self, configuration: Configuration, target: Settings, *, tidy: bool) -> Tuple[Edit, ...]:
        """The edits after which the settings in ``target`` have its values; None in it is a value that no file gives.

        ``tidy``: on the way back, where our file goes and what others say is left to them.
        Raises ``OwnedByAnother`` where a file that is read after ours says something else, and ``Refused`` where a text
        takes no edit.
        """
        layers: Sequence[Layer] = configuration.parsed
        ours = configuration.installation.drop_in
        now = list(layers)
        for setting, value in target.items():
            if tidy or self.settings_of(now).get(setting) != value:
                now = self._brought(now, ours, setting=setting, value=value, tidy=tidy)
        result = self.settings_of(now)
        for setting, value in target.items():
            # Taken out is as near as files get to a value that came from a file of others that is gone.
            if value is not None and result.get(setting) != value and not tidy:
                keys = self.places.keys(setting)
                others = [layer for layer in now if layer.name != ours and layer.value(keys, object) is not None]
                raise OwnedByAnother(
                    f"set {setting}",
                    object=others[-1].document.path,
                    cause=f"this file is read after {ours} and overrides it",
                    found=shown(result.get(setting)),
                    wanted=shown(value),
                    hint="remove it from that file, or let the file come earlier in the order of names",
                )
        return _edits(layers, now)

    def _take_out(self, configuration: Configuration, name: str) -> Tuple[Edit, ...]:
        """The edits after which no file has the runtime, nor names it as the default. Our file goes."""
        places, layers = self.places, configuration.parsed
        now = []
        for layer in layers:
            if layer.name == configuration.installation.drop_in:
                now.append(_our_file(layer, {}))
                continue
            is_default = layer.value(places.default, str) == name
            without = _removed(layer, places.default) if is_default else layer
            now.append(_removed(without, places.keys(SettingName(RUNTIME, name))))
        return _edits(layers, now)

    def _brought(
        self, layers: List[Layer], ours: str, *, setting: SettingName, value: Scalar, tidy: bool
    ) -> List[Layer]:
        keys = self.places.keys(setting)
        others = [layer for layer in layers if layer.name != ours]
        right = self.settings_of(others).get(setting) == value
        theirs = tidy and any(layer.value(keys, object) is not None for layer in others)
        written = None if right or theirs or value is None else self._written(setting, value, others)
        goes = value is None and not right and not theirs
        now: List[Layer] = []
        for layer in layers:
            if layer.name == ours:
                now.append(_with(layer, keys, written))
            else:
                now.append(_removed(layer, keys) if goes else layer)
        return now

    def _written(self, setting: SettingName, value: Scalar, others: Sequence[Layer]) -> Any:
        """What our file has to have; None where no file can bring it about."""
        if setting == CDI:
            dirs = self.spec_dirs(others)
            # Not added to what is there, for a reader of version 4 knows no attributes.
            return [*dirs, *missing_dirs(dirs)] if value else None
        return value if setting == DEFAULT_RUNTIME else self.entry(setting.name, str(value), others)


def _edits(layers: Sequence[Layer], now: Sequence[Layer]) -> Tuple[Edit, ...]:
    return tuple(
        Edit(before.document.path, before.document.text, after.document.text)
        for before, after in zip(layers, now)
        if before.document.text != after.document.text
    )


def _with(layer: Layer, keys: Keys, value: Any) -> Layer:
    """Our file with a value at these keys; None takes it away, with the tables that nothing is left in."""
    if get(layer.data, keys) is None and value is None:
        return layer
    data = deepcopy(dict(layer.data))
    put(data, keys, value)
    return _our_file(layer, data)


def _our_file(layer: Layer, data: Mapping[str, Any]) -> Layer:
    from ..._text.toml_edit import dump

    text = HEADER + dump(data) if data else None
    return make_layer(layer.name, Document(layer.document.path, text), layer.names)


def _removed(layer: Layer, keys: Keys) -> Layer:
    """A file of others without what it says at these keys; the rest of its text stays as it is."""
    if layer.value(keys, object) is None:
        return layer
    from ..._text.toml_edit import TomlEditError, remove

    try:
        text = remove(layer.document.text or "", layer.spelled(keys))
    except TomlEditError as error:
        raise Refused(
            f"remove {'.'.join(keys)}",
            object=layer.document.path,
            cause=str(error),
            hint="remove it by hand; nothing was changed",
        ) from error
    return make_layer(layer.name, Document(layer.document.path, text), layer.names)
