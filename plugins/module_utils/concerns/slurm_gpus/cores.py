# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cores of Slurm near a GPU. It counts cores from 0 in the order of sockets, and takes whole sockets only.

A line whose cores do not end where a socket does makes the node invalid (``_check_core_range_matches_sock`` in
src/interfaces/gres.c), and so does one of a node whose sockets slurm.conf does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, List, Mapping, Sequence, Set, Tuple

from ..._linux import cpulist
from ..._linux.cpu_topology import PCI
from ..._linux.cpus import FOLDER as CPUS
from ..._linux.cpus import read_cpus, read_online
from ..._linux.numa import FOLDER as NODES
from ..._linux.numa import node_numbers

if TYPE_CHECKING:
    from ..._core.protocols import Files

NUMA_AS_SOCKET, L3_AS_SOCKET = "numa_node_as_socket", "l3cache_as_socket"
BY_NODE, BY_CACHE, BY_PACKAGE = "NUMA nodes", "L3 caches", "sockets"
Socket = Tuple[FrozenSet[int], int]
"""Its CPUs, and how many cores these are."""


def kind_of(parameters: str) -> str:
    """What a socket is with these SlurmdParameters."""
    words = {word.strip().lower() for word in parameters.split(",")}
    return BY_CACHE if L3_AS_SOCKET in words else BY_NODE if NUMA_AS_SOCKET in words else BY_PACKAGE


def read_sockets(files: Files, kind: str) -> Tuple[Socket, ...]:
    """The sockets in the order of Slurm, which is that of their first CPUs. Raises ``CannotLook``."""
    online = read_online(files)
    groups: Set[FrozenSet[int]] = set()
    if kind == BY_NODE:
        groups = {read_cpus(files, f"{NODES}/node{number}/cpulist") & online for number in node_numbers(files)}
    else:
        path = "cache/index3/shared_cpu_list" if kind == BY_CACHE else "topology/package_cpus_list"
        left = set(online)
        while left:
            first = min(left)
            # Kernels before 5.4 have the package under another name.
            found = read_cpus(files, f"{CPUS}/cpu{first}/{path}")
            if not found and kind == BY_PACKAGE:
                found = read_cpus(files, f"{CPUS}/cpu{first}/topology/core_siblings_list")
            group = (found or frozenset({first})) & online
            groups.add(group)
            left -= group | {first}
    ordered = sorted((group for group in groups if group), key=min)
    return tuple((group, _count_cores(files, group)) for group in ordered)


def near(files: Files, address: str) -> FrozenSet[int]:
    """The CPUs near a device of the PCI bus."""
    return read_cpus(files, f"{PCI}/{address}/local_cpulist")


def disagreement(sockets: Sequence[Socket], pairs: Mapping[str, str]) -> str:
    """Why the node's line does not have these sockets; empty where it does."""
    told = {key: _number(pairs.get(key)) for key in ("sockets", "socketsperboard", "boards", "corespersocket")}
    count = told["sockets"] or told["socketsperboard"] * (told["boards"] or 1)
    sizes = {size for _cpus, size in sockets}
    here = f"Sockets={len(sockets)} CoresPerSocket={'/'.join(map(str, sorted(sizes)))}"
    if count != len(sockets) or sizes != {told["corespersocket"]}:
        return f"slurm.conf must have {here} for it, as slurmd -C prints"
    return ""


def core_list(sockets: Sequence[Socket], cpus: FrozenSet[int]) -> str:
    """The cores of all sockets that have one of the CPUs; empty where all do, or none."""
    chosen: List[int] = []
    first, used = 0, 0
    for group, size in sockets:
        if group & cpus:
            chosen += range(first, first + size)
            used += 1
        first += size
    return "" if used == len(sockets) else cpulist.render(chosen)


def _count_cores(files: Files, group: FrozenSet[int]) -> int:
    threads = {
        read_cpus(files, f"{CPUS}/cpu{number}/topology/thread_siblings_list") or frozenset({number}) for number in group
    }
    return len(threads)


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
