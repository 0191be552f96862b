# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A recorded tree in place of the machine.

Every absolute path means the tree, with links resolved inside it; nothing outside is read or written, no command
runs and no journal is written. The idea is hwloc's ``HWLOC_FSROOT``.
"""

from __future__ import annotations

import errno
import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, TypeVar

from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed, temporary_of
from ansible_collections.gpufleet.node.plugins.module_utils._machine.files import (
    LocalFiles,
    content_of,
    refuse_non_regular,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import BusCall, Nvml

T = TypeVar("T")

ALL_POOLS = "/sys/kernel/mm/hugepages"
POOL = re.compile(rf"({ALL_POOLS}|/sys/devices/system/node/node\d+/hugepages)/(hugepages-\d+kB)/nr_hugepages")


class RecordedFiles(LocalFiles):
    """Files below ``root``. A tunable keeps the kernel's way of writing it: the brackets move, the newline stays.

    New huge pages are free ones, and those of a node count among all.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        # Folders by path, as the inode that was found there and the path without links. Most paths that are asked for
        # lie in one of few folders, and a look asks for thousands.
        self._folders: Dict[str, Tuple[Tuple[int, int], str]] = {}

    def resolve(self, path: str) -> str:
        folder, _slash, name = path.rpartition("/")
        place = self._folder(folder) if name not in ("", ".", "..") else None
        if place is None:
            return self._follow(path)
        try:
            os.readlink(f"{self.root}{place}/{name}")
        except (OSError, ValueError):
            return f"{place}/{name}"
        return self._follow(path)

    def _folder(self, path: str) -> Optional[str]:
        """The path of a folder without links, from the root as ""; None for one that the system does not find."""
        try:
            status = os.stat(self.root + path)
            inode = (status.st_dev, status.st_ino)
            known = self._folders.get(path)
            if known is None or known[0] != inode:
                place = self._follow(path).rstrip("/")
                if not os.path.samestat(status, os.stat(self.root + place)):
                    # What the system found is not of this tree.
                    return None
                known = self._folders[path] = (inode, place)
        except (OSError, ValueError):
            return None
        return known[1]

    def _follow(self, path: str) -> str:
        """Follow every link on the way."""
        parts = [part for part in reversed(path.split("/")) if part]
        done = ""
        links = 0
        while parts:
            part = parts.pop()
            if part == ".":
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            candidate = f"{done}/{part}"
            try:
                target = os.readlink(self.root + candidate)
            except ValueError:
                # The name of no file leads nowhere.
                return os.path.normpath("/".join((candidate, *reversed(parts))))
            except OSError as error:
                done = candidate
                if error.errno in (errno.ENOENT, errno.ENOTDIR) and ".." not in parts:
                    # Nothing is below what is not there.
                    return os.path.normpath("/".join((done, *reversed(parts))))
                continue
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done = ""
            parts.extend(piece for piece in reversed(target.split("/")) if piece)
        return done or "/"

    def locate(self, path: str) -> str:
        return self.root + self.resolve(path)

    def read_bytes(self, path: str) -> bytes:
        folder, _slash, name = path.rpartition("/")
        place = self._folder(folder) if name not in ("", ".", "..") else None
        if place is not None:
            try:
                # Most are no links, which the system finds out as it opens them.
                return content_of(f"{self.root}{place}/{name}", os.O_NOFOLLOW)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    error.filename = path
                    raise
        return super().read_bytes(path)

    def exists(self, path: str) -> bool:
        try:
            return super().exists(path)
        except (OSError, ValueError):
            # A name that no file can have, as os.path.exists has it.
            return False

    def remove(self, path: str) -> None:
        refuse_non_regular(self, path, removes=True)
        # The last link itself is what goes, not what it points to.
        folder, name = os.path.split(path)
        target = f"{self.locate(folder)}/{name}"
        for there in (temporary_of(target), target):
            if os.path.lexists(there):
                os.unlink(there)

    def move(self, source: str, target: str) -> None:
        if os.path.exists(target):
            status = os.stat(target)
            if os.geteuid() == 0:
                os.chown(source, status.st_uid, status.st_gid)
            # After chown, which clears the setuid bits.
            os.chmod(source, status.st_mode & 0o7777)
        os.replace(source, target)

    def write_attribute(self, path: str, value: str) -> None:
        pool = POOL.fullmatch(self.resolve(path))
        if pool is None:
            self.store(path, value)
            return
        if not value.isdecimal():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        added = int(value) - int(self.read(path))
        self.store(path, value)
        self._add(f"{pool[1]}/{pool[2]}/free_hugepages", added)
        if pool[1] != ALL_POOLS:
            self._add(f"{ALL_POOLS}/{pool[2]}/nr_hugepages", added)
            self._add(f"{ALL_POOLS}/{pool[2]}/free_hugepages", added)

    def store(self, path: str, value: str) -> None:
        """Give a tunable a value that nothing else follows from."""
        current = self.read(path)
        if re.search(r"\[\S+\]", current):
            words = [word.strip("[]") for word in current.split()]
            if value not in words:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            value = " ".join(f"[{word}]" if word == value else word for word in words)
        with open(self.locate(path), "r+b") as stream:
            stream.truncate()
            stream.write(value.encode() + (b"\n" if current.endswith("\n") else b""))

    def _add(self, path: str, pages: int) -> None:
        current = self.read_optional(path)
        if current is not None:
            self.store(path, str(int(current) + pages))


class RecordedCommands:
    """No program of the host belongs to a recorded tree."""

    def find(self, name: str) -> Optional[str]:
        return None

    def run(self, argv: Sequence[str], *, timeout: float = 60.0, data: str = "") -> Completed:
        raise FileNotFoundError(errno.ENOENT, "a recorded tree runs no commands", argv[0])


def recorded_answer(files: RecordedFiles, socket: str, target: str) -> str:
    """What a daemon answered when the tree was recorded: for ``/info`` on ``/run/docker.sock`` the file
    ``/run/docker.sock.http/info``. Without it nobody listens.
    """
    try:
        return files.read(f"{socket}.http{target}")
    except OSError as error:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED), socket) from error


def no_systemd() -> OSError:
    """What comes of a question to systemd itself, which no tree has."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/run/systemd/private")


class NoNvml:
    """``protocols.Nvml`` of a tree that comes without the library of a driver."""

    def begin(self) -> None:
        return None

    def ask(self, question: Callable[..., T], *arguments: Any) -> T:
        from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.errors import GOAL, NoDriver

        raise NoDriver(GOAL, cause="a recorded tree has none", hint="hand in a library with the tree")

    def close(self) -> None:
        return None


class RecordedHost:
    """``protocols.Host`` on a recorded tree. ``library`` is what it has for a driver; without one it has none."""

    def __init__(self, root: str, *, library: str = "") -> None:
        if not (os.path.isabs(root) and os.path.isdir(root)):
            raise CannotLook("use a recorded tree", object=root, cause="it is not an absolute path of a folder")
        self.files = RecordedFiles(root)
        self.commands = RecordedCommands()
        self.may_change = True
        self._library = library

    @cached_property
    def nvml(self) -> Nvml:
        if not self._library:
            return NoNvml()
        from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.nvml import LocalNvml

        return LocalNvml(self.commands, library=self._library)

    def http_get(self, socket: str, target: str, identity: Optional[Tuple[str, str]] = None) -> str:
        return recorded_answer(self.files, socket, target)

    def ask_systemd(self, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        raise no_systemd()

    def ask_service(self, service: str, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        return [None] * len(calls)

    def journal(self, message: str, fields: Mapping[str, str]) -> None:
        return None
