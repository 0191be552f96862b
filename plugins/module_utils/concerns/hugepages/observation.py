# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Huge pages as they are read from the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Sequence, Tuple

from ..._core.contract import reboot_note
from ..._kinds import tunables as kernel
from ..._kinds.own_files import OwnFile
from ..._kinds.tunables import Tunable
from ..._linux import bootloader, numa
from ..._linux.numa import NumaNode, parse_meminfo
from ..._machine.numbers import number_of
from . import owners
from .command_line import default_size, read_arguments
from .owners import THP
from .state import GLOBAL, NAME, TMPFILES, HugepagesState, KernelArguments, Pool, pool_folder, thp_object

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

HUGEPAGE = "hugepage"
"""What the names of all kernel arguments about huge pages have in them."""
KHUGEPAGED = (
    "pages_to_scan",
    "scan_sleep_millisecs",
    "alloc_sleep_millisecs",
    "max_ptes_none",
    "max_ptes_swap",
    "max_ptes_shared",
)


def read_state(host: Host, *, every_tunable: bool) -> HugepagesState:
    """Look at the machine. ``every_tunable`` adds the settings for each size of transparent huge pages."""
    files = host.files
    meminfo = parse_meminfo(files.read("/proc/meminfo"))
    default_kb = meminfo.get("Hugepagesize", 0)
    nodes = numa.read_nodes(files, meminfo)
    sizes = _sizes(files.names(GLOBAL))
    pools = {pool.tunable: pool for size_kb in sizes for node in nodes for pool in _pools(files, size_kb, node)}
    thp_sizes = _sizes(files.names(THP))
    tunables = _read_tunables(files, thp_sizes if every_tunable else ())
    release = re.match(r"(\d+)\.(\d+)", files.read_optional("/proc/sys/kernel/osrelease") or "")
    running = (files.read_optional("/proc/cmdline") or "").strip()
    loader = bootloader.detect(host, NAME, running)
    arguments = KernelArguments()
    if loader.carried or HUGEPAGE in loader.command_line:
        arguments = read_arguments(files, loader)
    tmpfiles = owners.read_tmpfiles(files)
    thp_kb = read_pages(files, f"{THP}/hpage_pmd_size") // 1024
    # Without an argument the kernel takes the size that one entry of the page tables maps, as THP does.
    otherwise = (thp_kb or default_kb) if default_size(running) else default_kb
    return HugepagesState(
        nodes=nodes,
        pools=pools,
        reserved={size_kb: read_pages(files, f"{pool_folder(None, size_kb)}/resv_hugepages") for size_kb in sizes},
        default_kb=default_kb,
        boot_default_kb=default_size(loader.command_line) or otherwise,
        tunables=tunables,
        thp_sizes=thp_sizes,
        thp_kb=thp_kb,
        kernel=(int(release[1]), int(release[2])) if release else (0, 0),
        running=running,
        loader=loader,
        tmpfiles=tuple(line for path, text in tmpfiles.items() for line in owners.parse_tmpfiles(path, text)),
        others=(
            *owners.read_sysctl(files),
            *kernel.read_tuned(files, owners.of_tuned),
            *kernel.read_writers(files, owners.of_path),
        ),
        file=OwnFile(TMPFILES, "file", tmpfiles.get(TMPFILES)),
        arguments=arguments,
        awaited=files.read_optional(reboot_note(NAME)) or "",
    )


def _pools(files: Files, size_kb: int, node: NumaNode) -> Tuple[Pool, ...]:
    folder = pool_folder(node.number, size_kb)
    if not files.exists(f"{folder}/nr_hugepages"):
        return ()
    total, free, surplus = (read_pages(files, f"{folder}/{name}_hugepages") for name in ("nr", "free", "surplus"))
    return (Pool(size_kb, node, f"{folder}/nr_hugepages", total, free, surplus),)


def _read_tunables(files: Files, thp_sizes: Sequence[int]) -> Dict[str, Tunable]:
    rows = [(f"{THP}/{name}", thp_object(None)) for name in ("enabled", "defrag", "shmem_enabled")]
    rows += [(f"{THP}/khugepaged/{name}", "khugepaged") for name in ("defrag", *KHUGEPAGED)]
    for size_kb in thp_sizes:
        rows += [(f"{THP}/hugepages-{size_kb}kB/{name}", thp_object(size_kb)) for name in ("enabled", "shmem_enabled")]
    found = (kernel.read(files, path, object_) for path, object_ in rows)
    return {tunable.path: tunable for tunable in found if tunable is not None}


def _sizes(names: Sequence[str]) -> Tuple[int, ...]:
    matches = (re.fullmatch(r"hugepages-(\d+)kB", name) for name in names)
    return tuple(sorted(int(match[1]) for match in matches if match))


def read_pages(files: Files, path: str) -> int:
    """The number in a file, 0 where the kernel does not have it. Raises ``CannotLook`` as ``number_of``."""
    return number_of(files.read_optional(path) or "0", path)
