# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Huge pages as the machine has them: what is in effect now, and what the next boot brings from all who have a say.

Rules from Documentation/admin-guide/mm/hugetlbpage.rst, mm/transhuge.rst and kernel-parameters.txt.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from .._core import before
from .._core.errors import Scalar
from .._core.road import REBOOT_FOLDER
from .._host import bootloader, numa
from .._host.bootloader import BootLoader
from .._topology.numa import Node, parse_meminfo, spread
from . import owners
from .owners import SYSCTL_KNOB, THP, Assignment

if TYPE_CHECKING:
    from .._host.protocols import Files, Host

NAME = "hugepages"
# The earliest name wins among files of tmpfiles.d that write the same path, so ours starts with zeros.
TMPFILES = "/etc/tmpfiles.d/00-gpufleet-hugepages.conf"
GLOBAL = "/sys/kernel/mm/hugepages"
GIGANTIC_KB = 1024 * 1024
COMMAND_LINE = "kernel command line"
SHORT = "the kernel found too little memory in one piece"
THP_ARGUMENTS = {"transparent_hugepage": "enabled", "transparent_hugepage_shmem": "shmem_enabled"}
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
    our_sizes: FrozenSet[int]
    sources: Mapping[str, Tuple[str, int]]
    """Where an argument of the command line was put, by its name."""
    short: FrozenSet[str]
    """The beginnings of the reasons for which a reboot is awaited."""
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
    argued = [name for name in ("hugepages", *THP_ARGUMENTS) if f"{name}=" in loader.command_line]
    tmpfiles = owners.read_tmpfiles(files)
    first = next((path for path in (*pools, *knobs)), None)
    etc = "/etc/tmpfiles.d" if files.exists("/etc/tmpfiles.d") else "/etc"
    return State(
        nodes=nodes,
        pools=pools,
        reserved={size_kb: _number(files, f"{_folder(GLOBAL, size_kb)}/resv_hugepages") for size_kb in sizes},
        default_kb=default_kb,
        knobs=knobs,
        thp_sizes=thp_sizes,
        thp_kb=_number(files, f"{THP}/hpage_pmd_size") // 1024,
        kernel=(int(release[1]), int(release[2])) if release else (0, 0),
        running=running,
        loader=loader,
        tmpfiles=tuple(line for path, text in tmpfiles.items() for line in owners.parse_tmpfiles(path, text)),
        others=(*owners.read_sysctl(files), *owners.read_tuned(files)),
        our_text=tmpfiles.get(TMPFILES),
        our_sizes=_our_sizes(files, loader, pools, nodes, default_kb),
        sources=bootloader.find_sources(files, loader, argued),
        short=frozenset(_reasons(files.read_optional(f"{REBOOT_FOLDER}/{NAME}") or "")),
        read_only=tuple(path for path in (first, etc) if path and host.may_change and not files.writable(path)),
    )


def read_holders(files: Files) -> Tuple[str, ...]:
    """The processes that hold huge pages, most first: ``HugetlbPages`` in proc_pid_status(5)."""
    found: List[Tuple[int, str]] = []
    for pid in files.names("/proc"):
        if pid.isdigit():
            try:
                text = files.read_optional(f"/proc/{pid}/status") or ""
            except OSError:
                continue  # It ended while we looked.
            held = parse_meminfo(text).get("HugetlbPages", 0)
            if held:
                name = re.search(r"^Name:\s*(.+)$", text, re.MULTILINE)
                found.append((held, f"{name[1] if name else '?'} (pid {pid}, {held // 1024} MiB)"))
    return tuple(text for _held, text in sorted(found, reverse=True))


def boot_values(state: State, *, ours: Sequence[Assignment], command_line: str) -> Values:
    """What each knob is after the next boot, and who says so; None where nobody does and the kernel's default stays.

    The command line comes first, tuned last; systemd-sysctl and systemd-tmpfiles between do not wait for each other.
    """
    values: Values = {}
    values.update((path, (0, None)) for path in state.pools)
    values.update((path, (None, None)) for path in state.knobs)
    for line in command_line_assignments(state, command_line):
        _assign(values, line, state)
    at_boot = [line for line in state.others if line.at_boot]
    # Sorted by file name as read: all names that sort before ours stay before it.
    earlier = [line for line in state.foreign if line.path.rpartition("/")[2] < TMPFILES.rpartition("/")[2]]
    later = [line for line in state.foreign if line not in earlier]
    written = owners.in_effect([*earlier, *ours, *later])
    for line in [
        *(line for line in at_boot if line.owner != "tuned"),
        *written,
        *(line for line in at_boot if line.owner == "tuned"),
    ]:
        _assign(values, line, state)
    return values


def command_line_assignments(state: State, command_line: str) -> List[Assignment]:
    """What a command line says, as assignments. A count per node goes to the node's knob, a total to the global one."""
    found = []
    for size_kb, value in parse_pages(command_line, state.default_kb).items():
        path, line = _source(state, "hugepages")
        for node, count in value.items():
            knob = f"{_folder(GLOBAL if node is None else _node_root(node), size_kb)}/nr_hugepages"
            found.append(Assignment(COMMAND_LINE, path, line, knob, str(count), later=False))
    for word in command_line.split():
        name, _equals, text = word.partition("=")
        if name in THP_ARGUMENTS:
            path, line = _source(state, name)
            found.append(Assignment(COMMAND_LINE, path, line, f"{THP}/{THP_ARGUMENTS[name]}", text, later=False))
    return found


def parse_pages(command_line: str, default_kb: int) -> Dict[int, Dict[Optional[int], int]]:
    """``hugepages=`` by page size and node (None: a total over all nodes). The first of each size counts."""
    found: Dict[int, Dict[Optional[int], int]] = {}
    size_kb = default_kb
    for word in command_line.split():
        name, _equals, text = word.partition("=")
        if name in ("hugepagesz", "default_hugepagesz"):
            match = re.fullmatch(r"(\d+)([KMGkmg]?)", text)
            factor = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
            size_kb = int(match[1]) * factor[match[2].upper()] // 1024 if match else 0
        elif name == "hugepages" and size_kb and size_kb not in found:
            if re.fullmatch(r"\d+", text):
                found[size_kb] = {None: int(text)}
            elif re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text):
                pairs = (part.split(":") for part in text.split(","))
                found[size_kb] = {int(node): int(count) for node, count in pairs}
    return found


def arguments_of_sizes(command_line: str, sizes: FrozenSet[int]) -> Tuple[str, ...]:
    """The arguments on a command line that reserve pages of these sizes, in the form in which we write them."""
    words = command_line.split()
    found: List[str] = []
    for first, second in zip(words, words[1:]):
        pair = first.startswith("hugepagesz=") and second.startswith("hugepages=")
        if pair and set(parse_pages(f"{first} {second}", 0)) & sizes:
            found += [first, second]
    return tuple(found)


def touches(line: Assignment, knob: str, state: State) -> bool:
    """Whether an assignment has a say in a knob, also by the total over all nodes."""
    pool = state.pools.get(knob)
    return any(_names(line, name) for name in ([knob] if pool is None else [knob, *_global_knobs(pool.size_kb, state)]))


def is_total(line: Assignment, pool: Pool, state: State) -> bool:
    """Whether an assignment is about the pages of all nodes together."""
    return (
        pool.node.number is not None
        and not _names(line, pool.knob)
        and any(_names(line, name) for name in _global_knobs(pool.size_kb, state))
    )


def _names(line: Assignment, knob: str) -> bool:
    return line.knob == knob or (("*" in line.knob or "?" in line.knob) and fnmatch.fnmatch(knob, line.knob))


def _source(state: State, argument: str) -> Tuple[str, Optional[int]]:
    return state.sources.get(argument, ("/proc/cmdline", None))


def _assign(values: Values, line: Assignment, state: State) -> None:
    number = int(line.value) if line.value.isdigit() else None
    for path, knob in state.knobs.items():
        if touches(line, path, state):
            values[path] = (line.value if knob.choices or number is None else number, line)
    if number is None:
        return
    for size_kb in state.sizes:
        pools = state.of_size(size_kb)
        if any(is_total(line, pool, state) for pool in pools):
            # A total that is there already leaves the distribution alone; another one is spread evenly.
            if sum(int(values[pool.knob][0] or 0) for pool in pools) != number:
                shares = spread(number, [pool.node.number or 0 for pool in pools if pool.node.total_kb])
                values.update((pool.knob, (shares.get(pool.node.number or 0, 0), line)) for pool in pools)
        else:
            values.update((pool.knob, (number, line)) for pool in pools if touches(line, pool.knob, state))


def _our_sizes(
    files: Files, loader: BootLoader, pools: Mapping[str, Pool], nodes: Sequence[Node], default_kb: int
) -> FrozenSet[int]:
    """The sizes whose arguments at the next boot are ours: in a file of ours, or changed since we first came."""
    sizes = set(parse_pages(" ".join(loader.carried), 0))
    there = parse_pages(loader.command_line, default_kb)
    if set(there) - sizes:
        found = before.load(files, NAME).found
        memory = [node.number or 0 for node in nodes if node.total_kb]
        for pool in pools.values():
            first = found.get((pool.knob, pool.setting))
            counts = there.get(pool.size_kb, {})
            number = pool.node.number
            if None in counts and number is not None:
                count = spread(counts[None], memory).get(number, 0)
            else:
                count = counts.get(number, 0)
            if pool.size_kb in there and first is not None and first.boot != count:
                sizes.add(pool.size_kb)
    return frozenset(sizes)


def _pools(files: Files, size_kb: int, node: Node) -> Tuple[Pool, ...]:
    root = GLOBAL if node.number is None else _node_root(node.number)
    folder = _folder(root, size_kb)
    knob = f"{folder}/nr_hugepages"
    pages = files.read_optional(knob)
    if pages is None:
        return ()
    free, surplus = (_number(files, f"{folder}/{name}_hugepages") for name in ("free", "surplus"))
    return (Pool(size_kb, node, knob, int(pages), free, surplus),)


def _read_knobs(files: Files, thp_sizes: Sequence[int]) -> Dict[str, Knob]:
    rows = [(f"{THP}/{name}", thp_object(None)) for name in ("enabled", "defrag", "shmem_enabled")]
    numbers = ("defrag", "pages_to_scan", "scan_sleep_millisecs", "alloc_sleep_millisecs")
    limits = ("max_ptes_none", "max_ptes_swap", "max_ptes_shared")
    rows += [(f"{THP}/khugepaged/{name}", "khugepaged") for name in (*numbers, *limits)]
    for size_kb in thp_sizes:
        rows += [(f"{_folder(THP, size_kb)}/{name}", thp_object(size_kb)) for name in ("enabled", "shmem_enabled")]
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


def _reasons(text: str) -> List[str]:
    """What each reason for a reboot is about, without the value that was found then."""
    found = []
    for line in text.splitlines():
        match = re.match(r"(\S+ \S+) is \S+, wanted (\S+): ", line)
        if match:
            found.append(f"{match[1]} {match[2]}")
    return found


def _sizes(names: Sequence[str]) -> Tuple[int, ...]:
    matches = (re.fullmatch(r"hugepages-(\d+)kB", name) for name in names)
    return tuple(sorted(int(match[1]) for match in matches if match))


def _global_knobs(size_kb: int, state: State) -> List[str]:
    folder = _folder(GLOBAL, size_kb)
    knobs = [f"{folder}/nr_hugepages", f"{folder}/nr_hugepages_mempolicy"]
    return [*knobs, SYSCTL_KNOB] if size_kb == state.default_kb else knobs


def _folder(root: str, size_kb: int) -> str:
    return f"{root}/hugepages-{size_kb}kB"


def _node_root(number: int) -> str:
    return f"{numa.FOLDER}/node{number}/hugepages"


def _number(files: Files, path: str) -> int:
    return int(files.read_optional(path) or 0)
