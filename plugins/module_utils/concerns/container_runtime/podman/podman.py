# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Podman, and what else reads containers.conf(5): that of the vendor, that in /etc, then containers.conf.d.

A runtime is a list of paths of which the first that is there counts. CDI is always on; from version 5 on the folders of
the specifications can be said, and what other releases do not know they pass over. Podman has no daemon: every command
reads the files. What containers.conf of single users or of CONTAINERS_CONF says is theirs and not looked at.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional, Tuple

from ..cdi.oci_hooks import FOLDERS, find_hooks
from ..merged_toml import read_layer
from ..model import CDI, PODMAN, Configuration, Installation, Settings, WithoutDaemon
from .meaning import PLACES, settings_of, string_list

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ..model import Edit, WantedEngine

PROGRAM = "podman"
VENDOR = "/usr/share/containers/containers.conf"
MAIN = "/etc/containers/containers.conf"
FOLDER = "/etc/containers/containers.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet.conf"
HOOKS = ("engine", "hooks_dir")


class Podman(WithoutDaemon):
    """``model.Kind`` of Podman. ``Configuration.parsed`` are the layers and the hooks."""

    engine = PODMAN

    def find(self, host: Host) -> Optional[Installation]:
        program = host.commands.find(PROGRAM)
        return None if program is None else Installation(PODMAN, MAIN, drop_in=DROP_IN, program=program)

    def read(self, files: Files, installation: Installation) -> Configuration:
        # Whatever is in the folder and ends so, hidden files too (``addConfigs`` of containers/common).
        names = {name for name in files.names(FOLDER) if name.endswith(".conf")} | {os.path.basename(DROP_IN)}
        order = (VENDOR, installation.main, *(f"{FOLDER}/{name}" for name in sorted(names)))
        layers = tuple(read_layer(files, name) for name in order if not files.is_folder(name))
        hooks = tuple(find_hooks(files, string_list(layers, HOOKS, FOLDERS)))
        settings = dict(settings_of(layers))
        settings[CDI] = settings[CDI] and not hooks
        documents = (*(layer.document for layer in layers), *hooks)
        return Configuration(installation, documents, settings, parsed=(layers, hooks))

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        layers, _hooks = configuration.parsed
        return PLACES.wanted(wanted, layers, configuration.installation.drop_in)

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        from . import edit

        return edit.edit(configuration, wanted)

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        from . import edit

        return edit.restore(configuration, baseline)

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        from . import check

        check.check(host, installation, edits)


KIND = Podman()
