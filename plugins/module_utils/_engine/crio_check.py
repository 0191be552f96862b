# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O's own program judges the candidate files. Imported only when something changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from .._core.change import RunCommand
from .._core.errors import Refused
from .._core.steps import run
from . import crio
from .candidate import CandidateFiles
from .merged_toml import make_layer
from .model import DEFAULT_RUNTIME, RUNTIME, Document, Edit, Installation, shown

if TYPE_CHECKING:
    from .._host.protocols import Host

SCRATCH = "/run/gpufleet/container_runtime.check/crio"
SECONDS = 30.0
GOAL = "let CRI-O read the new configuration"


def check(host: Host, installation: Installation, edits: Tuple[Edit, ...]) -> None:
    """``crio config`` on the candidate, and whether it says the settings that the files say to us.

    Raises ``Refused`` where the daemon would not start with it, or would read something else than we do.
    """
    if not installation.program:
        return
    candidate = crio.KIND.read(CandidateFiles(host.files, edits), installation)
    # By number, so that one folder has all of them in their order.
    copies = [
        Document(f"{SCRATCH}/{number:05}.conf", document.text)
        for number, document in enumerate(candidate.documents)
        if document.text is not None
    ]
    try:
        for copy in copies:
            # They may hold passwords of registries.
            host.files.replace(copy.path, copy.text or "", 0o600)
        argv = (installation.program, "--config", "/dev/null", "--config-dir", SCRATCH, "config")
        output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
    finally:
        for copy in copies:
            host.files.remove(copy.path)
        host.files.remove_folder(SCRATCH)
    said = crio.KIND.settings([make_layer("crio config", Document("crio config", output))])
    for setting, value in candidate.settings.items():
        # What is as it would be anyway, it writes as a comment.
        silent = said.get(setting) is None and _built_in(setting, value)
        if not silent and not crio.same(setting, said.get(setting), value):
            raise Refused(
                GOAL,
                object=setting,
                cause="crio config says something else than the files",
                found=shown(said.get(setting)),
                wanted=shown(value),
            )


def _built_in(setting: str, value: object) -> bool:
    names = [f"{RUNTIME}{name}" for name in crio.BUILT_IN]
    return setting in names or (setting == DEFAULT_RUNTIME and value in crio.BUILT_IN)
