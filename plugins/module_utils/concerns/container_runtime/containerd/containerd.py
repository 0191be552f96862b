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
from typing import TYPE_CHECKING, Dict, Iterator, Optional, Tuple

from ...._core.errors import CannotLook, DeclarationError, Refused
from ...._core.value import replace
from ...._machine import processes
from ..model import (
    CDI,
    CONTAINERD,
    RUNTIME,
    Configuration,
    Document,
    Installation,
    Kind,
    RequiredAction,
    RunningDaemon,
    SettingName,
    Settings,
    restart_for,
)
from . import keys, places
from .meaning import (
    CGROUP,
    DEFAULT,
    PLUGINS,
    RUNC,
    RUNC_TYPES,
    AskingContainerd,
    ParsedContainerd,
    merged,
    merges_tables,
    newest,
    read_sources,
    same,
    settings_of,
    theirs,
    version_of,
    with_runc,
)

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Edit, WantedEngine

CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd")


class Containerd(Kind):
    """``model.Kind`` for containerd."""

    engine = CONTAINERD

    def find(self, host: Host) -> Optional[Installation]:
        found = places.find(host)
        if found is not None and places.is_template(found):
            from . import template

            return template.asking(host, found)
        if found is None or found.flavour or not found.program:
            return found

        def ask() -> Tuple[int, ...]:
            from . import check

            return check.version(host, found.program)

        return AskingContainerd(**vars(found), ask=ask)

    def read(self, files: Files, installation: Installation) -> Configuration:
        if places.is_template(installation):
            from . import template

            return template.read(files, installation)
        sources = tuple(read_sources(files, installation))
        merges = merges_tables(installation, sources)
        documents = [source.document for source in sources]
        if not documents:
            documents = [Document(files.resolve(installation.main), None)]
        cri = merged(sources, merges)
        version = newest(sources, installation)
        settings = settings_of(with_runc(cri, version, installation), version)
        path = files.resolve(installation.drop_in or installation.main)
        drop_in = Document(path, files.read_optional(path) if installation.drop_in else None)
        return Configuration(installation, tuple(documents), settings, ParsedContainerd(sources, merges, drop_in))

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        has, name = configuration.settings, wanted.runtime_name
        runtime, cgroup = SettingName(RUNTIME, name), SettingName(CGROUP, name)
        others = _others_default(configuration, name) if has.get(DEFAULT) == name else has.get(DEFAULT)
        if not wanted.present:
            return {runtime: None, cgroup: None, DEFAULT: others}
        _refuse_without_cri(configuration)
        # As the runtime that pods have without ours: kubelet and all runtimes must agree on the control groups, and a
        # pod that gets a GPU shall lose nothing else. What somebody else made of this runtime stays.
        like = "" if runtime in theirs(configuration, name) else _copied_from(configuration, wanted)
        older = f"{RUNC_TYPES[1]} {wanted.runtime_path}"
        # A runtime of the older type starts the same program.
        program = older if has.get(runtime) == older else wanted.runtime_path
        made: Dict[SettingName, Scalar] = {runtime: program, cgroup: wanted.systemd_cgroup}
        if wanted.systemd_cgroup is None:
            of_runc = SettingName(CGROUP, RUNC)
            low_level = has.get(SettingName(CGROUP, str(like or others or RUNC)), has.get(of_runc, False))
            made[cgroup] = bool(low_level if like else has.get(cgroup, low_level))
            if configuration.parsed.base and cgroup not in has and of_runc not in has:
                # k3s and RKE2 decide it when they first start, for theirs as for ours.
                from .template import refuse_undecided

                made.pop(cgroup)
                refuse_undecided(configuration, name)
        made.update(keys.wanted(name, wanted.options, has, like))
        if wanted.default is not None:
            made[DEFAULT] = name if wanted.default else others
        if wanted.cdi is not None:
            made[CDI] = wanted.cdi
        return made

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        from . import edit

        return edit.edits(configuration, self.wanted(wanted, configuration), restoring=not wanted.present)

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        from . import edit

        return edit.edits(configuration, baseline, restoring=True)

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
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
        return RunningDaemon({} if stale else read.settings, containers=containers, stale=stale)

    def foresee(
        self, host: Host, configuration: Configuration, running: Optional[RunningDaemon], wanted: WantedEngine
    ) -> Configuration:
        # The program is asked for its version only about files that are newer than a daemon.
        is_newer = running is not None and running.stale
        if not is_newer or not wanted.present or not host.may_change or places.is_template(configuration.installation):
            return configuration
        from . import check

        try:
            version = version_of(configuration.installation)
            if version:
                check.refuse_unreadable(configuration.parsed.sources, version)
        except Refused as error:
            return replace(configuration, refused=error)
        except CannotLook:
            # Its version is not known here, and matters only where a file is edited.
            pass
        return configuration

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        changed = [name for name, value in after.items() if not same(name, before.get(name), value)]
        return restart_for("containerd reads", changed)

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import check

        check.check(host, installation, edits, self.read)


def _copied_from(configuration: Configuration, wanted: WantedEngine) -> str:
    """The name of the runtime that pods have without ours.

    Where a key was overwritten in its place nobody tells any more which one was the default: then it is the one that
    ours was made like.
    """
    has, name = configuration.settings, wanted.runtime_name
    ordinary = [setting.name for setting in has if setting.kind == CGROUP]
    default = theirs(configuration, name).get(DEFAULT)
    if default != name and default in ordinary:
        return str(default)
    if default == name:
        kinds = [kind for kind in (CGROUP, *keys.KEYS) if kind not in wanted.options]
        for other in (RUNC, *ordinary):
            pairs = [(SettingName(kind, other), SettingName(kind, name)) for kind in kinds]
            alike = all(same(ours, has.get(one), has.get(ours)) for one, ours in pairs)
            if other != name and other in ordinary and alike:
                return other
    return RUNC


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
                "add a runtime to containerd",
                object=source.document.path,
                cause="disabled_plugins has the CRI plugin, the only one that uses runtimes; such a containerd "
                "serves only Docker, which has its own runtimes",
                hint="declare docker instead of containerd, or remove the plugin from disabled_plugins",
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
            return any(processes.name_of(files, pid) == "containerd" for pid in listed.split())
    return any(processes.daemons(files, ("containerd",), ("containerd*",)))


KIND: Kind = Containerd()
