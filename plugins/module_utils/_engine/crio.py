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
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from .._host.files import temporary_of
from .merged_toml import Layer, Places, entries, last, make_layer, missing_dirs, read_layer
from .model import (
    CDI,
    CRIO,
    DEFAULT_RUNTIME,
    NOTHING,
    RESTART,
    RUNTIME,
    SPEC_DIRS,
    Configuration,
    Document,
    Installation,
    Running,
    Settings,
    Takes,
)

if TYPE_CHECKING:
    from .._core.errors import Scalar
    from .._host.protocols import Files, Host
    from .model import Edit, WantedEngine

PROGRAM = "crio"
UNIT = "crio.service"
ANSWER = "/config"
SOCKETS = ("/run/crio/crio.sock", "/var/run/crio/crio.sock")
MAIN = "/etc/crio/crio.conf"
FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet.toml"

PLACES = Places(
    runtimes=("crio", "runtime", "runtimes"),
    default=("crio", "runtime", "default_runtime"),
    dirs=("crio", "runtime", "cdi_spec_dirs"),
)
# What it takes where no file names a default: crun, and runc in earlier releases.
BUILT_IN = ("crun", "runc")


class Crio:
    """``model.Kind`` of CRI-O."""

    engine = CRIO

    def find(self, host: Host) -> Optional[Installation]:
        program = host.commands.find(PROGRAM)
        if program is None:
            return None
        socket = next((path for path in SOCKETS if host.files.exists(path)), "")
        return Installation(CRIO, MAIN, drop_in=DROP_IN, program=program, socket=socket, unit=UNIT)

    def read(self, files: Files, installation: Installation) -> Configuration:
        layers = tuple(read_layer(files, name) for name in (installation.main, *_below(files, FOLDER)))
        documents = tuple(layer.document for layer in layers)
        return Configuration(installation, documents, settings_of(layers), parsed=layers)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        return PLACES.wanted(wanted, configuration.parsed, configuration.installation.drop_in)

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        from . import crio_edit

        return crio_edit.edit(configuration, wanted)

    def give_back(self, configuration: Configuration, found: Settings) -> Tuple[Edit, ...]:
        from . import crio_edit

        return crio_edit.give_back(configuration, found)

    def running(self, host: Host, configuration: Configuration) -> Optional[Running]:
        socket = configuration.installation.socket
        if not socket:
            return None
        try:
            answer = host.http_get(socket, ANSWER)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        where = f"{socket}{ANSWER}"
        return Running(settings_of((make_layer(where, Document(where, answer)),)))

    def takes(self, before: Settings, after: Settings) -> Takes:
        changed = [name for name, value in after.items() if not same(name, before.get(name), value)]
        if not changed:
            return Takes(NOTHING)
        return Takes(RESTART, f"CRI-O is sure to take up {', '.join(changed)} only when it starts; containers go on")

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import crio_check

        crio_check.check(host, installation, edits)


def settings_of(layers: Sequence[Layer]) -> Settings:
    """What the files mean together."""
    runtimes = entries(layers, PLACES.runtimes)
    settings: Dict[str, Any] = {f"{RUNTIME}{name}": _path(runtimes[name], name) for name in runtimes}
    # An empty name is none: CRI-O takes its own then.
    settings[DEFAULT_RUNTIME] = last(layers, PLACES.default, str) or None
    settings[CDI] = not missing_dirs(spec_dirs(layers))
    return settings


def spec_dirs(layers: Sequence[Layer]) -> Tuple[str, ...]:
    """Where the daemon looks for specifications; an empty list is its own two folders (``WithSpecDirs`` of CDI)."""
    said = [layer.texts(PLACES.dirs) for layer in layers]
    dirs = next((found for found in reversed(said) if found is not None), None)
    return tuple(str(found).rstrip("/") for found in dirs) if dirs else SPEC_DIRS


def same(setting: str, has: Scalar, wanted: Scalar) -> bool:
    """Whether a daemon that says the one has the other."""
    return has == wanted or (setting == DEFAULT_RUNTIME and wanted is None and has in BUILT_IN)


def _path(layer: Layer, name: str) -> str:
    """What a runtime starts; what keeps it from being an ordinary one stands behind it."""
    keys = (*PLACES.runtimes, name)
    if layer.value((*keys, "inherit_default_runtime"), bool):
        return "as the default runtime"
    path: str = layer.value((*keys, "runtime_path"), str) or ""
    kind = layer.value((*keys, "runtime_type"), str) or "oci"
    return path if kind == "oci" else f"{path} ({kind})"


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


def table_of(layers: Sequence[Layer], name: str) -> Mapping[str, Any]:
    """All keys of a runtime, none where no file has it."""
    layer = entries(layers, PLACES.runtimes).get(name)
    found: Mapping[str, Any] = layer.value((*PLACES.runtimes, name), dict) if layer else {}
    return found


KIND = Crio()
