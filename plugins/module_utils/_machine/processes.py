# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes as the kernel tells them: the same one is known by its number and the moment of its start."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Collection, Iterator, Optional

from .._core.errors import CannotLook
from .._core.value import frozen
from .numbers import number_of

if TYPE_CHECKING:
    from .._core.protocols import Files

# Where systemd has its slices, with either version of the hierarchy, and in which of them most services are.
SLICES, SYSTEM = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd"), "system.slice"
# Of pods, sessions and virtual machines there may be hundreds, and no service of the machine is below them.
OF_OTHERS = ("kubepods.slice", "machine.slice", "user.slice")
# USER_HZ, in which the kernel tells times to programs on every architecture that has these GPUs.
TICKS = 100
NANOSECONDS = 1_000_000_000
# btime is a whole second, and moves by one now and then.
SLACK = 2 * NANOSECONDS


@frozen
class Process:
    """``start`` is in ``TICKS`` of a second since the boot: numbers are used again, pairs of both are not."""

    pid: int
    parent: int
    start: int

    @property
    def identity(self) -> str:
        return f"{self.pid}:{self.start}"

    @property
    def since_boot(self) -> int:
        """When it began, in nanoseconds since the boot."""
        return self.start * (NANOSECONDS // TICKS)


def read(files: Files, pid: int) -> Optional[Process]:
    """A process that runs, or None for one that has ended, also where nobody has taken notice of that yet."""
    text = text_of(files, str(pid), "stat")
    # proc_pid_stat(5): the name in brackets may hold anything; state, parent and start are fields 3, 4 and 22.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    parent, start = (number_of(fields[index], f"/proc/{pid}/stat") for index in (1, 19))
    return Process(pid, parent=parent, start=start)


def started(files: Files, process: Process) -> int:
    """When a process began, in nanoseconds since 1970, to about a second.

    Raises ``CannotLook`` where the kernel does not say when it was booted.
    """
    boot = booted(files)
    if boot is None:
        raise CannotLook("tell when a process began", object="/proc/stat", cause="it has no btime")
    return boot + process.since_boot


def booted(files: Files) -> Optional[int]:
    """When the kernel was booted, in nanoseconds since 1970, to about a second; None where it does not say."""
    for line in (files.read_optional("/proc/stat") or "").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) * NANOSECONDS
    return None


def began_after(files: Files, process: Process, path: str) -> bool:
    """Whether a file was written last before the process began, which then has read it as it is: to about a second."""
    return files.modified(path) <= started(files, process) + SLACK


def ids(files: Files) -> Iterator[str]:
    """The numbers of all processes, the threads of the kernel among them."""
    return filter(str.isdigit, files.names("/proc"))


def of_service(files: Files, unit: str) -> Iterator[str]:
    """The numbers of the processes of a service of the machine, in the order of its control group.

    One that has another slice (``Slice=``), as a daemon that is confined to some CPUs, is looked for in all of them.
    """
    for folder in chain((f"{root}/{SYSTEM}" for root in SLICES), _slices(files)):
        found = (files.read_optional(f"{folder}/{unit}/cgroup.procs") or "").split()
        if found:
            yield from found
            return


def main_of_service(files: Files, unit: str, names: Collection[str]) -> Optional[Process]:
    """The first process of a service that has one of these names, cut as ``comm`` cuts them; None where none runs."""
    for pid in of_service(files, unit):
        if pid.isdecimal() and name_of(files, pid) in names:
            process = read(files, int(pid))
            if process is not None:
                return process
    return None


def _slices(files: Files) -> Iterator[str]:
    """The slices that services may have been given, those in others too."""
    folders = list(SLICES)
    for folder in folders:
        inner = [name for name in files.names(folder) if name.endswith(".slice") and name not in OF_OTHERS]
        folders += (f"{folder}/{name}" for name in inner)
        yield from (f"{folder}/{name}" for name in inner if name != SYSTEM)


def text_of(files: Files, pid: str, name: str) -> str:
    """A file of a process, empty where it ended while we read."""
    try:
        return files.read_optional(f"/proc/{pid}/{name}") or ""
    except ProcessLookupError:
        return ""


def opened(files: Files, pid: object) -> Iterator[str]:
    """What a process has open, as the links in /proc name it; none is followed. Raises ``OSError`` where it ended."""
    folder = f"/proc/{pid}/fd"
    return (files.link(f"{folder}/{number}") for number in files.names(folder))


def name_of(files: Files, pid: str) -> str:
    """The name of a process as ``comm`` has it, empty where there is none."""
    return text_of(files, pid, "comm").strip()


def comm(command: str) -> str:
    """A command as ``/proc/<pid>/comm`` has it, which keeps 15 characters."""
    return command[:15]
