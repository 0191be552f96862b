# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPUs of the machine: Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-devices-node of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Set, Tuple

from ..._core.errors import CannotLook
from ..._linux.cpus import FOLDER, read_cpus, read_online
from ..._linux.numa import FOLDER as NODES
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
        nodes=tuple((number, read_cpus(files, f"{NODES}/node{number}/cpulist") & online) for number in _numbers(files)),
    )


def read_distances(files: Files, node: int) -> Dict[int, int]:
    """The distances from a node by the number of the other one, none where the kernel does not tell."""
    path = f"{NODES}/node{node}/distance"
    text = files.read_optional(path) or ""
    try:
        return dict(zip(_numbers(files), map(int, text.split())))
    except ValueError as error:
        raise CannotLook("read the distances", object=path, cause=f"{text[:80].strip()!r} are not numbers") from error


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


def _numbers(files: Files) -> Tuple[int, ...]:
    names = files.names(NODES)
    return tuple(sorted(int(name[4:]) for name in names if name[:4] == "node" and name[4:].isdigit()))
