# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The texts of files from before our first change, so that ``state: absent`` gives them back byte for byte.

That is right only while nobody else has edited the file: what it may hold is known by the sums of the texts that we met
or left. Otherwise the settings from before (``_core/baseline.py``) are brought back into the text that is there.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.record import Damaged, read_record
from ..._core.value import frozen
from .model import Edit

if TYPE_CHECKING:
    from ..._core.protocols import Files

RECORD = "/var/lib/gpufleet/container_runtime.json"
SCHEMA = 1
# The sum of a file that is not there.
NO_FILE = ""


@frozen
class OriginalFile:
    """One file that we changed. ``text`` is from before our first change, ``now`` as it is, None for no file.

    ``sums`` are those of the texts that are ours; none where somebody else edited the file between two changes of ours,
    so that ``text`` is no longer what would be without us.
    """

    path: str
    engine: str
    text: Optional[str]
    sums: Tuple[str, ...]
    now: Optional[str] = None

    @property
    def unedited(self) -> bool:
        """Whether nobody else has edited it since."""
        return digest(self.now) in self.sums


def digest(text: Optional[str]) -> str:
    from hashlib import sha256

    return NO_FILE if text is None else sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def load(files: Files) -> Tuple[OriginalFile, ...]:
    """Every file that we changed. Raises ``CannotLook`` on a damaged record."""
    kept = read_record(
        files,
        RECORD,
        lambda document: tuple(_original_file(files, path, entry) for path, entry in document["files"].items()),
        schema=SCHEMA,
        goal="read the original files in {}",
        hint="restore it from a backup, or remove it to give up restoring it byte for byte",
    )
    return kept or ()


def save(files: Files, engine: str, edits: Tuple[Edit, ...]) -> None:
    """Note what the edits are about to change. What is noted already stays, where there is anything of ours in it.

    Before the first write, with the sums of both texts: whenever a run ends, the file holds one of them.
    """
    noted: Dict[str, OriginalFile] = {kept.path: kept for kept in load(files) if kept.now != kept.text}
    for edit in edits:
        kept = noted.get(edit.path)
        found, left = digest(edit.before), digest(edit.after)
        if kept is None:
            noted[edit.path] = OriginalFile(edit.path, engine, edit.before, (found, left))
        else:
            sums = (found, left) if found in kept.sums else ()
            noted[edit.path] = OriginalFile(edit.path, engine, kept.text, sums)
    document = {
        path: {"engine": kept.engine, "text": kept.text, "sums": list(kept.sums)} for path, kept in noted.items()
    }
    files.replace(RECORD, json.dumps({"schema": SCHEMA, "files": document}, indent=1) + "\n", 0o600)


def _original_file(files: Files, path: str, entry: Mapping[str, Any]) -> OriginalFile:
    engine, text, sums = entry["engine"], entry["text"], entry["sums"]
    texts = (engine, *sums) if text is None else (engine, text, *sums)
    if not os.path.isabs(path) or not isinstance(sums, list) or not all(isinstance(one, str) for one in texts):
        raise Damaged(f"{path!r:.80} is not a file that was saved")
    return OriginalFile(path, engine, text, tuple(sums), files.read_optional(path))
