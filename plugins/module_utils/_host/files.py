# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of the machine, by the standard library. The hosts differ only in how a finished file is moved into place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from io import FileIO
from typing import Optional, Tuple


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
            with FileIO(self.locate(path)) as stream:
                # To the end, past short reads: files of /proc that list things hand out about a page at a time.
                return stream.readall().decode("utf-8", "surrogateescape")
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
        target = self.locate(self.resolve(path))
        folder = os.path.dirname(target)
        self._make_folders(folder)
        # Always the same name, so that what a killed run left is taken away by the next one that writes the file.
        temporary = temporary_of(target)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text.encode("utf-8", "surrogateescape"))
                os.fchmod(stream.fileno(), mode)
                stream.flush()
                os.fsync(stream.fileno())
            self.move(temporary, target)
        except BaseException as error:
            if os.path.lexists(temporary):
                os.unlink(temporary)
            if isinstance(error, OSError):
                # write(2) knows no name: on a full disk nobody would know which.
                error.filename = path
            raise
        self._sync_folder(folder)

    def remove(self, path: str) -> None:
        target = self.locate(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(temporary_of(target))
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._sync_folder(os.path.dirname(target))

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.locate(path))

    def lock(self, path: str, timeout: float) -> FileLock:
        target = self.locate(path)
        self._make_folders(os.path.dirname(target))
        return FileLock(target, timeout)

    @staticmethod
    def _make_folders(folder: str) -> None:
        os.makedirs(folder, mode=0o755, exist_ok=True)

    @staticmethod
    def _sync_folder(folder: str) -> None:
        # A rename is durable only when the folder that holds the name is on disk too.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FileLock:
    """flock(2) on a file of its own; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._descriptor = -1

    def __enter__(self) -> FileLock:
        deadline = time.monotonic() + self._timeout
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(self._descriptor)
                    raise TimeoutError(f"{self._path} is held by another run") from None
                time.sleep(0.1)

    def __exit__(self, *exc: object) -> None:
        # Not by close alone: a forked child that we left behind would hold a copy of the descriptor.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
