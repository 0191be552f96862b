# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of the machine, by the standard library. The hosts differ only in how a finished file is moved into place."""

from __future__ import annotations

import contextlib
import errno
import os
from io import FileIO
from typing import TYPE_CHECKING, Optional, Tuple

if TYPE_CHECKING:
    from .protocols import Lock


def temporary_of(target: str) -> str:
    """The file beside ``target`` that becomes it. No daemon reads this ending, should a killed run leave it."""
    folder, name = os.path.split(target)
    return f"{folder}/.{name}.gpufleet-tmp"


class LocalFiles:
    """``protocols.Files`` on this machine. ``locate`` is where a recorded tree takes the place of the real root."""

    def locate(self, path: str) -> str:
        """Where the path really lies."""
        return path

    def move(self, source: str, target: str) -> None:
        """Put a finished temporary file in the place of ``target``, whose owner, mode and context stay."""
        raise NotImplementedError

    def read(self, path: str) -> str:
        try:
            # A pipe in the place of a file has nothing in it, and nobody waits for who writes into it.
            with FileIO(self.locate(path), opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
                # To the end, past short reads: files of /proc that list things hand out about a page at a time.
                return (stream.readall() or b"").decode("utf-8", "surrogateescape")
        except OSError as error:
            # read(2) knows no name, and open(2) of a recorded tree another one.
            error.filename = path
            raise

    def read_optional(self, path: str) -> Optional[str]:
        try:
            return self.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        return os.path.exists(self.locate(path))

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(self.locate(path))

    def names(self, path: str) -> Tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self.locate(path))))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def link(self, path: str) -> str:
        folder, name = os.path.split(path)
        try:
            return os.readlink(f"{self.locate(folder)}/{name}")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL):
                return ""
            raise

    def version(self, path: str) -> str:
        if not self.exists(path):
            return ""
        status = os.stat(self.locate(path))
        return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"

    def modified(self, path: str) -> int:
        return os.stat(self.locate(path)).st_mtime_ns if self.exists(path) else 0

    def mode(self, path: str) -> int:
        try:
            return os.stat(self.locate(path)).st_mode & 0o7777
        except OSError as error:
            error.filename = path
            raise

    def writable(self, path: str) -> bool:
        return os.access(self.locate(path), os.W_OK)

    def set_knob(self, path: str, value: str) -> None:
        # Without O_TRUNC and O_CREAT: a knob that is not there must not become a file.
        descriptor = os.open(self.locate(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def replace(self, path: str, text: str, mode: int = 0o644) -> None:
        from . import file_changes

        file_changes.replace(self, path, text, mode)

    def remove(self, path: str) -> None:
        from . import file_changes

        file_changes.remove(self.locate(path))

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.locate(path))

    def lock(self, path: str, timeout: float) -> Lock:
        from . import file_changes

        target = self.locate(path)
        file_changes.make_folders(os.path.dirname(target))
        return file_changes.FileLock(target, timeout)
