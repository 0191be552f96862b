# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine as the rooms see it.

Implemented by ``_node/module.py`` (Ansible) and ``node/`` (standard library); tests have one on a tree of files.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar, Union

from .value import frozen

# What timeout(1) answers for a program that took too long.
TIMED_OUT = 124


@frozen
class Completed:
    """What a command left: exit status, output and error text."""

    status: int
    output: str
    errors: str

    @property
    def timed_out(self) -> bool:
        """Whether it was ended, because it took longer than it had."""
        return self.status == TIMED_OUT


@frozen
class BusCall:
    """A method of an object on D-Bus with its arguments: a text, or several as one array."""

    path: str
    interface: str
    member: str
    arguments: Tuple[Union[str, Tuple[str, ...]], ...] = ()


T = TypeVar("T")
Identity = Tuple[str, str]
"""The files of a certificate, and of its key."""


class Files(Protocol):
    """Files by absolute path. Methods raise ``OSError`` as the system calls do, unless they say otherwise."""

    def read(self, path: str) -> str:
        """The whole text of a file, undecodable bytes kept as surrogates."""

    def read_optional(self, path: str) -> Optional[str]:
        """The same, or None where the file (or a folder on the way) is not there."""

    def read_part(self, path: str, offset: int, size: int, *, exclusive: bool = False) -> bytes:
        """Bytes of a file or block device, fewer at its end.

        ``exclusive``: with EBUSY where the kernel has the device claimed, such as mounted or for an array (open(2)).
        """

    def exists(self, path: str) -> bool:
        """Whether the path, links followed, is there."""

    def is_folder(self, path: str) -> bool:
        """Whether the path, links followed, is a folder."""

    def names(self, path: str) -> Tuple[str, ...]:
        """The sorted names in a folder; none where it is not there."""

    def resolve(self, path: str) -> str:
        """The path with all links resolved."""

    def link(self, path: str) -> str:
        """What a link says; empty where there is none. Where it leads is not looked at: that file system may hang."""

    def version(self, path: str) -> str:
        """What changes whenever the file is written or replaced, also by the same text; empty where it is not there."""

    def checksum(self, path: str) -> str:
        """The CRC-32 of a file in hexadecimal, a hyphen and its size; empty where it is not there."""

    def modified(self, path: str) -> int:
        """When the file, links followed, was written last, in nanoseconds since 1970; 0 where it is not there."""

    def status(self, path: str) -> Optional[os.stat_result]:
        """Owner, mode and number of names of a file or folder, links followed; None where nothing is to be seen."""

    def mode(self, path: str) -> int:
        """The permission bits of a file or folder, links followed."""

    def writable(self, path: str) -> bool:
        """Whether access(2) would let us write it: false on a read-only file system, also for root."""

    def free(self, path: str) -> int:
        """How many bytes the file system of a folder has for files of root."""

    def write_attribute(self, path: str, value: str) -> None:
        """Hand a value to a file of the kernel by one write(2)."""

    def replace(self, path: str, text: str, mode: int = 0o644) -> None:
        """Give a file a new text atomically and durably: after a crash it has the old text or the new one.

        Owner, mode and SELinux context of an existing file stay, missing folders are made. A link to a foreign file
        stays a link, and one in our own folders is replaced. Raises ``OSError`` (EINVAL) on a managed file that is a
        link, and on what is not a regular file.
        """

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine. Raises ``OSError`` (EINVAL) as ``replace`` does."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder if it is empty; one that is not, or is not there, stays as it is."""

    def lock(self, path: str, timeout: float) -> Lock:
        """A context that holds an exclusive lock; raises ``TimeoutError`` after ``timeout`` seconds."""


class Lock(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(self, *exc: object) -> Optional[bool]: ...


class Commands(Protocol):
    def find(self, name: str) -> Optional[str]:
        """The absolute path of a program on the system's path (the sbin folders included), or None."""

    def run(self, argv: Sequence[str], *, timeout: float = 60.0, data: str = "") -> Completed:
        """Run a program in the C locale, without a shell. Raises ``FileNotFoundError`` when it is not there.

        One that takes longer than ``timeout`` seconds is ended with its children and leaves status 124, as timeout(1)
        does. What a program leaves running is not waited for. ``data`` is what it reads from its standard input. Raises
        ``OSError`` (EFBIG) where it says more than ``_machine.programs`` keeps.
        """


class Nvml(Protocol):
    """The NVIDIA driver, in a process of its own."""

    def begin(self) -> None:
        """Start to load the driver's library in the background; errors come with the first question."""

    def ask(self, question: Callable[..., T], *arguments: Any) -> T:
        """What ``question(driver, *arguments)`` answers, where ``driver`` is a ``_nvidia.driver.Driver``.

        The question is a function of a module, its arguments and answer what pickle takes. Raises
        ``NoDriver``, ``NoBinding`` or ``DriverHangs`` of ``_nvidia.errors`` (at once,
        after the first time), or what it raises.
        """

    def close(self) -> None:
        """Let go of the driver; the next question opens it again."""


class Host(Protocol):
    """One machine. Nothing in it asks for check mode: a plan decides what is written, not the host."""

    @property
    def files(self) -> Files: ...

    @property
    def commands(self) -> Commands: ...

    @property
    def nvml(self) -> Nvml: ...

    @property
    def may_change(self) -> bool:
        """Whether we run as root, or on a recorded tree."""

    def http_get(self, socket: str, target: str, identity: Optional[Identity] = None) -> str:
        """What a daemon answers to GET ``target`` on its socket, or at its address such as ``127.0.0.1:9400``.

        With an ``identity`` it is asked by TLS.

        Raises ``OSError`` as ``unix_http``, also where it takes longer than a look has time.
        Where systemd listens for a daemon, this starts it: look first whether it runs.
        """

    def ask_systemd(self, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        """What methods of systemd's own objects return, None for an error. Raises ``OSError`` as ``message_bus``."""

    def ask_service(self, service: str, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        """The same of a service on the system bus, by its name there. All are None where it does not run."""

    def journal(self, message: str, fields: Mapping[str, str]) -> None:
        """One structured line in the system's journal; silently nothing where there is none."""


# How the name of a file ends that is not in its place yet.
TEMPORARY = ".gpufleet-tmp"


def temporary_of(target: str) -> str:
    """The file beside ``target`` that becomes it. No daemon reads this ending, should a killed run leave it."""
    folder, name = os.path.split(target)
    return f"{folder}/.{name}{TEMPORARY}"
