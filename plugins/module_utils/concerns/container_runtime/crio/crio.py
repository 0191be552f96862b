# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O: /etc/crio/crio.conf, then every file below crio.conf.d in the order of names (crio.conf.d(5)).

It reads all files there, whatever their names end with, and folders in it too (``UpdateFromPath`` of its
pkg/config/config.go). A runtime of a later file replaces the whole one of an earlier file. CDI cannot be switched off:
it only needs the folders where the specifications are. What the daemon has, it says at ``/config`` of its socket, as
``crio status config`` asks it. From 1.26 on SIGHUP takes up runtimes, where crio.conf.d was there when the daemon
started; earlier ones and that case need a restart, over which the containers go on, for conmon holds them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Tuple

from ...._core.change import RunCommand
from ...._core.protocols import temporary_of
from ...._core.regex import regex
from ..merged_toml import Layer, MergedToml, Places, entries, make_layer, read_layer
from ..model import (
    CRIO,
    DEFAULT_RUNTIME,
    RUNTIME,
    SPEC_DIRS,
    Configuration,
    Document,
    Installation,
    RequiredAction,
    RunningDaemon,
    SettingName,
    Settings,
    restart_for,
)

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Edit, Kind, WantedEngine

PROGRAM = "crio"
UNIT = "crio.service"
ANSWER = "/config"
SOCKETS = ("/run/crio/crio.sock", "/var/run/crio/crio.sock")
MAIN = "/etc/crio/crio.conf"
FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet.toml"
# What it takes where no file names a default: crun, and runc in earlier releases.
BUILT_IN = ("crun", "runc")
# Of the runtime that ours starts in the end, these would make CRI-O start that one and not ours.
NOT_COPIED = ("inherit_default_runtime", "platform_runtime_paths", "runtime_config_path")
# A runtime that is not an ordinary one, as a setting has it.
INHERITS = "as the default runtime"
TYPED = regex(r"(.*) \(([^()]*)\)")
SECONDS = 30.0
GOAL = "validate the new configuration of CRI-O"


class Crio(MergedToml):
    """``model.Kind`` of CRI-O."""

    engine = CRIO
    places = Places(
        runtimes=("crio", "runtime", "runtimes"),
        default=("crio", "runtime", "default_runtime"),
        dirs=("crio", "runtime", "cdi_spec_dirs"),
    )

    def find(self, host: Host) -> Optional[Installation]:
        program = host.commands.find(PROGRAM)
        if program is None:
            return None
        socket = next((path for path in SOCKETS if host.files.exists(path)), "")
        return Installation(CRIO, MAIN, drop_in=DROP_IN, program=program, socket=socket, unit=UNIT)

    def read(self, files: Files, installation: Installation) -> Configuration:
        order = (installation.main, *_below(files, FOLDER))
        layers = tuple(read_layer(files, name, self.places.runtimes) for name in order)
        documents = tuple(layer.document for layer in layers)
        return Configuration(installation, documents, self.settings_of(layers), parsed=layers)

    def program(self, layer: Layer, name: str) -> str:
        """With what keeps it from being an ordinary one behind it."""
        keys = (*self.places.runtimes, name)
        if layer.value((*keys, "inherit_default_runtime"), bool):
            return INHERITS
        path: str = layer.value((*keys, "runtime_path"), str) or ""
        kind = layer.value((*keys, "runtime_type"), str) or "oci"
        return path if kind == "oci" and not TYPED.fullmatch(path) else f"{path} ({kind})"

    def spec_dirs(self, layers: Sequence[Layer]) -> Tuple[str, ...]:
        """An empty list is its own two folders (``WithSpecDirs`` of CDI)."""
        said = [layer.texts(self.places.dirs) for layer in layers]
        dirs = next((found for found in reversed(said) if found is not None), None)
        return tuple(str(found).rstrip("/") for found in dirs) if dirs else SPEC_DIRS

    def entry(self, name: str, program: str, others: Sequence[Layer]) -> Any:
        """As others have it, else with the options of the one that it starts in the end.

        A text that ``program`` made gives the entry that it was made of.

        Packages of CRI-O bring a conmon that is on no path and is named in the table of their runtime alone
        (``monitor_path``): without it the daemon would leave ours out, or not start where it is the default.
        """
        there = entries(others, self.places.runtimes)
        candidates = (name, self.others_default(others, name) or "", *BUILT_IN)
        tables = (there[one].value((*self.places.runtimes, one), dict) for one in candidates if one in there)
        table: Mapping[str, Any] = next(filter(None, tables), {})
        kept = {
            key: value
            for key, value in table.items()
            if key.lower() not in (*NOT_COPIED, "runtime_path", "runtime_type")
        }
        if program == INHERITS:
            return {"inherit_default_runtime": True}
        typed = TYPED.fullmatch(program)
        path, kind = typed.groups() if typed else (program, "oci")
        return {**kept, "runtime_path": path, "runtime_type": kind}

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        from ..gpu_operator import refuse

        settings = self.wanted(wanted, configuration)
        found = entries(configuration.parsed, self.places.runtimes) if wanted.present else {}
        for name, layer in found.items():
            program = layer.value((*self.places.runtimes, name, "runtime_path"), str) or ""
            refuse(CRIO, layer.document.path, program, settings.get(SettingName(RUNTIME, name)))
        return super().edit(configuration, wanted)

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
        socket = configuration.installation.socket
        if not socket:
            return None
        try:
            answer = host.http_get(socket, ANSWER)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        where = f"{socket}{ANSWER}"
        return RunningDaemon(self.settings_of((make_layer(where, Document(where, answer)),)))

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        changed = [name for name, value in after.items() if not _same(name, before.get(name), value)]
        return restart_for("CRI-O reliably loads", changed)

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        """``crio config`` on the candidate, and whether it says the settings that the files say to us.

        Raises ``Refused`` where the daemon would not start with it, or would read something else than we do.
        """
        from ...._core.steps import run
        from ..candidate import SCRATCH, CandidateFiles, compare, copies

        if not installation.program:
            return
        candidate = self.read(CandidateFiles(host.files, edits), installation)
        folder = f"{SCRATCH}.{CRIO}"
        # By number, so that one folder has all of them in their order.
        documents = [
            Document(f"{folder}/{number:05}.conf", document.text)
            for number, document in enumerate(candidate.documents)
            if document.text is not None
        ]
        argv = (installation.program, "--config", "/dev/null", "--config-dir", folder, "config")
        with copies(host.files, folder, documents):
            output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
        said = self.settings_of([make_layer("crio config", Document("crio config", output))])
        compare(GOAL, "crio config", said, candidate.settings, _reported)


def _same(setting: SettingName, has: Scalar, wanted: Scalar) -> bool:
    """Whether a daemon that says the one has the other."""
    return has == wanted or (setting == DEFAULT_RUNTIME and wanted is None and has in BUILT_IN)


def _reported(setting: SettingName, said: Scalar, value: Scalar) -> bool:
    """What is as it would be anyway, ``crio config`` writes as a comment."""
    named = setting.name if setting.kind == RUNTIME else value if setting == DEFAULT_RUNTIME else None
    return (said is None and named in BUILT_IN) or _same(setting, said, value)


def _below(files: Files, folder: str) -> Iterator[str]:
    """The files below a folder in the order in which CRI-O reads them, ours where it is or would be."""
    leftover = temporary_of(DROP_IN)
    names = set(files.names(folder))
    if folder == FOLDER:
        names.add(os.path.basename(DROP_IN))
    for name in sorted(names):
        path = f"{folder}/{name}"
        # What a killed run left: the next write takes it away, and until then it is as if it were not there.
        if path == leftover:
            continue
        if files.is_folder(path):
            yield from _below(files, path)
        elif files.exists(path) or path == DROP_IN:
            yield path


KIND: Kind = Crio()
