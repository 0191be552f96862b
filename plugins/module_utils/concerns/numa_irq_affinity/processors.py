# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPUs of the machine: Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-devices-node of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Set, Tuple

from ..._linux.cpus import FOLDER, read_cpus, read_online
from ..._linux.numa import FOLDER as NODES
from ..._linux.numa import node_numbers
from .model import Cpus, Processors

if TYPE_CHECKING:
    from ..._core.protocols import Files


def read_processors(files: Files) -> Processors:
    """All of them; a kernel without NUMA has no nodes."""
    online = read_online(files)
    return Processors(
        online=online,
        possible=read_cpus(files, f"{FOLDER}/possible") | online,
        isolated=read_cpus(files, f"{FOLDER}/isolated") | read_cpus(files, f"{FOLDER}/nohz_full"),
        siblings=_siblings(files, online),
        nodes=tuple(
            (number, read_cpus(files, f"{NODES}/node{number}/cpulist") & online) for number in node_numbers(files)
        ),
    )


def _siblings(files: Files, online: Cpus) -> Tuple[Cpus, ...]:
    """The cores by their first thread, with one read a core, and none where no core has a second thread."""
    if (files.read_optional(f"{FOLDER}/smt/active") or "").strip() == "0":
        return tuple(frozenset((cpu,)) for cpu in sorted(online))
    cores: List[Cpus] = []
    seen: Set[int] = set()
    for cpu in sorted(online):
        if cpu not in seen:
            threads = read_cpus(files, f"{FOLDER}/cpu{cpu}/topology/thread_siblings_list") & online | {cpu}
            cores.append(threads)
            seen |= threads
    return tuple(cores)
