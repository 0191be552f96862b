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
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from ...._core.change import RunCommand
from ...._core.errors import Refused
from ...._core.record import MALFORMED, damage_of, parse
from ..cdi.oci_hooks import FOLDERS, find_hooks
from ..merged_toml import Keys, Layer, MergedToml, Places, entries, make_layer, read_layer
from ..model import (
    CDI,
    PODMAN,
    RUNTIME,
    SPEC_DIRS,
    Configuration,
    Document,
    Edit,
    Installation,
    SettingName,
    WithoutDaemon,
)

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ..model import Kind, WantedEngine

PROGRAM = "podman"
VENDOR = "/usr/share/containers/containers.conf"
MAIN = "/etc/containers/containers.conf"
FOLDER = "/etc/containers/containers.conf.d"
DROP_IN = f"{FOLDER}/99-gpufleet.conf"
HOOKS = ("engine", "hooks_dir")
SECONDS = 60.0
GOAL = "validate the new configuration of Podman"


class Podman(MergedToml, WithoutDaemon):
    """``model.Kind`` of Podman. The hooks are the documents after those of the layers."""

    engine = PODMAN
    places = Places(
        runtimes=("engine", "runtimes"),
        default=("engine", "runtime"),
        dirs=("engine", "cdi_spec_dirs"),
    )

    def find(self, host: Host) -> Optional[Installation]:
        program = host.commands.find(PROGRAM)
        return None if program is None else Installation(PODMAN, MAIN, drop_in=DROP_IN, program=program)

    def read(self, files: Files, installation: Installation) -> Configuration:
        # Whatever is in the folder and ends so, hidden files too (``addConfigs`` of containers/common).
        names = {name for name in files.names(FOLDER) if name.endswith(".conf")} | {os.path.basename(DROP_IN)}
        order = (VENDOR, installation.main, *(f"{FOLDER}/{name}" for name in sorted(names)))
        layers = tuple(read_layer(files, name, self.places.runtimes) for name in order if not files.is_folder(name))
        hooks = tuple(find_hooks(files, _string_list(layers, HOOKS, FOLDERS)))
        settings = self.settings_of(layers)
        settings[CDI] = settings[CDI] and not hooks
        documents = (*(layer.document for layer in layers), *hooks)
        return Configuration(installation, documents, settings, parsed=layers)

    def program(self, layer: Layer, name: str) -> str:
        return ", ".join(map(str, layer.texts((*self.places.runtimes, name)) or ()))

    def spec_dirs(self, layers: Sequence[Layer]) -> Tuple[str, ...]:
        return _string_list(layers, self.places.dirs, SPEC_DIRS)

    def entry(self, name: str, program: str, others: Sequence[Layer]) -> Any:
        return program.split(", ")

    def edit(self, configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
        hooks = configuration.documents[len(configuration.parsed) :] if wanted.cdi else ()
        return (*super().edit(configuration, wanted), *(Edit(hook.path, hook.text, None) for hook in hooks))

    def check(self, host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
        """``podman info`` with our file, and whether each runtime in it is the one that Podman would start.

        Of the other files none counts for it: our file alone is what CONTAINERS_CONF names, in all releases.
        Raises ``Refused``.
        """
        from ..candidate import SCRATCH, copies

        texts = [edit.after for edit in edits if edit.path == host.files.resolve(installation.drop_in)]
        if not installation.program or not texts or texts[0] is None:
            return
        folder = f"{SCRATCH}.{PODMAN}"
        path = f"{folder}/containers.conf"
        candidate = make_layer(path, Document(path, texts[0]))
        settings = self.settings_of((candidate,))
        with copies(host.files, folder, (candidate.document,)):
            for name in entries((candidate,), self.places.runtimes):
                _ask(host, installation.program, path, name, str(settings[SettingName(RUNTIME, name)]))


def _ask(host: Host, program: str, candidate: str, name: str, path: str) -> None:
    from ...._core.steps import run

    argv = ("env", f"CONTAINERS_CONF={candidate}", program, "--runtime", name, "info", "--format", "json")
    output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
    try:
        said = parse(output)["host"]["ociRuntime"]
        found = f"{said['name']} {said['path']}"
    except MALFORMED as error:
        cause = f"podman info does not say which runtime it has: {damage_of(error)}"
        raise Refused(GOAL, object=name, cause=cause) from error
    if found not in [f"{name} {one}" for one in path.split(", ")]:
        raise Refused(GOAL, object=name, cause="podman info has another runtime", found=found, wanted=f"{name} {path}")


def _string_list(layers: Sequence[Layer], keys: Keys, default: Sequence[str]) -> Tuple[str, ...]:
    """A list that every file replaces, or adds to from an ``{append=true}`` on (containers.conf(5))."""
    found: List[str] = list(default)
    append = False
    for layer in layers:
        said = layer.texts(keys)
        if said is None:
            continue
        for item in said:
            if isinstance(item, dict):
                append = bool(item.get("append", append))
        texts = [item.rstrip("/") for item in said if isinstance(item, str)]
        found = [*found, *texts] if append else texts
    return tuple(found)


KIND: Kind = Podman()
