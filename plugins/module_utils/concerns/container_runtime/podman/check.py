# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Podman's own program judges the candidate of our file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Tuple

from ...._core.change import RunCommand
from ...._core.errors import Refused
from ...._core.steps import run
from ..candidate import SCRATCH, copies
from ..merged_toml import entries, make_layer
from ..model import RUNTIME, Document, Edit, Installation, SettingName
from . import meaning

if TYPE_CHECKING:
    from ...._core.protocols import Host

FOLDER = f"{SCRATCH}.podman"
CANDIDATE = f"{FOLDER}/containers.conf"
SECONDS = 60.0
GOAL = "validate the new configuration of Podman"


def check(host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
    """``podman info`` with our file, and whether each runtime in it is the one that Podman would start.

    Of the other files none counts for it: our file alone is what CONTAINERS_CONF names, in all releases.
    Raises ``Refused``.
    """
    texts = [edit.after for edit in edits if edit.path == host.files.resolve(installation.drop_in)]
    if not installation.program or not texts or texts[0] is None:
        return
    candidate = make_layer(CANDIDATE, Document(CANDIDATE, texts[0]))
    settings = meaning.settings_of((candidate,))
    with copies(host.files, FOLDER, (candidate.document,)):
        for name in entries((candidate,), meaning.PLACES.runtimes):
            _ask(host, installation.program, name, str(settings[SettingName(RUNTIME, name)]))


def _ask(host: Host, program: str, name: str, path: str) -> None:
    variable = f"CONTAINERS_CONF={CANDIDATE}"
    argv = ("env", variable, program, "--runtime", name, "info", "--format", "json")
    output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
    try:
        said = json.loads(output)["host"]["ociRuntime"]
        found = f"{said['name']} {said['path']}"
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(GOAL, object=name, cause=f"podman info does not say which runtime it has: {error!r}") from error
    if found not in [f"{name} {candidate}" for candidate in path.split(", ")]:
        raise Refused(GOAL, object=name, cause="podman info has another runtime", found=found, wanted=f"{name} {path}")
