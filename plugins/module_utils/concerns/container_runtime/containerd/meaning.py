# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the files of containerd mean together for its CRI plugin."""

from __future__ import annotations

import json
import os
import re
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ...._core.errors import not_understood
from ...._core.setting import Scalar
from ...._core.value import field, frozen
from ...._text import nested
from ...._text.toml_text import TomlError, parse
from ..model import (
    CDI,
    DEFAULT_RUNTIME,
    NAME,
    RUNTIME,
    SYSTEMD_CGROUP,
    Configuration,
    Document,
    Installation,
    SettingName,
    Settings,
)
from . import keys, places, spelling
from .keys import KEYS

if TYPE_CHECKING:
    from ...._core.protocols import Files
    from .k3s_data import K3sFacts

NEWEST = 4
# The CRI plugin by the version of the configuration; without one it is 1.
PLUGINS = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}
MERGES = 3
# The keys of a main file that is there for our drop-in alone.
OURS = {"version", "imports"}
RUNC, RUNC_TYPES = "runc", ("io.containerd.runc.v2", "io.containerd.runc.v1")
DEFAULT, CGROUP = DEFAULT_RUNTIME, SYSTEMD_CGROUP
MARKER = f"gpufleet {NAME}"
Table = Mapping[str, Any]


@frozen
class AskingContainerd(Installation):
    """An installation whose program says its version when it is asked, which costs a start of it."""

    ask: Optional[Callable[[], Tuple[int, ...]]] = field(default=None, compare=False)


@frozen
class ConfigSource:
    """One file as containerd finds it: the name it was asked for by, its version and the table of its CRI plugin.

    ``has_plugin`` tells an empty table from none. ``data`` is all that the file says, and ``written`` the table of the
    plugin as it is spelled there.
    """

    name: str
    document: Document
    data: Table
    version: int
    cri: Table
    has_plugin: bool
    written: Table


@frozen
class ParsedContainerd:
    """``sources`` in the order in which they count, the main file first where it is there.

    ``drop_in`` is our file, also where containerd does not read it. ``merges``: as 2.x does it. ``base`` is what
    k3s or RKE2 fill a template with, and ``brought`` are the runtimes that they put there themselves.
    """

    sources: Tuple[ConfigSource, ...]
    merges: bool
    drop_in: Document
    base: Optional[K3sFacts] = None
    brought: Tuple[str, ...] = ()


def same(setting: SettingName, has: Scalar, wanted: Scalar) -> bool:
    """Whether both mean the same: without a word runc is the default, and a runtime has no systemd cgroups."""
    if setting.kind in KEYS:
        return keys.same(has, wanted)
    silent: Scalar = RUNC if setting == DEFAULT else False if setting.kind == CGROUP else None
    return (silent if has is None else has) == (silent if wanted is None else wanted)


def make_source(
    name: str, document: Document, *, silent: int = 1, ask: Callable[[], Tuple[int, ...]] = tuple
) -> ConfigSource:
    """``silent`` is the version of a file that says none. ``ask`` says the version of containerd, empty for unknown.

    Raises ``CannotLook`` with line and column for what is not TOML, and for what containerd would not take.
    """
    try:
        data = parse(document.text or "").data
    except TomlError as error:
        raise not_understood(document.path, str(error)) from error
    version = data.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= NEWEST:
        raise not_understood(
            document.path, f"its version is {version!r}, and the versions known here are 1 to {NEWEST}"
        )
    plugins = _table(document.path, data, "plugins")
    version = version or silent
    plugin = PLUGINS[version]
    written = _table(document.path, plugins, plugin)
    cri = _by_name(document.path, written, version, ask)
    containerd = _table(document.path, cri, "containerd")
    runtimes = _table(document.path, containerd, "runtimes")
    for runtime in runtimes:
        _table(document.path, _table(document.path, runtimes, runtime), "options")
    return ConfigSource(name, document, data, version, cri, plugin in plugins, written)


def _by_name(path: str, written: Table, version: int, ask: Callable[[], Tuple[int, ...]]) -> Table:
    """The table of a file by the names of its keys. Raises ``CannotLook`` where 1.x and 2.x differ about the spelling,
    and it is not known which one reads it.
    """
    odd = [".".join(way) for way in spelling.odd_keys(written)]
    if not odd:
        return written
    newer, older = (spelling.by_name(written, newer=newer) for newer in (True, False))
    if version >= MERGES or newer == older:
        return newer
    known = ask()
    if not known:
        raise not_understood(
            path,
            f"{', '.join(odd)} in {PLUGINS[version]} is spelled in another case, which containerd 1.x and 2.x read "
            "differently",
        )
    return newer if known >= (2,) else older


def merged(sources: Sequence[ConfigSource], merges: bool) -> Table:
    """The table of the CRI plugin that counts in the end."""
    if merges:
        return spelling.by_name(merged_as_written(sources), newer=True)
    found: Table = {}
    for source in sources:
        if source.has_plugin:
            found = source.cri
    return found


def merged_as_written(sources: Sequence[ConfigSource]) -> Table:
    """The tables of all files as 2.x merges them, before it reads their keys."""
    found: Table = {}
    for source in sources:
        # By false and by empty texts too (mergo, as 2.x calls it).
        found = nested.merged(found, source.written)
    return found


def merges_tables(installation: Installation, sources: Sequence[ConfigSource]) -> bool:
    """Whether this containerd is a 2.x: by a file that only such a one reads, or our drop-in; k0s merges as such a one.

    Where only its program can tell, and it matters, that is asked.
    """
    names = [source.name for source in sources]
    if installation.flavour == places.K0S or installation.drop_in in names:
        return True
    if any(source.version >= MERGES for source in sources):
        return True
    return sum(source.has_plugin for source in sources) > 1 and version_of(installation) >= (2,)


def version_of(installation: Installation) -> Tuple[int, ...]:
    """The version of containerd, empty where nobody tells it. This is where its program is asked."""
    if installation.version or not isinstance(installation, AskingContainerd) or installation.ask is None:
        return installation.version
    return installation.ask()


def newest(sources: Sequence[ConfigSource], installation: Installation) -> int:
    """The version of the configuration as containerd has it in the end, as far as the files of others tell.

    Not ours, nor a main file that may be: what they bring with their version has to go with them. Where none of others
    has a word, the program tells.
    """
    others = [source for source in sources if source.name != installation.drop_in and source.data.keys() - OURS]
    version = installation.version if others else version_of(installation)
    return max([source.version for source in others] + [MERGES if version >= (2,) else 0])


def with_runc(cri: Table, version: int, installation: Installation) -> Table:
    """The table with the type of runc that 2.x has where no file says it, as in the documentation of Kubernetes.

    1.x would start no pod with such a file, so it is a 2.x where nobody tells the version.
    """
    containerd = cri.get("containerd", {})
    runc = containerd.get("runtimes", {}).get(RUNC)
    if runc is None or "runtime_type" in runc:
        return cri
    if version < MERGES and (0,) < version_of(installation) < (2,):
        return cri
    runtimes = {**containerd["runtimes"], RUNC: {"runtime_type": RUNC_TYPES[0], **runc}}
    return {**cri, "containerd": {**containerd, "runtimes": runtimes}}


def theirs(configuration: Configuration, name: str) -> Settings:
    """The settings without what our file or block, or k3s and RKE2 by themselves, say about a runtime."""
    parsed, drop_in = configuration.parsed, configuration.installation.drop_in
    others = [source for source in parsed.sources if source.name != drop_in]
    if len(others) < len(parsed.sources):
        return settings_of(merged(others, parsed.merges), 0)
    block = block_of(configuration.documents[0].text).get("containerd", {}).get("runtimes", {})
    ours = SettingName(RUNTIME, name) if "runtime_type" in block.get(name, {}) or name in parsed.brought else None
    return {setting: value for setting, value in configuration.settings.items() if setting != ours}


def block_of(text: Optional[str]) -> Table:
    """The table of the CRI plugin in our block, empty where there is none."""
    found = re.search(rf"^# BEGIN {MARKER}\s*^(.*?)^# END {MARKER}\s*$", text or "", re.MULTILINE | re.DOTALL)
    if found is None:
        return {}
    try:
        plugins = parse(found[1]).data.get("plugins", {})
    except TomlError:
        # Somebody wrote into it, or it is no block but a text that looks like one.
        return {}
    return next((plugins[plugin] for plugin in PLUGINS.values() if plugin in plugins), {})


def settings_of(cri: Table, version: int) -> Dict[SettingName, Scalar]:
    """What the table of the CRI plugin means."""
    settings: Dict[SettingName, Scalar] = {}
    containerd = cri.get("containerd", {})
    for name, runtime in containerd.get("runtimes", {}).items():
        kind, options = runtime.get("runtime_type", ""), runtime.get("options", {})
        settings[SettingName(RUNTIME, name)] = _runtime_text(kind, options.get("BinaryName", ""))
        # Without a type 1.x starts no pod in it, but its options tell what kubelet and the other runtimes have.
        if kind in RUNC_TYPES or (not kind and "SystemdCgroup" in options):
            settings[SettingName(CGROUP, name)] = bool(options.get("SystemdCgroup", False))
        settings.update(keys.settings_of(name, runtime))
    if containerd.get("default_runtime_name"):
        settings[DEFAULT] = containerd["default_runtime_name"]
    if "enable_cdi" in cri:
        settings[CDI] = bool(cri["enable_cdi"])
    elif version >= MERGES:
        # On from 2.0 on, off in 1.7, and unknown to 1.6: files of the older versions do not tell.
        settings[CDI] = True
    return settings


def imported(name: str, data: Table, path: str) -> Tuple[str, ...]:
    """The names and patterns that a file imports, as absolute paths."""
    found = data.get("imports", [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise not_understood(path, "imports is not a list of strings")
    return tuple(os.path.normpath(os.path.join(os.path.dirname(name), item)) for item in found)


def matches(pattern: str, path: str) -> bool:
    """Whether an import means a file. Go's filepath.Match: a ``*`` ends at a slash, and takes a leading dot too."""
    parts, names = pattern.split("/"), path.split("/")
    return len(parts) == len(names) and all(_like(part, name) for part, name in zip(parts, names))


def _like(part: str, name: str) -> bool:
    return part == name or re.match(translate(part.replace("[^", "[!")), name) is not None


def read_sources(files: Files, installation: Installation) -> Iterator[ConfigSource]:
    """The files in containerd's order. Each is read once, as it does."""
    waiting: List[Tuple[str, Tuple[str, ...]]] = [(installation.main, ())]
    loaded: List[str] = []
    while waiting:
        name, chain = waiting.pop(0)
        if name in loaded:
            continue
        document = Document(files.resolve(name), files.read_optional(name))
        if document.text is None:
            if not chain:
                return
            raise not_understood(chain[-1], f"it imports {name}, which does not exist")
        source = make_source(name, document, ask=lambda: version_of(installation))
        _refuse_wrong_kinds(source)
        loaded.append(name)
        yield source
        chain = (*chain, name)
        for pattern in _imports(files, installation, source):
            if "*" in pattern:
                waiting.extend((found, chain) for found in _expand(files, pattern))
                continue
            if pattern in chain:
                raise not_understood(name, f"it imports {pattern}, which imports it in turn")
            waiting.append((pattern, chain))


def _imports(files: Files, installation: Installation, source: ConfigSource) -> Tuple[str, ...]:
    is_main = source.name == installation.main
    if is_main and installation.flavour == places.K0S and places.is_theirs(installation, source.document.text):
        # What it imports k0s makes of these, at its next start anew.
        return (f"{places.K0S_FOLDER}/*.toml",)
    patterns = imported(source.name, source.data, source.document.path)
    # From the root, where systemd starts the daemon: there an old one looks up what is relative and has a star.
    rooted = imported("/", source.data, source.document.path)
    for here, there in zip(patterns, rooted):
        matter = here != there and "*" in here and source.version < MERGES
        if matter and _expand(files, here) != _expand(files, there) and _is_rooted(version_of(installation)):
            return tuple(one if "*" in one else other for one, other in zip(rooted, patterns))
    return patterns


def _is_rooted(version: Tuple[int, ...]) -> bool:
    """Whether a relative pattern goes to filepath.Glob as it is (``resolveImports`` until 1.6.28 and 1.7.15)."""
    return () < version < (1, 6, 29) or (1, 7) <= version < (1, 7, 16)


def _expand(files: Files, pattern: str) -> Tuple[str, ...]:
    """The files that a pattern means, in the order of their names."""
    found = [""]
    for part in pattern.strip("/").split("/"):
        if re.search(r"[*?\[]", part):
            found = [f"{folder}/{name}" for folder in found for name in files.names(folder or "/") if _like(part, name)]
        else:
            found = [f"{folder}/{part}" for folder in found]
    return tuple(path for path in found if files.exists(path))


def _table(path: str, table: Table, key: str) -> Table:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise not_understood(path, f"{key} is not a table")
    return found


def _refuse_wrong_kinds(source: ConfigSource) -> None:
    """Raises ``CannotLook`` for a value with which the CRI plugin would not load."""
    containerd = source.cri.get("containerd", {})
    found = [("enable_cdi", source.cri, bool), ("default_runtime_name", containerd, str)]
    for runtime in containerd.get("runtimes", {}).values():
        options = runtime.get("options", {})
        found += [("runtime_type", runtime, str), ("BinaryName", options, str), ("SystemdCgroup", options, bool)]
        found += [(path[-1], options if len(path) > 1 else runtime, kind) for path, kind in keys.KEYS.values()]
    for key, table, kind in found:
        if key in table and keys.wrong_kind(kind, table[key]):
            raise not_understood(source.document.path, f"{key} is {keys.KINDS[kind]}")


Keys = Tuple[str, ...]


def _runtime_text(kind: str, program: str) -> str:
    """A runtime as a setting: the path of its program alone where it is of the usual type, else its type before that.

    A type that would not be recognised as one is in quotes, so ``_runtime_parts`` reads back exactly this.
    """
    if kind == RUNC_TYPES[0] and program.startswith("/"):
        return program
    is_odd = kind.startswith(("/", '"')) or " " in kind or (program and not kind)
    first = json.dumps(kind, ensure_ascii=False) if is_odd else kind
    return f"{first} {program}" if program else first


def _runtime_parts(text: str) -> Tuple[str, str]:
    """The type and the program that ``_runtime_text`` made this of; either may be empty."""
    if text.startswith("/"):
        return RUNC_TYPES[0], text
    if text.startswith('"'):
        kind, end = json.JSONDecoder().raw_decode(text)
        return kind, text[end + 1 :]
    kind, _blank, program = text.partition(" ")
    return kind, program


def in_order(target: Settings) -> List[Tuple[SettingName, Scalar]]:
    """The settings by name, a runtime before what is in its table."""
    return sorted(target.items(), key=lambda item: (item[0].kind != RUNTIME, item[0]))


def leaves(setting: SettingName, value: Scalar) -> List[Tuple[Keys, Any]]:
    """The keys that give a setting its value, None for a key or table that has to go."""
    table = ("containerd", "runtimes", setting.name)
    if setting.kind == RUNTIME:
        if value is None:
            return [(table, None)]
        kind, program = _runtime_parts(str(value))
        return [((*table, "runtime_type"), kind or None), ((*table, "options", "BinaryName"), program or None)]
    if setting.kind == CGROUP:
        return [((*table, "options", "SystemdCgroup"), value)]
    if setting.kind in KEYS:
        path, of_kind = KEYS[setting.kind]
        return [((*table, *path), keys.listed(str(value)) if of_kind is list and value is not None else value)]
    return [(("enable_cdi",) if setting == CDI else ("containerd", "default_runtime_name"), value)]
