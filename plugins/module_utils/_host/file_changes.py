# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What changes files: for those who have something to change."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, List

from .files import temporary_of

if TYPE_CHECKING:
    from .files import LocalFiles

FOLDER_MODE = 0o755


def make_folders(folder: str) -> List[str]:
    """Make a folder and those above it that are not there, and return these from the top down.

    Everybody may look into them and root alone may write, whatever the umask of our caller is.
    """
    missing: List[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    made: List[str] = []
    for place in reversed(missing):
        try:
            os.mkdir(place, FOLDER_MODE)
        except FileExistsError:
            # Another run was faster; what is there and no folder says so when something is put into it.
            continue
        os.chmod(place, FOLDER_MODE)
        made.append(place)
    return made


def replace(files: LocalFiles, path: str, text: str, mode: int) -> None:
    """See ``protocols.Files.replace``. A failure leaves neither a temporary file nor a folder that it made."""
    target = files.locate(files.resolve(path))
    folder = os.path.dirname(target)
    made = make_folders(folder)
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
        files.move(temporary, target)
    except BaseException as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        for empty in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(empty)
        if isinstance(error, OSError):
            # write(2) knows no name: on a full disk nobody would know which.
            error.filename = path
        raise
    sync_folder(folder)


def remove(target: str) -> None:
    """Remove a file by its real path, with what a killed run left beside it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(temporary_of(target))
    try:
        os.unlink(target)
    except (FileNotFoundError, NotADirectoryError):
        return
    sync_folder(os.path.dirname(target))


def sync_folder(folder: str) -> None:
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
