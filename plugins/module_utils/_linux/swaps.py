# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Swap as the kernel has it in /proc/swaps, and what of the memory is left for it (proc(5))."""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from .._core.errors import CannotLook
from .._core.value import frozen
from .._machine.numbers import number_of
from .mounts import decode
from .numa import parse_meminfo

if TYPE_CHECKING:
    from .._core.protocols import Files

PATH = "/proc/swaps"
MEMINFO = "/proc/meminfo"
OVERCOMMIT = "/proc/sys/vm/overcommit_memory"
# Path, type, size, used, priority.
FIELDS = 5
DELETED = " (deleted)"
NEVER_OVERCOMMIT = "2"
MIB = 1024
# What stays free when all that was swapped is back in memory, so that nothing is killed for it.
RESERVE_SHARE = 20
LEAST_RESERVE_KB, MOST_RESERVE_KB = 128 * MIB, 4096 * MIB
# The part of the limit that swapoff(8) itself may not use; its own size is far below 32 times that.
OWN_SHARE_KB = MIB


@frozen
class Area:
    """An area that is in use. ``path`` is what the kernel calls it; a file may be ``deleted`` while it is."""

    path: str
    size_kb: int
    used_kb: int
    priority: int
    deleted: bool = False


@frozen
class Memory:
    """What a swapoff has to get by with, in kB. ``overcommits`` is false where vm.overcommit_memory is 2."""

    total_kb: int
    available_kb: int
    commit_limit_kb: int
    committed_kb: int
    overcommits: bool

    @property
    def reserve_kb(self) -> int:
        return min(max(self.total_kb // RESERVE_SHARE, LEAST_RESERVE_KB), MOST_RESERVE_KB)


def read_areas(files: Files) -> Tuple[Area, ...]:
    """The areas in use; none on a kernel without swap. Raises ``CannotLook`` on a line that cannot be read."""
    return tuple(map(_area, (files.read_optional(PATH) or "").splitlines()[1:]))


def read_memory(files: Files) -> Memory:
    """Raises ``CannotLook`` where the kernel does not say how much there is."""
    values = parse_meminfo(files.read(MEMINFO))
    for name in ("MemTotal", "MemAvailable"):
        if name not in values:
            raise CannotLook("read {}", object=MEMINFO, cause=f"it does not list {name}")
    return Memory(
        total_kb=values["MemTotal"],
        available_kb=values["MemAvailable"],
        commit_limit_kb=values.get("CommitLimit", 0),
        committed_kb=values.get("Committed_AS", 0),
        overcommits=(files.read_optional(OVERCOMMIT) or "").strip() != NEVER_OVERCOMMIT,
    )


def obstacle(areas: Tuple[Area, ...], memory: Memory) -> str:
    """Why these areas cannot be switched off one after the other, with the numbers; empty where they can.

    What is swapped comes back into memory, and the kernel kills the process that asked for it first when that does not
    fit. With vm.overcommit_memory=2 it charges the whole area before, and refuses (mm/swapfile.c).
    """
    used = sum(area.used_kb for area in areas)
    if used and used + memory.reserve_kb > memory.available_kb:
        return (
            f"{used // MIB} MiB are swapped, and of {memory.available_kb // MIB} MiB of available memory "
            f"{memory.reserve_kb // MIB} MiB are to stay free"
        )
    limit = memory.commit_limit_kb
    for area in areas:
        if not memory.overcommits and memory.committed_kb + area.size_kb > limit - OWN_SHARE_KB:
            return (
                f"with vm.overcommit_memory=2 the kernel charges all {area.size_kb // MIB} MiB of {area.path}, and of "
                f"the limit of {limit // MIB} MiB there are {memory.committed_kb // MIB} MiB committed"
            )
        limit -= area.size_kb
    return ""


def _area(line: str) -> Area:
    fields = line.split()
    if len(fields) != FIELDS:
        raise CannotLook("read {}", object=PATH, cause=f"it has a line of {len(fields)} fields, not {FIELDS}")
    path = decode(fields[0])
    deleted = path.endswith(DELETED)
    size, used, priority = (number_of(field, PATH) for field in fields[2:])
    return Area(path[: -len(DELETED)] if deleted else path, size, used, priority, deleted)
