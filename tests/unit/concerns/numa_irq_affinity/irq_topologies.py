# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CPUs of machines as they are sold, and devices to go with them, as values."""

from __future__ import annotations

from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.model import (
    Cpus,
    Interrupt,
    IrqDevice,
    Processors,
)

Threads = Sequence[int]


def processors(
    nodes: Sequence[Sequence[Threads]],
    *,
    offline: AbstractSet[int] = frozenset(),
    isolated: AbstractSet[int] = frozenset(),
) -> Processors:
    """A machine from its nodes, which are lists of cores, which are lists of threads. What is offline has no core."""
    possible = frozenset(cpu for cores in nodes for threads in cores for cpu in threads)
    online = possible - offline
    siblings = [frozenset(threads) & online for cores in nodes for threads in cores]
    return Processors(
        online=online,
        possible=possible,
        isolated=frozenset(isolated),
        siblings=tuple(threads for threads in siblings if threads),
        nodes=tuple(
            (number, frozenset(cpu for threads in cores for cpu in threads) & online)
            for number, cores in enumerate(nodes)
        ),
    )


def numbered(*, nodes: int, cores: int, threads: int) -> List[List[Threads]]:
    """As x86 firmware numbers: node after node the first thread of every core, then all over again the next one."""
    total = nodes * cores
    return [
        [[thread * total + node * cores + core for thread in range(threads)] for core in range(cores)]
        for node in range(nodes)
    ]


def two_sockets() -> Processors:
    """Two sockets of 32 cores with two threads: node 0 has the CPUs 0-31 and 64-95."""
    return processors(numbered(nodes=2, cores=32, threads=2))


def nps4() -> Processors:
    """Two EPYC sockets of 64 cores, each divided into four nodes: 256 CPUs."""
    return processors(numbered(nodes=8, cores=16, threads=2))


def sub_numa() -> Processors:
    """Two Xeon sockets of 28 cores, each in two clusters, whose CPUs take turns in the numbering."""
    return processors([[[4 * core + node, 112 + 4 * core + node] for core in range(14)] for node in range(4)])


def grace() -> Processors:
    """Two Grace CPUs of 72 cores without threads, and sixteen nodes that only have memory, that of the GPUs."""
    return processors([*numbered(nodes=2, cores=72, threads=1), *[[]] * 16])


def one_node() -> Processors:
    """Eight cores on one node, whose threads are neighbours in the numbering."""
    return processors([[[2 * core, 2 * core + 1] for core in range(8)]])


def sparse() -> Processors:
    """Two nodes with holes in the numbering: cores that are fused off, and threads that are offline."""
    left = [[core, core + 100] for core in (0, 2, 3, 7, 9, 11)]
    right = [[core, core + 100] for core in (40, 41, 44, 48, 55)]
    return processors([left, right], offline={3, 107, 109, 140, 141})


def without_cpus() -> Processors:
    """Three nodes, the middle one of which has memory and devices, and no CPUs."""
    return processors([numbered(nodes=1, cores=6, threads=2)[0], [], [[20, 21], [22, 23], [24, 25]]])


def thousand() -> Processors:
    """1,024 CPUs on eight nodes."""
    return processors(numbered(nodes=8, cores=64, threads=2))


def four_threads() -> Processors:
    """Two nodes of five POWER cores with four threads, one of which has lost one."""
    cores = [[4 * core + thread for thread in range(4)] for core in range(10)]
    return processors([cores[:5], cores[5:]], offline={7})


def three_threads() -> Processors:
    """A node of four cores with three threads."""
    return processors([[[3 * core + thread for thread in range(3)] for core in range(4)]])


def one_cpu() -> Processors:
    """The smallest machine."""
    return processors([[[0]]])


EVERY: Dict[str, Processors] = {
    "two sockets": two_sockets(),
    "nps4": nps4(),
    "sub-numa clusters": sub_numa(),
    "grace": grace(),
    "one node": one_node(),
    "sparse": sparse(),
    "a node without cpus": without_cpus(),
    "1024 cpus": thousand(),
    "four threads": four_threads(),
    "three threads": three_threads(),
    "one cpu": one_cpu(),
}


def local(machine: Processors, node: int) -> Cpus:
    """The CPUs next to a device of the node: those of the nearest one by number where it has none."""
    with_cpus = [(abs(number - node), number, cpus) for number, cpus in machine.nodes if cpus]
    return min(with_cpus, key=lambda one: one[:2])[2]


def device(
    machine: Processors,
    index: int,
    *,
    node: int,
    queues: int,
    kind: str = "network",
    managed: int = 0,
    present: Optional[Sequence[Cpus]] = None,
) -> IrqDevice:
    """A device of a node with so many interrupts, the last ``managed`` of which the kernel places.

    Two devices of a machine have different ``index``. They may go to every CPU, or to ``present``.
    """
    address = f"{index >> 8:04x}:{index & 0xFF:02x}:00.0"
    every = present if present is not None else [machine.online] * queues
    return IrqDevice(
        address=address,
        kind=kind,
        driver={"network": "mlx5_core", "nvme": "nvme", "gpu": "nvidia"}.get(kind, "driver"),
        interfaces=(f"eth{index}",) if kind == "network" else (),
        node=node,
        local=local(machine, node),
        interrupts=tuple(
            Interrupt(
                name=f"{kind}_comp{queue}@pci:{address}",
                number=1000 * (index + 1) + queue,
                cpus=cpus,
                managed="the kernel places it" if queue >= queues - managed else "",
            )
            for queue, cpus in enumerate(every)
        ),
    )


def full(machine: Processors, *, nics: int = 2, queues: int = 24) -> Tuple[IrqDevice, ...]:
    """A machine with all slots taken: on every node some NICs, a GPU and a drive whose queues the kernel places."""
    found: List[IrqDevice] = []
    for node, _cpus in machine.nodes:
        for _nic in range(nics):
            found.append(device(machine, len(found), node=node, queues=queues))
        found.append(device(machine, len(found), node=node, queues=6, kind="gpu"))
        found.append(device(machine, len(found), node=node, queues=9, managed=8, kind="nvme"))
    return tuple(found)
