# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O's own program judges the candidate files. Imported only when something changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from .._core.change import RunCommand
from .._core.steps import run
from . import crio
from .candidate import SCRATCH, CandidateFiles, compare, copies
from .merged_toml import make_layer
from .model import DEFAULT_RUNTIME, RUNTIME, Document, Edit, Installation

if TYPE_CHECKING:
    from .._core.errors import Scalar
    from .._host.protocols import Host

FOLDER = f"{SCRATCH}.crio"
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
    documents = [
        Document(f"{FOLDER}/{number:05}.conf", document.text)
        for number, document in enumerate(candidate.documents)
        if document.text is not None
    ]
    argv = (installation.program, "--config", "/dev/null", "--config-dir", FOLDER, "config")
    with copies(host.files, FOLDER, documents):
        output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
    said = crio.settings_of([make_layer("crio config", Document("crio config", output))])
    compare(GOAL, "crio config", said, candidate.settings, _same)


def _same(setting: str, said: Scalar, value: Scalar) -> bool:
    """What is as it would be anyway, it writes as a comment."""
    names = [f"{RUNTIME}{name}" for name in crio.BUILT_IN]
    built_in = setting in names or (setting == DEFAULT_RUNTIME and value in crio.BUILT_IN)
    return (said is None and built_in) or crio.same(setting, said, value)
