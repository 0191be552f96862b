# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes as the kernel tells them: the same one is known by its number and the moment of its start."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Collection, Dict, Iterator, Optional, Tuple

from .._core.errors import CannotLook
from .._core.regex import regex
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
# The real, effective, saved and file system user ID of a process (proc_pid_status(5)).
USER_IDS = regex(r"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", re.MULTILINE)
ROOT = "0"


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


def daemons(files: Files, names: Collection[str], units: Collection[str]) -> Iterator[Tuple[str, str]]:
    """The daemons of the machine with one of these names, cut as ``comm`` cuts them: the number and name of each.

    Any user can give a process such a name. Only those count that are in a unit with one of these names, which may have
    globs, or that root started.
    """
    for pid in ids(files):
        name = name_of(files, pid)
        if name in names and (is_started_by_root(files, pid, name) or in_unit(unit_of(files, pid), units)):
            yield pid, name


def is_started_by_root(files: Files, pid: str, name: str) -> bool:
    """Whether root runs a process, or runs its parent of the same name, as with an MPS server that a user owns."""
    if is_of_root(files, pid):
        return True
    process = read(files, int(pid))
    parent = str(process.parent) if process is not None else ""
    return bool(parent) and name_of(files, parent) == name and is_of_root(files, parent)


def is_of_root(files: Files, pid: str) -> bool:
    """Whether all four user IDs of a process are root's. A set-user-ID program that a user started has others."""
    return user_of(files, pid) == ROOT


def runs_installed(files: Files, pid: str, name: str) -> bool:
    """Whether a process runs the machine's own program of this name, cut as ``comm`` cuts it.

    Only root can have put that there. This distinguishes a daemon that runs as a user of its own from a user's process
    with its name, which runs another program.
    """
    from .._core.exposure import exposed_way

    own = f"/proc/{pid}/exe"
    try:
        path = files.link(own)
        return (
            comm(path.rpartition("/")[2]) == name
            and files.version(own) == files.version(path) != ""
            and not exposed_way(files, path)
        )
    except OSError:
        return False


def user_of(files: Files, pid: str) -> str:
    """The user ID of a process where all four that it has are the same; empty where they differ, or it has ended."""
    found = USER_IDS.search(text_of(files, pid, "status"))
    users = set(found.groups()) if found is not None else set()
    return users.pop() if len(users) == 1 else ""


def unit_of(files: Files, pid: str) -> str:
    """The unit of systemd's system manager that a process is in; empty without one."""
    return parse_cgroup(text_of(files, pid, "cgroup"))[0]


def in_unit(unit: str, units: Collection[str]) -> bool:
    """Whether a unit has one of these names, which may have globs."""
    return any(fnmatchcase(unit, pattern) for pattern in units)


def parse_cgroup(text: str) -> Tuple[str, str]:
    """The unit of systemd and the id of the container, from proc_pid_cgroup(5).

    Docker, containerd, CRI-O and podman put an id of 64 digits into the last parts of the path, alone or as a scope
    (``docker-<id>.scope``, ``cri-containerd-<id>.scope``). The unit is that of the system's own manager, so of a
    user's service it is ``user@1000.service``.
    """
    paths: Dict[str, str] = {}
    for line in text.splitlines():
        _number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        paths[controllers] = path
    # Version 2 of the hierarchy has no name; in a mixed setup systemd's own one is named.
    path = paths.get("name=systemd") or paths.get("") or next(iter(paths.values()), "")
    units = re.findall(r"(?<=/)[^/]+\.(?:service|scope)(?=/|$)", path)
    containers = re.findall(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", path)
    return (units[0] if units else ""), (containers[-1] if containers else "")


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
