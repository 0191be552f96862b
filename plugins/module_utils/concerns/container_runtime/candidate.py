# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the machine as they will be, before any is written: for us to read, and for an engine's own program."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Dict, Iterator, Optional, Sequence, Tuple

from ..._core.errors import Refused
from ..._core.setting import Scalar
from .model import Document, Edit, SettingName, Settings, shown

if TYPE_CHECKING:
    from ..._core.protocols import Files, Lock

# Where the copies are: a folder for each engine has this and its name, so that none is left when the copies go.
SCRATCH = "/run/gpufleet/container_runtime.check"


class CandidateFiles:
    """``protocols.Files`` with edits in place of the files that they are about. Nothing can be written."""

    def __init__(self, files: Files, edits: Tuple[Edit, ...]) -> None:
        self._files = files
        self._texts: Dict[str, Optional[str]] = {edit.path: edit.after for edit in edits}

    def read(self, path: str) -> str:
        text = self.read_optional(path)
        if text is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return text

    def read_optional(self, path: str) -> Optional[str]:
        real = self._files.resolve(path)
        return self._texts[real] if real in self._texts else self._files.read_optional(path)

    def read_part(self, path: str, offset: int, size: int, *, exclusive: bool = False) -> bytes:
        return self._files.read_part(path, offset, size, exclusive=exclusive)

    def exists(self, path: str) -> bool:
        real = self._files.resolve(path)
        if real in self._texts:
            return self._texts[real] is not None
        return self._files.exists(path) or any(
            new.startswith(f"{real}/") for new, text in self._texts.items() if text is not None
        )

    def is_folder(self, path: str) -> bool:
        return self._files.is_folder(path)

    def names(self, path: str) -> Tuple[str, ...]:
        real = self._files.resolve(path)
        found = set(self._files.names(path))
        below = f"{real.rstrip('/')}/"
        for edited, text in self._texts.items():
            if text is not None and edited.startswith(below):
                # A folder too that the file will bring along.
                found.add(edited[len(below) :].partition("/")[0])
            elif os.path.dirname(edited) == real:
                found.discard(os.path.basename(edited))
        return tuple(sorted(found))

    def resolve(self, path: str) -> str:
        return self._files.resolve(path)

    def link(self, path: str) -> str:
        return self._files.link(path)

    def status(self, path: str) -> Optional[os.stat_result]:
        return self._files.status(path)

    def version(self, path: str) -> str:
        return self._files.version(path)

    def checksum(self, path: str) -> str:
        return self._files.checksum(path)

    def modified(self, path: str) -> int:
        return self._files.modified(path)

    def mode(self, path: str) -> int:
        return self._files.mode(path) if self._files.exists(path) else 0o644

    def writable(self, path: str) -> bool:
        return False

    def free(self, path: str) -> int:
        return self._files.free(path)

    def write_attribute(self, path: str, value: str) -> None:
        raise self._refusal(path)

    def replace(self, path: str, text: str, mode: int = 0o644) -> None:
        raise self._refusal(path)

    def remove(self, path: str) -> None:
        raise self._refusal(path)

    def remove_folder(self, path: str) -> None:
        raise self._refusal(path)

    def lock(self, path: str, timeout: float) -> Lock:
        raise self._refusal(path)

    @staticmethod
    def _refusal(path: str) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), path)


@contextmanager
def copies(files: Files, folder: str, documents: Sequence[Document]) -> Iterator[None]:
    """Lay the documents down in a folder of ours and take them away again, and before that what a killed run left."""
    _clear(files, folder)
    try:
        for document in documents:
            # They may hold passwords of registries.
            files.replace(document.path, document.text or "", 0o600)
        yield
    finally:
        _clear(files, folder)


def _clear(files: Files, folder: str) -> None:
    for name in files.names(folder):
        files.remove(f"{folder}/{name}")
    files.remove_folder(folder)


def compare(
    goal: str, command: str, said: Settings, settings: Settings, same: Callable[[SettingName, Scalar, Scalar], bool]
) -> None:
    """Raises ``Refused`` where a program says something else than the files say to us."""
    for name, value in settings.items():
        if not same(name, said.get(name), value):
            raise Refused(
                goal,
                object=str(name),
                cause=f"{command} reports something else than the files",
                found=shown(said.get(name)),
                wanted=shown(value),
                hint="this version reads them differently, or does not know the setting",
            )
