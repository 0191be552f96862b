# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Huge pages as the machine has them: what is in effect now, and what the next boot brings from all who have a say.

Rules from Documentation/admin-guide/mm/hugetlbpage.rst, mm/transhuge.rst and kernel-parameters.txt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from .._core.errors import CannotLook, Scalar
from .._core.road import reboot_note
from .._host import bootloader, numa
from .._host.bootloader import BootLoader
from .._topology.numa import Node, parse_meminfo
from . import owners
from .owners import THP, Assignment

if TYPE_CHECKING:
    from .._host.protocols import Files, Host

NAME = "hugepages"
# The earliest name wins among files of tmpfiles.d that write the same path, so ours starts with zeros.
TMPFILES = "/etc/tmpfiles.d/00-gpufleet-hugepages.conf"
GLOBAL = "/sys/kernel/mm/hugepages"
GIGANTIC_KB = 1024 * 1024
COMMAND_LINE = "kernel command line"
HUGEPAGE = "hugepage"
"""What the names of all kernel arguments about huge pages have in them."""
SHORT = "the kernel found too little memory in one piece"
KHUGEPAGED = (
    "pages_to_scan",
    "scan_sleep_millisecs",
    "alloc_sleep_millisecs",
    "max_ptes_none",
    "max_ptes_swap",
    "max_ptes_shared",
)
Values = Dict[str, Tuple[Scalar, Optional[Assignment]]]


@dataclass(frozen=True)
class Pool:
    """The pages of one size on one node. ``pages`` counts surplus ones too, which go when whoever uses them goes."""

    size_kb: int
    node: Node
    knob: str
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


@dataclass(frozen=True)
class Knob:
    """One setting of transparent huge pages; ``choices`` are the words it takes, none for a number."""

    path: str
    object: str
    setting: str
    value: Scalar
    choices: Tuple[str, ...]


@dataclass(frozen=True)
class KernelArguments:
    """What the command line of the next boot says about huge pages; on most machines it says nothing."""

    our_sizes: FrozenSet[int] = frozenset()
    sources: Mapping[str, Tuple[str, int]] = field(default_factory=dict)
    """Where the arguments of others were put, by their names."""


@dataclass(frozen=True)
class State:
    """Everything a plan needs, read once."""

    nodes: Tuple[Node, ...]
    pools: Mapping[str, Pool]
    """By the path of the knob, as ``knobs``."""
    reserved: Mapping[int, int]
    default_kb: int
    knobs: Mapping[str, Knob]
    thp_sizes: Tuple[int, ...]
    thp_kb: int
    kernel: Tuple[int, int]
    running: str
    loader: BootLoader
    tmpfiles: Tuple[Assignment, ...]
    others: Tuple[Assignment, ...]
    our_text: Optional[str]
    arguments: KernelArguments
    awaited: str
    """The reasons for which a reboot is awaited, a line each."""
    read_only: Tuple[str, ...]
    holders: Tuple[str, ...] = ()

    @property
    def sizes(self) -> Tuple[int, ...]:
        return tuple(sorted({pool.size_kb for pool in self.pools.values()}))

    @property
    def foreign(self) -> Tuple[Assignment, ...]:
        """The lines of tmpfiles.d that are not ours."""
        return tuple(line for line in self.tmpfiles if line.path != TMPFILES)

    @property
    def ours(self) -> Tuple[Assignment, ...]:
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


def read_state(host: Host, *, every_knob: bool) -> State:
    """Look at the machine. ``every_knob`` adds the settings for each size of transparent huge pages."""
    files = host.files
    meminfo = parse_meminfo(files.read("/proc/meminfo"))
    default_kb = meminfo.get("Hugepagesize", 0)
    nodes = numa.read_nodes(files, meminfo)
    sizes = _sizes(files.names(GLOBAL))
    pools = {pool.knob: pool for size_kb in sizes for node in nodes for pool in _pools(files, size_kb, node)}
    thp_sizes = _sizes(files.names(THP))
    knobs = _read_knobs(files, thp_sizes if every_knob else ())
    release = re.match(r"(\d+)\.(\d+)", files.read_optional("/proc/sys/kernel/osrelease") or "")
    running = (files.read_optional("/proc/cmdline") or "").strip()
    loader = bootloader.detect(host, NAME, running)
    arguments = KernelArguments()
    if loader.carried or HUGEPAGE in loader.command_line:
        from .command_line import read_arguments

        arguments = read_arguments(files, loader)
    tmpfiles = owners.read_tmpfiles(files)
    first = next((path for path in (*pools, *knobs)), None)
    etc = "/etc/tmpfiles.d" if files.exists("/etc/tmpfiles.d") else "/etc"
    return State(
        nodes=nodes,
        pools=pools,
        reserved={size_kb: read_number(files, f"{pool_folder(None, size_kb)}/resv_hugepages") for size_kb in sizes},
        default_kb=default_kb,
        knobs=knobs,
        thp_sizes=thp_sizes,
        thp_kb=read_number(files, f"{THP}/hpage_pmd_size") // 1024,
        kernel=(int(release[1]), int(release[2])) if release else (0, 0),
        running=running,
        loader=loader,
        tmpfiles=tuple(line for path, text in tmpfiles.items() for line in owners.parse_tmpfiles(path, text)),
        others=(*owners.read_sysctl(files), *owners.read_tuned(files)),
        our_text=tmpfiles.get(TMPFILES),
        arguments=arguments,
        awaited=files.read_optional(reboot_note(NAME)) or "",
        read_only=tuple(path for path in (first, etc) if path and host.may_change and not files.writable(path)),
    )


def boot_values(state: State, *, ours: Sequence[Assignment], command_line: str) -> Values:
    """What each knob is after the next boot, and who says so; None where nobody does and the kernel's default stays.

    The command line comes first, tuned last; systemd-sysctl and systemd-tmpfiles between do not wait for each other.
    """
    values: Values = {}
    values.update((path, (0, None)) for path in state.pools)
    values.update((path, (None, None)) for path in state.knobs)
    at_boot = [line for line in state.others if line.at_boot]
    # Sorted by file name as read: all names that sort before ours stay before it.
    earlier = [line for line in state.foreign if line.path.rpartition("/")[2] < TMPFILES.rpartition("/")[2]]
    later = [line for line in state.foreign if line not in earlier]
    for line in [
        *command_line_assignments(state, command_line),
        *(line for line in at_boot if line.owner != "tuned"),
        *owners.in_effect([*earlier, *ours, *later]),
        *(line for line in at_boot if line.owner == "tuned"),
    ]:
        if line.knob in values:
            assign(values, line.knob, line, state)
        else:
            from .patterns import assign_all

            assign_all(values, line, state)
    return values


def command_line_assignments(state: State, command_line: str) -> List[Assignment]:
    """What a command line says, as assignments."""
    if HUGEPAGE not in command_line:
        return []
    from .command_line import parse_assignments

    return parse_assignments(state, command_line)


def assign(values: Values, path: str, line: Assignment, state: State) -> None:
    """Let a line give one knob its value; a pool takes only numbers."""
    number = int(line.value) if line.value.isdigit() else None
    knob = state.knobs.get(path)
    if knob is not None:
        values[path] = (line.value if knob.choices or number is None else number, line)
    elif number is not None:
        values[path] = (number, line)


def _pools(files: Files, size_kb: int, node: Node) -> Tuple[Pool, ...]:
    folder = pool_folder(node.number, size_kb)
    if not files.exists(f"{folder}/nr_hugepages"):
        return ()
    total, free, surplus = (read_number(files, f"{folder}/{name}_hugepages") for name in ("nr", "free", "surplus"))
    return (Pool(size_kb, node, f"{folder}/nr_hugepages", total, free, surplus),)


def _read_knobs(files: Files, thp_sizes: Sequence[int]) -> Dict[str, Knob]:
    rows = [(f"{THP}/{name}", thp_object(None)) for name in ("enabled", "defrag", "shmem_enabled")]
    rows += [(f"{THP}/khugepaged/{name}", "khugepaged") for name in ("defrag", *KHUGEPAGED)]
    for size_kb in thp_sizes:
        rows += [(f"{THP}/hugepages-{size_kb}kB/{name}", thp_object(size_kb)) for name in ("enabled", "shmem_enabled")]
    knobs = {}
    for path, object_ in rows:
        text = files.read_optional(path)
        if text is not None:
            words = text.split()
            active = next((word[1:-1] for word in words if word.startswith("[")), None)
            value: Scalar = active or (int(text) if text.strip().isdigit() else text.strip())
            choices = tuple(word.strip("[]") for word in words) if active else ()
            knobs[path] = Knob(path, object_, path.rpartition("/")[2], value, choices)
    return knobs


def _sizes(names: Sequence[str]) -> Tuple[int, ...]:
    matches = (re.fullmatch(r"hugepages-(\d+)kB", name) for name in names)
    return tuple(sorted(int(match[1]) for match in matches if match))


def read_number(files: Files, path: str) -> int:
    text = files.read_optional(path) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise CannotLook("read the huge pages", object=path, cause=f"{text[:80].strip()!r} is no number") from error
