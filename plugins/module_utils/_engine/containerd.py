# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd: its main file, what that imports, and what they mean together for its CRI plugin.

The names of the settings: ``runtime NAME`` (its program; what is no ordinary runtime has its type before it),
``systemd_cgroup NAME`` (of a runtime: containerd has it nowhere else) and the other keys of a runtime in the same way
(``containerd_keys``), ``default_runtime`` and ``cdi``. Files are read
one after the other as containerd does it (``LoadConfig`` of its cmd/containerd/server/config): the main file, then what
it imports, then what those import. 1.x takes the whole table of a plugin from the last file that has it; 2.x merges
them. Each file has the names of its own version. Without a main file containerd reads nothing.

It reads its files when it starts, and nothing asks it for them later: it has what the files say, unless one of them is
newer than its socket, which it makes right after it has read them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.errors import DeclarationError
from . import containerd_keys as keys
from . import containerd_places as places
from .model import (
    CDI,
    CONTAINERD,
    DEFAULT_RUNTIME,
    NOTHING,
    RESTART,
    RUNTIME,
    Configuration,
    Document,
    Installation,
    Running,
    Settings,
    Takes,
    not_understood,
)
from .spec import NAME
from .toml_text import TomlError, parse

if TYPE_CHECKING:
    from .._core.errors import Scalar
    from .._host.protocols import Files, Host
    from .k3s_data import Facts
    from .model import Edit, WantedEngine

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
DEFAULT, CGROUP = DEFAULT_RUNTIME, "systemd_cgroup "
MARKER = f"gpufleet {NAME}"
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd")

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Asking(Installation):
    """An installation whose program says its version when it is asked, which costs a start of it."""

    ask: Optional[Callable[[], Tuple[int, ...]]] = field(default=None, compare=False)


@dataclass(frozen=True)
class Source:
    """One file as containerd finds it: the name it was asked for by, its version and the table of its CRI plugin.

    ``has_plugin`` tells an empty table from none. ``data`` is all that the file says.
    """

    name: str
    document: Document
    data: Table
    version: int
    cri: Table
    has_plugin: bool


@dataclass(frozen=True)
class Parsed:
    """``sources`` in the order in which they count, the main file first where it is there.

    ``drop_in`` is our file, also where containerd does not read it. ``merges``: as 2.x does it. ``base`` is what
    k3s or RKE2 fill a template with, and ``brought`` are the runtimes that they put there themselves.
    """

    sources: Tuple[Source, ...]
    merges: bool
    drop_in: Document
    base: Optional[Facts] = None
    brought: Tuple[str, ...] = ()


class Containerd:
    """``model.Kind`` for containerd."""

    engine = CONTAINERD

    def find(self, host: Host) -> Optional[Installation]:
        found = places.find(host)
        if found is not None and places.is_template(found):
            from . import containerd_template

            return containerd_template.asking(host, found)
        if found is None or found.flavour or not found.program:
            return found

        def ask() -> Tuple[int, ...]:
            from . import containerd_check

            return containerd_check.version(host, found.program)

        return Asking(**vars(found), ask=ask)

    def read(self, files: Files, installation: Installation) -> Configuration:
        if places.is_template(installation):
            from . import containerd_template

            return containerd_template.read(files, installation)
        sources = tuple(_load(files, installation))
        merges = merges_tables(installation, sources)
        documents = [source.document for source in sources]
        if not documents:
            documents = [Document(files.resolve(installation.main), None)]
        cri = merged(sources, merges)
        version = newest(sources, installation)
        settings = settings_of(with_runc(cri, version, installation), version)
        path = files.resolve(installation.drop_in or installation.main)
        drop_in = Document(path, files.read_optional(path) if installation.drop_in else None)
        return Configuration(installation, tuple(documents), settings, Parsed(sources, merges, drop_in))

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        has, name = configuration.settings, wanted.runtime_name
        runtime, cgroup = f"{RUNTIME}{name}", f"{CGROUP}{name}"
        others = _others_default(configuration, name) if has.get(DEFAULT) == name else has.get(DEFAULT)
        if not wanted.present:
            return {runtime: None, cgroup: None, DEFAULT: others}
        _refuse_without_cri(configuration)
        # As the runtime that pods have without ours: kubelet and all runtimes must agree on the control groups, and a
        # pod that gets a GPU shall lose nothing else. What somebody else made of this runtime stays.
        like = "" if runtime in theirs(configuration, name) else _copied_from(configuration, wanted)
        made: Dict[str, Scalar] = {runtime: wanted.runtime_path, cgroup: wanted.systemd_cgroup}
        if wanted.systemd_cgroup is None:
            low_level = has.get(f"{CGROUP}{like or others or RUNC}", has.get(f"{CGROUP}{RUNC}", False))
            made[cgroup] = bool(low_level if like else has.get(cgroup, low_level))
            if configuration.parsed.base and cgroup not in has and f"{CGROUP}{RUNC}" not in has:
                # k3s and RKE2 decide it when they first start, for theirs as for ours.
                from .containerd_template import refuse_undecided

                made.pop(cgroup)
                refuse_undecided(configuration, name)
        made.update(keys.wanted(name, wanted.options, has, like))
        if wanted.default is not None:
            made[DEFAULT] = name if wanted.default else others
        if wanted.cdi is not None:
            made[CDI] = wanted.cdi
        return made

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        from . import containerd_edit

        return containerd_edit.edits(configuration, self.wanted(wanted, configuration), giving_back=not wanted.present)

    def give_back(self, configuration: Configuration, found: Settings) -> Tuple[Edit, ...]:
        from . import containerd_edit

        return containerd_edit.edits(configuration, found, giving_back=True)

    def running(self, host: Host, configuration: Configuration) -> Optional[Running]:
        files, installation = host.files, configuration.installation
        started = files.modified(installation.socket)
        if not started or not _runs(files, installation):
            return None
        folder = places.tasks(installation)
        containers = sum(len(files.names(f"{folder}/{namespace}")) for namespace in files.names(folder))
        read = configuration
        if places.is_template(installation):
            read = self.read(files, replace(installation, main=places.generated(installation)))
        stale = next((path for path in _read_at_start(read) if files.modified(path) > started), "")
        return Running({} if stale else read.settings, containers=containers, stale=stale)

    def takes(self, before: Settings, after: Settings) -> Takes:
        changed = [name for name, value in after.items() if not same(name, before.get(name), value)]
        if not changed:
            return Takes(NOTHING)
        return Takes(RESTART, f"containerd reads {', '.join(changed)} only when it starts; containers go on")

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import containerd_check

        containerd_check.check(host, installation, edits)


def same(setting: str, has: Scalar, wanted: Scalar) -> bool:
    """Whether both mean the same: without a word runc is the default, and a runtime has no systemd cgroups."""
    silent: Scalar = RUNC if setting == DEFAULT else False if setting.startswith(CGROUP) else None
    return (silent if has is None else has) == (silent if wanted is None else wanted)


def make_source(name: str, document: Document, *, silent: int = 1) -> Source:
    """``silent`` is the version of a file that says none.

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
    cri = _table(document.path, plugins, plugin)
    containerd = _table(document.path, cri, "containerd")
    runtimes = _table(document.path, containerd, "runtimes")
    for runtime in runtimes:
        _table(document.path, _table(document.path, runtimes, runtime), "options")
    return Source(name, document, data, version, cri, plugin in plugins)


def merged(sources: Sequence[Source], merges: bool) -> Table:
    """The table of the CRI plugin that counts in the end."""
    found: Table = {}
    for source in sources:
        if merges:
            found = _merge(found, source.cri)
        elif source.has_plugin:
            found = source.cri
    return found


def merges_tables(installation: Installation, sources: Sequence[Source]) -> bool:
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
    if installation.version or not isinstance(installation, Asking) or installation.ask is None:
        return installation.version
    return installation.ask()


def newest(sources: Sequence[Source], installation: Installation) -> int:
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
    ours = f"{RUNTIME}{name}" if "runtime_type" in block.get(name, {}) or name in parsed.brought else ""
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


def _copied_from(configuration: Configuration, wanted: WantedEngine) -> str:
    """The name of the runtime that pods have without ours.

    Where a key was overwritten in its place nobody tells any more which one was the default: then it is the one that
    ours was made like.
    """
    has, name = configuration.settings, wanted.runtime_name
    ordinary = [setting[len(CGROUP) :] for setting in has if setting.startswith(CGROUP)]
    default = theirs(configuration, name).get(DEFAULT)
    if default != name and default in ordinary:
        return str(default)
    if default == name:
        options = [option for option in ("systemd_cgroup", *keys.KEYS) if option not in wanted.options]
        for other in (RUNC, *ordinary):
            alike = all(has.get(f"{option} {other}") == has.get(f"{option} {name}") for option in options)
            if other != name and other in ordinary and alike:
                return other
    return RUNC


def settings_of(cri: Table, version: int) -> Dict[str, Scalar]:
    """What the table of the CRI plugin means."""
    settings: Dict[str, Scalar] = {}
    containerd = cri.get("containerd", {})
    for name, runtime in containerd.get("runtimes", {}).items():
        kind, options = runtime.get("runtime_type", ""), runtime.get("options", {})
        program = options.get("BinaryName", "")
        settings[f"{RUNTIME}{name}"] = program if kind in RUNC_TYPES and program else f"{kind} {program}".strip()
        if kind in RUNC_TYPES:
            settings[f"{CGROUP}{name}"] = bool(options.get("SystemdCgroup", False))
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
        raise not_understood(path, "imports is no list of texts")
    return tuple(os.path.normpath(os.path.join(os.path.dirname(name), item)) for item in found)


def matches(pattern: str, path: str) -> bool:
    """Whether an import means a file. Go's filepath.Match: a ``*`` ends at a slash, and takes a leading dot too."""
    parts, names = pattern.split("/"), path.split("/")
    return len(parts) == len(names) and all(_like(part, name) for part, name in zip(parts, names))


def _like(part: str, name: str) -> bool:
    return part == name or re.match(translate(part.replace("[^", "[!")), name) is not None


def _load(files: Files, installation: Installation) -> Iterator[Source]:
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
            raise not_understood(chain[-1], f"it imports {name}, which is not there")
        source = make_source(name, document)
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


def _imports(files: Files, installation: Installation, source: Source) -> Tuple[str, ...]:
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


def _merge(one: Table, other: Table) -> Table:
    """Tables by their keys, all else replaced, by false and by empty texts too (mergo, as 2.x calls it)."""
    made = dict(one)
    for key, value in other.items():
        present = made.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            made[key] = _merge(present, value)
        else:
            made[key] = value
    return made


def _others_default(configuration: Configuration, name: str) -> Optional[str]:
    """The default runtime that the files leave once none of them names this one."""
    said = [source.cri.get("containerd", {}).get("default_runtime_name") for source in configuration.parsed.sources]
    return next((found for found in reversed(said) if found and found != name), None)


def _refuse_without_cri(configuration: Configuration) -> None:
    """Raises ``DeclarationError`` where no runtime of the files would ever be used, as in what Docker brings."""
    for source in configuration.parsed.sources:
        disabled = source.data.get("disabled_plugins", [])
        if any(plugin in ("cri", *PLUGINS.values()) for plugin in disabled if isinstance(plugin, str)):
            raise DeclarationError(
                "give containerd a runtime",
                object=source.document.path,
                cause="disabled_plugins has the CRI plugin, the only one that uses runtimes; a containerd like that "
                "serves Docker alone, which has runtimes of its own",
                hint="declare docker in the place of containerd, or take the plugin out of disabled_plugins",
            )


def _read_at_start(configuration: Configuration) -> Iterator[str]:
    """What is newer than the daemon once it does not have what the files say: they, or the folder of one that went."""
    for document in configuration.documents:
        yield document.path if document.text is not None else os.path.dirname(document.path)
    if configuration.installation.drop_in:
        yield os.path.dirname(configuration.installation.drop_in)


def _runs(files: Files, installation: Installation) -> bool:
    """Whether a process has its name. Those that it leaves behind with the containers have another."""
    for folder in CGROUPS:
        listed = files.read_optional(f"{folder}/system.slice/{installation.unit}/cgroup.procs")
        if installation.unit and listed is not None:
            return any(_is_containerd(files, pid) for pid in listed.split())
    return any(_is_containerd(files, pid) for pid in files.names("/proc") if pid.isdigit())


def _is_containerd(files: Files, pid: str) -> bool:
    try:
        return (files.read_optional(f"/proc/{pid}/comm") or "").strip() == "containerd"
    except ProcessLookupError:
        return False


def _table(path: str, table: Table, key: str) -> Table:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise not_understood(path, f"{key} is no table")
    return found


def _refuse_wrong_kinds(source: Source) -> None:
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


KIND = Containerd()
