# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O's own program judges the candidate files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Tuple

from ...._core.change import RunCommand
from ...._core.steps import run
from ..candidate import SCRATCH, CandidateFiles, compare, copies
from ..merged_toml import make_layer
from ..model import DEFAULT_RUNTIME, RUNTIME, Document, Edit, Installation, SettingName
from . import meaning

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ...._core.setting import Scalar
    from ..model import Configuration

FOLDER = f"{SCRATCH}.crio"
SECONDS = 30.0
GOAL = "validate the new configuration of CRI-O"


def check(
    host: Host,
    installation: Installation,
    edits: Tuple[Edit, ...],
    read: Callable[[Files, Installation], Configuration],
) -> None:
    """``crio config`` on the candidate, and whether it says the settings that the files say to us.

    Raises ``Refused`` where the daemon would not start with it, or would read something else than we do.
    """
    if not installation.program:
        return
    candidate = read(CandidateFiles(host.files, edits), installation)
    # By number, so that one folder has all of them in their order.
    documents = [
        Document(f"{FOLDER}/{number:05}.conf", document.text)
        for number, document in enumerate(candidate.documents)
        if document.text is not None
    ]
    argv = (installation.program, "--config", "/dev/null", "--config-dir", FOLDER, "config")
    with copies(host.files, FOLDER, documents):
        output = run(RunCommand(argv, GOAL, timeout=SECONDS), host)
    said = meaning.settings_of([make_layer("crio config", Document("crio config", output))])
    compare(GOAL, "crio config", said, candidate.settings, _same)


def _same(setting: SettingName, said: Scalar, value: Scalar) -> bool:
    """What is as it would be anyway, it writes as a comment."""
    named = setting.name if setting.kind == RUNTIME else value if setting == DEFAULT_RUNTIME else None
    built_in = named in meaning.BUILT_IN
    return (said is None and built_in) or meaning.same(setting, said, value)
