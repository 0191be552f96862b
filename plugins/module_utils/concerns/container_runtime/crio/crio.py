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
from typing import TYPE_CHECKING, Iterator, Optional, Tuple

from ...._core.protocols import temporary_of
from ..merged_toml import make_layer, read_layer
from ..model import (
    CRIO,
    NOTHING,
    RESTART,
    Configuration,
    Document,
    Installation,
    RequiredAction,
    RunningDaemon,
    Settings,
)
from .meaning import PLACES, same, settings_of

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ..model import Edit, WantedEngine

PROGRAM = "crio"
UNIT = "crio.service"
ANSWER = "/config"
SOCKETS = ("/run/crio/crio.sock", "/var/run/crio/crio.sock")
MAIN = "/etc/crio/crio.conf"
FOLDER = "/etc/crio/crio.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet.toml"


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
        from . import edit

        return edit.edit(configuration, wanted)

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        from . import edit

        return edit.restore(configuration, baseline)

    def running(self, host: Host, configuration: Configuration) -> Optional[RunningDaemon]:
        socket = configuration.installation.socket
        if not socket:
            return None
        try:
            answer = host.http_get(socket, ANSWER)
        except (ConnectionRefusedError, FileNotFoundError):
            return None
        where = f"{socket}{ANSWER}"
        return RunningDaemon(settings_of((make_layer(where, Document(where, answer)),)))

    def required_action(self, before: Settings, after: Settings) -> RequiredAction:
        changed = [name for name, value in after.items() if not same(name, before.get(name), value)]
        if not changed:
            return RequiredAction(NOTHING)
        return RequiredAction(
            RESTART, f"CRI-O reliably loads {', '.join(map(str, changed))} only when it starts; containers keep running"
        )

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import check

        check.check(host, installation, edits, self.read)


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


KIND = Crio()
