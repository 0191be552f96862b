# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of the machine, by the standard library. The hosts differ only in how a finished file is moved into place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import zlib
from typing import TYPE_CHECKING, List, Optional, Tuple

from .._core.protocols import temporary_of
from .._core.targets import fault_of, in_our_folder

if TYPE_CHECKING:
    from .._core.protocols import Lock

# Of what we make and of what the programs make that we run, whatever that of our caller is.
UMASK = 0o022
# What a read takes first, which is all of most files in /sys and /proc, how many times more each next one takes, and
# at most.
PAGE, GROWTH, MOST = 4096, 16, 1 << 20
# What a sum is made of at a time.
PART = 1 << 17
# How long a run that waits for another one pauses between two tries.
POLL_SECONDS = 0.02


def _content(descriptor: int) -> bytes:
    """To the end, past short reads: files of /proc that list things hand out about a page at a time.

    A look reads thousands of small files, and an object for each would cost it twice the system calls.
    """
    found: List[bytes] = []
    size = PAGE
    # Of a pipe that somebody may yet write into, what is there.
    with contextlib.suppress(BlockingIOError):
        while True:
            chunk = os.read(descriptor, size)
            if not chunk:
                break
            found.append(chunk)
            size = min(size * GROWTH, MOST)
    return b"".join(found)


def content_of(path: str, flags: int = 0) -> bytes:
    """The whole content of a file; the error of one that cannot be read has not always its name."""
    try:
        # A pipe in place of a file counts as empty, and the open does not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except ValueError as error:
        # No file can have a NUL or a lone surrogate in its name.
        raise FileNotFoundError(errno.ENOENT, "no file can have this name", path) from error
    try:
        return _content(descriptor)
    finally:
        os.close(descriptor)


class LocalFiles:
    """``protocols.Files`` on this machine. ``locate`` is where a recorded tree takes the place of the real root."""

    def locate(self, path: str) -> str:
        """Where the path really lies."""
        return path

    def move(self, source: str, target: str) -> None:
        """Put a finished temporary file in place of ``target``, whose owner, mode and context stay."""
        raise NotImplementedError

    def read(self, path: str) -> str:
        return self.read_bytes(path).decode("utf-8", "surrogateescape")

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a file; raises ``OSError`` as ``read``."""
        try:
            return content_of(self.locate(path))
        except OSError as error:
            # read(2) knows no name, and open(2) of a recorded tree another one.
            error.filename = path
            raise

    def read_part(self, path: str, offset: int, size: int, *, exclusive: bool = False) -> bytes:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
        try:
            descriptor = os.open(self.locate(path), flags)
            try:
                return os.pread(descriptor, size, offset)
            finally:
                os.close(descriptor)
        except OSError as error:
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
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ()

    def resolve(self, path: str) -> str:
        try:
            return os.path.realpath(path)
        except ValueError:
            return path

    def link(self, path: str) -> str:
        folder, name = os.path.split(path)
        try:
            return os.readlink(f"{self.locate(folder)}/{name}")
        except ValueError:
            return ""
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL, errno.ENOTDIR):
                return ""
            raise

    def version(self, path: str) -> str:
        if not self.exists(path):
            return ""
        status = os.stat(self.locate(path))
        return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"

    def checksum(self, path: str) -> str:
        try:
            descriptor = os.open(self.locate(path), os.O_RDONLY | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ""
        except OSError as error:
            error.filename = path
            raise
        try:
            return checksum_from(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def modified(self, path: str) -> int:
        return os.stat(self.locate(path)).st_mtime_ns if self.exists(path) else 0

    def status(self, path: str) -> Optional[os.stat_result]:
        try:
            return os.stat(self.locate(path))
        except (OSError, ValueError):
            return None

    def mode(self, path: str) -> int:
        try:
            return os.stat(self.locate(path)).st_mode & 0o7777
        except OSError as error:
            error.filename = path
            raise

    def writable(self, path: str) -> bool:
        try:
            return os.access(self.locate(path), os.W_OK)
        except ValueError:
            return False

    def free(self, path: str) -> int:
        system = os.statvfs(self.locate(path))
        return system.f_bfree * system.f_frsize

    def write_attribute(self, path: str, value: str) -> None:
        # Without O_TRUNC and O_CREAT: a tunable that is not there must not become a file.
        descriptor = os.open(self.locate(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode("utf-8", "surrogateescape"))
        finally:
            os.close(descriptor)

    def replace(self, path: str, text: str, mode: int = 0o644) -> None:
        replace_file(self, path, text, mode)

    def remove(self, path: str) -> None:
        refuse_non_regular(self, path, removes=True)
        remove_file(self.locate(path))

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.locate(path))

    def lock(self, path: str, timeout: float) -> Lock:
        target = self.locate(path)
        make_folders(os.path.dirname(target))
        return FileLock(target, timeout)


def checksum_of(content: bytes) -> str:
    """The CRC-32 and the number of bytes: what tells damage, at a small part of the cost of a cryptographic sum."""
    return _checksum(zlib.crc32(content), len(content))


def checksum_from(descriptor: int) -> str:
    """The same of what is read from here on, by parts into the same memory: for a large file that takes most time."""
    part = memoryview(bytearray(PART))
    total = size = 0
    while count := os.readv(descriptor, [part]):
        total, size = zlib.crc32(part[:count], total), size + count
    return _checksum(total, size)


def _checksum(total: int, size: int) -> str:
    return f"{total:08x}-{size}"


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


def replace_file(files: LocalFiles, path: str, text: str, mode: int) -> None:
    """See ``protocols.Files.replace``. A failure leaves neither a temporary file nor a folder that it made."""
    refuse_non_regular(files, path)
    managed = in_our_folder(path)
    folder, name = os.path.split(path if managed else files.resolve(path))
    folder = files.locate(folder)
    target = f"{folder}/{name}"
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
        if managed:
            _remove_non_regular(target)
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


def _remove_non_regular(target: str) -> None:
    """So that the new file does not take over the owner and mode of what a link points to."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(target).st_mode):
            os.unlink(target)


def refuse_non_regular(files: LocalFiles, path: str, *, removes: bool = False) -> None:
    """Raise ``OSError`` where a file must not be written or removed.

    A plan refuses what was there when it was made, and this what came since.
    """
    cause, _hint = fault_of(files, path, removes=removes)
    if cause:
        raise OSError(errno.EINVAL, cause, path)


def remove_file(target: str) -> None:
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
                time.sleep(POLL_SECONDS)

    def __exit__(self, *exc: object) -> None:
        # Not by close alone: a forked child that we left behind would hold a copy of the descriptor.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
