# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of an engine from before the changes that its daemon has not taken up yet.

Kept before the first write, so that a daemon that does not come back with the new ones can have the old ones again.
Whoever sees the daemon well with the new ones drops them; a boot, at which every daemon takes up its files, does too.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Tuple

from ..._core.record import Damaged, listed, read_record
from .model import Edit

if TYPE_CHECKING:
    from ..._core.protocols import Files

FOLDER = "/run/gpufleet/container_runtime.previous"
SCHEMA = 1


def path_of(engine: str) -> str:
    return f"{FOLDER}/{engine}.json"


def load(files: Files, engine: str) -> Tuple[Edit, ...]:
    """Each file as it was before, and as it was left; none where the daemon has everything.

    Raises ``CannotLook`` for a damaged record.
    """
    kept = read_record(
        files,
        path_of(engine),
        lambda document: tuple(map(_edit, listed(document["files"]))),
        schema=SCHEMA,
        goal="read the previous configuration in {}",
        hint="remove it to give up restoring",
    )
    return kept or ()


def _edit(entry: Any) -> Edit:
    path, before, after = entry["path"], entry["before"], entry["after"]
    texts = [path, *(text for text in (before, after) if text is not None)]
    if not all(isinstance(text, str) for text in texts) or not os.path.isabs(path):
        raise Damaged(f"{path!r:.80} is not a file that was changed")
    return Edit(path, before, after)


def save(files: Files, engine: str, edits: Tuple[Edit, ...], *, anew: bool) -> None:
    """Note what the edits are about to change. ``anew``: the daemon has what the files say up to now.

    Else what was noted stays: it is the last configuration that the daemon was well with.
    """
    noted = {} if anew else {edit.path: edit for edit in load(files, engine)}
    for edit in edits:
        first = noted.get(edit.path, edit)
        noted[edit.path] = Edit(edit.path, before=first.before, after=edit.after)
    document = {
        "schema": SCHEMA,
        "files": [{"path": edit.path, "before": edit.before, "after": edit.after} for edit in noted.values()],
    }
    # Configurations may hold passwords of registries.
    files.replace(path_of(engine), json.dumps(document, indent=1) + "\n", 0o600)


def drop(files: Files, engine: str) -> None:
    """The daemon is well with what the files say now."""
    files.remove(path_of(engine))
    files.remove_folder(FOLDER)
