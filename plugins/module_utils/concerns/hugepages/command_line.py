# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Huge pages on the kernel command line.

Rules from Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._kinds.boot_arguments import COMMAND_LINE
from ..._kinds.tunables import BootAssignment
from ..._linux import bootloader
from ..._linux.bootloader import find_sources
from .owners import THP
from .patterns import spread_total
from .state import HugepagesState, KernelArguments, Pool, Values, format_size, pool_folder

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.bootloader import BootLoader

THP_ARGUMENTS = {"transparent_hugepage": "enabled", "transparent_hugepage_shmem": "shmem_enabled"}


def read_arguments(files: Files, loader: BootLoader) -> KernelArguments:
    """For which sizes we set arguments of the next boot, and where those of others come from."""
    our_sizes = frozenset(parse_pages(" ".join((*loader.ours, *loader.carried)), 0))
    rest = bootloader.without(loader.command_line, loader.ours)
    names = [name for name in ("hugepages", *THP_ARGUMENTS) if f"{name}=" in rest]
    if not names:
        return KernelArguments(our_sizes)
    return KernelArguments(our_sizes, find_sources(files, loader, names))


def parse_assignments(state: HugepagesState, command_line: str) -> List[BootAssignment]:
    """What a command line says, as assignments. A count per node goes to the node's tunable, a total to the
    global one.
    """
    found = []
    for size_kb, value in parse_pages(command_line, state.boot_default_kb).items():
        path, line = _source(state, "hugepages")
        for node, count in value.items():
            tunable = f"{pool_folder(node, size_kb)}/nr_hugepages"
            found.append(BootAssignment(COMMAND_LINE, path, line, tunable, str(count), later=False))
    for word in command_line.split():
        name, _equals, text = word.partition("=")
        if name in THP_ARGUMENTS:
            path, line = _source(state, name)
            found.append(BootAssignment(COMMAND_LINE, path, line, f"{THP}/{THP_ARGUMENTS[name]}", text, later=False))
    return found


def default_size(command_line: str) -> int:
    """The default page size in KiB that a command line asks for; 0 where it asks for none."""
    found = [word.partition("=")[2] for word in command_line.split() if word.startswith("default_hugepagesz=")]
    return _size_kb(found[-1]) if found else 0


def _size_kb(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMGkmg]?)", text)
    factor = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
    return int(match[1]) * factor[match[2].upper()] // 1024 if match else 0


def parse_pages(command_line: str, default_kb: int) -> Dict[int, Dict[Optional[int], int]]:
    """``hugepages=`` by page size and node (None: a total over all nodes). The first of each size counts."""
    found: Dict[int, Dict[Optional[int], int]] = {}
    size_kb = default_size(command_line) or default_kb
    for word in command_line.split():
        name, _equals, text = word.partition("=")
        if name in ("hugepagesz", "default_hugepagesz"):
            size_kb = _size_kb(text)
        elif name == "hugepages" and size_kb and size_kb not in found:
            if re.fullmatch(r"\d+", text):
                found[size_kb] = {None: int(text)}
            elif re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text):
                pairs = (part.split(":") for part in text.split(","))
                found[size_kb] = {int(node): int(count) for node, count in pairs}
    return found


def wanted_arguments(
    gigantic: Mapping[int, Mapping[Pool, int]], without_ours: Values, command_line: str, state: HugepagesState
) -> Tuple[str, ...]:
    """The arguments for pages of these sizes that are needed beside ``command_line``, which has those of others."""
    others = parse_pages(command_line, state.boot_default_kb)
    arguments: List[str] = []
    for size_kb, counts in sorted(gigantic.items()):
        differs = any(without_ours[pool.tunable][0] != count for pool, count in counts.items())
        if size_kb not in others and (differs or size_kb in state.arguments.our_sizes):
            arguments.extend(_reserve(counts, state))
    return tuple(arguments)


def _reserve(counts: Mapping[Pool, int], state: HugepagesState) -> Tuple[str, ...]:
    """The kernel arguments that reserve these pages of one size at boot, none for no pages.

    The form with nodes came with Linux 5.16 (Documentation/admin-guide/kernel-parameters.txt, ``hugepages=``).
    """
    total = sum(counts.values())
    if not total:
        return ()
    size = format_size(next(iter(counts)).size_kb)
    even = {number: count for number, count in spread_total(total, state.nodes).items() if count}
    by_node = {pool.node.number: count for pool, count in counts.items() if pool.node.number is not None and count}
    if sum(bool(node.total_kb) for node in state.nodes) < 2 or (state.kernel < (5, 16) and by_node == even):
        return (f"hugepagesz={size}", f"hugepages={total}")
    if state.kernel < (5, 16):
        raise DeclarationError(
            f"reserve {size} pages at boot",
            cause="before Linux 5.16 the command line takes only a total, which goes evenly to all nodes with memory",
            found=",".join(f"{number}:{count}" for number, count in sorted(even.items())),
            wanted=",".join(f"{number}:{count}" for number, count in sorted(by_node.items())),
            hint="declare that distribution, or permanent: false",
        )
    return (f"hugepagesz={size}", "hugepages=" + ",".join(f"{node}:{count}" for node, count in sorted(by_node.items())))


def _source(state: HugepagesState, argument: str) -> Tuple[str, Optional[int]]:
    return state.arguments.sources.get(argument, ("/proc/cmdline", None))
