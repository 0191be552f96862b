# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Huge pages as the machine has them: what is in effect now, and what the next boot brings from all who have a say.

Rules from Documentation/admin-guide/mm/hugetlbpage.rst, mm/transhuge.rst and kernel-parameters.txt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, Mapping, Optional, Tuple

from ..._core.setting import Scalar
from ..._core.value import field, frozen
from ..._kinds.own_files import OwnFile
from ..._kinds.tunables import BootAssignment, Tunable
from ..._linux import numa
from ..._linux.bootloader import BootLoader
from ..._linux.numa import NumaNode

if TYPE_CHECKING:
    from ..._linux.tmpfiles_d import TmpfilesLine

NAME = "hugepages"
# The earliest name wins among files of tmpfiles.d that write the same path, so ours starts with zeros.
TMPFILES = "/etc/tmpfiles.d/00-gpufleet-hugepages.conf"
GLOBAL = "/sys/kernel/mm/hugepages"
GIGANTIC_KB = 1024 * 1024
SHORT = "the kernel found too little contiguous memory"
Values = Dict[str, Tuple[Scalar, Optional[BootAssignment]]]


@frozen
class Pool:
    """The pages of one size on one node. ``pages`` counts surplus ones too, which go when whoever uses them goes."""

    size_kb: int
    node: NumaNode
    tunable: str
    pages: int
    free: int
    surplus: int

    @property
    def lasting(self) -> int:
        """The pages that stay: what a declaration is about."""
        return self.pages - self.surplus

    @property
    def in_use(self) -> int:
        return self.pages - self.free

    @property
    def setting(self) -> str:
        return f"hugepages_{format_size(self.size_kb)}"


@frozen
class KernelArguments:
    """What the command line of the next boot says about huge pages; on most machines it says nothing."""

    our_sizes: FrozenSet[int] = frozenset()
    sources: Mapping[str, Tuple[str, int]] = field(default_factory=dict)
    """Where the arguments of others were put, by their names."""


@frozen
class HugepagesState:
    """Everything a plan needs, read once."""

    nodes: Tuple[NumaNode, ...]
    pools: Mapping[str, Pool]
    """By the path of the tunable, as ``tunables``."""
    reserved: Mapping[int, int]
    default_kb: int
    boot_default_kb: int
    """The page size that ``vm.nr_hugepages`` counts: ``default_kb`` now, ``boot_default_kb`` after the next boot."""
    tunables: Mapping[str, Tunable]
    thp_sizes: Tuple[int, ...]
    thp_kb: int
    kernel: Tuple[int, int]
    running: str
    loader: BootLoader
    tmpfiles: Tuple[TmpfilesLine, ...]
    others: Tuple[BootAssignment, ...]
    file: OwnFile
    arguments: KernelArguments
    awaited: str
    """The reasons for which a reboot is awaited, a line each."""
    holders: Tuple[str, ...] = ()

    @property
    def sizes(self) -> Tuple[int, ...]:
        return tuple(sorted({pool.size_kb for pool in self.pools.values()}))

    @property
    def foreign(self) -> Tuple[TmpfilesLine, ...]:
        """The lines of tmpfiles.d that are not ours."""
        return tuple(line for line in self.tmpfiles if line.path != TMPFILES)

    @property
    def ours(self) -> Tuple[TmpfilesLine, ...]:
        return tuple(line for line in self.tmpfiles if line.path == TMPFILES)

    def of_size(self, size_kb: int) -> Tuple[Pool, ...]:
        return tuple(pool for pool in self.pools.values() if pool.size_kb == size_kb)

    def pool(self, size_kb: int, number: Optional[int]) -> Pool:
        return next(pool for pool in self.of_size(size_kb) if pool.node.number == number)


def format_size(size_kb: int) -> str:
    """A page size as an operator writes it."""
    for unit, factor in (("G", 1024 * 1024), ("M", 1024)):
        if size_kb % factor == 0:
            return f"{size_kb // factor}{unit}"
    return f"{size_kb}K"


def thp_object(size_kb: Optional[int]) -> str:
    return "transparent_hugepages" if size_kb is None else f"transparent_hugepages_{format_size(size_kb)}"


def pool_folder(node: Optional[int], size_kb: int) -> str:
    """The folder of the pages of one size, on one node or on all together."""
    root = GLOBAL if node is None else f"{numa.FOLDER}/node{node}/hugepages"
    return f"{root}/hugepages-{size_kb}kB"


def assign(values: Values, path: str, line: BootAssignment, state: HugepagesState) -> None:
    """Let a line give one tunable its value; a pool takes only numbers."""
    number = int(line.value) if line.value.isdecimal() else None
    tunable = state.tunables.get(path)
    if tunable is not None:
        values[path] = (line.value if tunable.choices or number is None else number, line)
    elif number is not None:
        values[path] = (number, line)


def names_of(tunable: str, state: HugepagesState) -> Tuple[str, str]:
    pool = state.pools.get(tunable)
    if pool is not None:
        return pool.node.name, pool.setting
    return state.tunables[tunable].object, state.tunables[tunable].setting
