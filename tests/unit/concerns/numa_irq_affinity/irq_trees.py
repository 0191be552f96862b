# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Trees of machines with CPUs, NUMA nodes, PCI functions and interrupts, as the kernel lays them out in /sys and /proc.

``machine(root, cpus(...), function(...), ...)`` makes a host of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.nodetree import DIRECTORY, FILE, LINK, Entry, Tree
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

NVIDIA, MELLANOX, OTHER_VENDOR = "0x10de", "0x15b3", "0x8086"
GPU, VGA, NETWORK, WIRELESS, INFINIBAND = "0x030200", "0x030000", "0x020000", "0x028000", "0x020700"
NVME, SATA, SCSI, USB, BRIDGE = "0x010802", "0x010601", "0x010000", "0x0c0330", "0x060400"
PCI = "/sys/bus/pci/devices"
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
MANAGED = 0o444


@dataclass(frozen=True)
class Irq:
    """An interrupt: the names of its handlers (none is one that is only set aside), where it goes, and the mode."""

    number: int
    handlers: Tuple[str, ...]
    cpus: str = "0-7"
    mode: int = 0o644


def irq(number: int, *handlers: str, cpus: str = "0-7", mode: int = 0o644) -> Irq:
    return Irq(number, handlers, cpus, mode)


def machine(root: Path, *trees: Tree) -> FakeHost:
    """A host of these trees, of which later ones win."""
    merged: Tree = {}
    for tree in trees:
        merged.update(tree)
    return FakeHost(nodetree.expand(merged, root))


def cpus(
    online: str = "0-7",
    *,
    nodes: Optional[Mapping[int, str]] = None,
    distances: Optional[Mapping[int, str]] = None,
    siblings: Sequence[Sequence[int]] = (),
    **lists: str,
) -> Tree:
    """CPUs and NUMA nodes; ``lists`` are ``possible``, ``isolated`` and ``nohz_full``. Without ``siblings`` no SMT."""
    tree = {f"{CPU}/online": _line(online), f"{CPU}/isolated": _line("")}
    tree[f"{CPU}/possible"] = _line(online)
    tree[f"{CPU}/smt/active"] = _line("1" if siblings else "0")
    for name, text in lists.items():
        tree[f"{CPU}/{name}"] = _line(text)
    for threads in siblings:
        for cpu in threads:
            tree[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = _line(",".join(map(str, threads)))
    for number, text in (nodes or {}).items():
        tree[f"{NODE}/node{number}/cpulist"] = _line(text)
        if distances and number in distances:
            tree[f"{NODE}/node{number}/distance"] = _line(distances[number])
    return tree


def function(
    address: str,
    code: str,
    *irqs: Irq,
    vendor: str = OTHER_VENDOR,
    driver: str = "",
    node: Optional[int] = None,
    local: str = "0-7",
    net: Sequence[str] = (),
    below: Optional[Mapping[str, Sequence[str]]] = None,
    line: int = 0,
    under: str = "pci0000:00",
) -> Tree:
    """A PCI function with its vectors, or with the number of its ``line``, which is one of ``irqs`` then.

    ``below`` has the interfaces of devices between (``virtio0``), ``under`` the bridges above it.
    """
    path = f"/sys/devices/{under}/{address}"
    tree: Dict[str, Entry] = {
        f"{PCI}/{address}": Entry(LINK, f"../../../devices/{under}/{address}"),
        f"{path}/class": _line(code),
        f"{path}/vendor": _line(vendor),
        f"{path}/numa_node": _line("-1" if node is None else str(node)),
        f"{path}/local_cpulist": _line(local),
        f"{path}/irq": _line(str(line)),
    }
    if driver:
        tree[f"{path}/driver"] = Entry(LINK, f"../../../bus/pci/drivers/{driver}")
    for folder, names in {"": net, **(below or {})}.items():
        for name in names:
            place = f"{path}/{folder}/net/{name}".replace("//", "/")
            tree[f"{place}/operstate"] = _line("up")
            tree[f"/sys/class/net/{name}"] = Entry(LINK, f"../../..{place[4:]}".replace("../../../", "../../", 1))
    for one in irqs:
        if one.number != line:
            tree[f"{path}/msi_irqs/{one.number}"] = _line("msix")
        tree.update(requested(one))
    return tree


def requested(one: Irq) -> Tree:
    """What /proc/irq says of an interrupt."""
    folder = f"/proc/irq/{one.number}"
    tree = {
        f"{folder}/smp_affinity_list": Entry(FILE, f"{one.cpus}\n", one.mode),
        f"{folder}/effective_affinity_list": Entry(FILE, "0\n", 0o444),
        f"{folder}/spurious": Entry(FILE, "count 0\n", 0o444),
    }
    tree.update({f"{folder}/{handler}": Entry(DIRECTORY) for handler in one.handlers})
    return tree


def virtual_interface(name: str, *lower: str, devtype: str = "", marks: Sequence[str] = (), device: str = "") -> Tree:
    """An interface of no PCI function; ``marks`` are folders such as ``bonding``, ``device`` what it hangs on."""
    folder = f"/sys/devices/virtual/net/{name}"
    tree = {
        f"/sys/class/net/{name}": Entry(LINK, f"../../devices/virtual/net/{name}"),
        f"{folder}/uevent": Entry(FILE, (f"DEVTYPE={devtype}\n" if devtype else "") + f"INTERFACE={name}\nIFINDEX=9\n"),
    }
    tree.update({f"{folder}/lower_{port}": Entry(LINK, f"../../net/{port}") for port in lower})
    tree.update({f"{folder}/{mark}/slaves": _line(" ".join(lower)) for mark in marks})
    if device:
        tree[f"{folder}/device"] = Entry(LINK, device)
        tree[device] = Entry(DIRECTORY)
    return tree


def params(*entries: Mapping[str, Any], **options: Any) -> Dict[str, Any]:
    """The parameters of the module, as far as they are parsed."""
    return {"interrupts": list(entries), "reserved_cpus": "", "irqbalance": "cooperate", **options}


def two_sockets() -> Tree:
    """Two nodes of four cores with two threads: 0-3 and 8-11, 4-7 and 12-15. A GPU, cards and drives on both."""
    tree = cpus(
        "0-15",
        nodes={0: "0-3,8-11", 1: "4-7,12-15"},
        distances={0: "10 21", 1: "21 10"},
        siblings=[(core, core + 8) for core in range(8)],
    )
    for node in (0, 1):
        root, local = f"pci000{node}:00", ("0-3,8-11", "4-7,12-15")[node]
        port = f"{root}/000{node}:00:01.0/000{node}:01:00.0"
        number = 100 * (node + 1)
        tree.update(
            function(
                f"000{node}:02:00.0",
                GPU,
                irq(number, "nvidia", cpus="0-15"),
                vendor=NVIDIA,
                driver="nvidia",
                node=node,
                local=local,
                under=f"{port}/000{node}:01:01.0",
            )
        )
        tree.update(
            function(
                f"000{node}:03:00.0",
                INFINIBAND,
                *(
                    irq(number + 10 + queue, f"mlx5_comp{queue}@pci:000{node}:03:00.0", cpus="0-15")
                    for queue in range(4)
                ),
                vendor=MELLANOX,
                driver="mlx5_core",
                node=node,
                local=local,
                net=[f"ib{node}"],
                under=f"{port}/000{node}:01:02.0",
            )
        )
        tree.update(
            function(
                f"000{node}:04:00.0",
                NETWORK,
                irq(number + 20, f"eth{node}", cpus="0-15"),
                irq(number + 21, f"eth{node}-TxRx-0", cpus="0-15"),
                driver="ice",
                node=node,
                local=local,
                net=[f"eth{node}"],
                under=f"{root}/000{node}:00:02.0",
            )
        )
        tree.update(
            function(
                f"000{node}:05:00.0",
                NVME,
                irq(number + 30, f"nvme{node}q0", cpus="0-15"),
                irq(number + 31, f"nvme{node}q1", cpus=local, mode=MANAGED),
                driver="nvme",
                node=node,
                local=local,
                under=f"{root}/000{node}:00:03.0",
            )
        )
    return tree


def large() -> Tree:
    """256 CPUs with two threads a core on eight NUMA nodes, 64 devices with eight interrupts each."""
    nodes = {node: f"{16 * node}-{16 * node + 15},{128 + 16 * node}-{128 + 16 * node + 15}" for node in range(8)}
    tree = cpus(
        "0-255",
        nodes=nodes,
        distances={node: " ".join("10" if other == node else "32" for other in range(8)) for node in range(8)},
        siblings=[(core, core + 128) for core in range(128)],
    )
    for number in range(64):
        node = number // 8
        kind, driver = ((NETWORK, "mlx5_core"), (NVME, "nvme"))[number % 2]
        names = [f"nvme{number}q{queue}" if driver == "nvme" else f"mlx5_comp{queue}" for queue in range(8)]
        tree.update(
            function(
                f"0000:{number + 16:02x}:00.0",
                kind,
                *(irq(1000 + 8 * number + queue, name, cpus="0-255") for queue, name in enumerate(names)),
                driver=driver,
                node=node,
                local=nodes[node],
                net=[f"eth{number}"] if driver == "mlx5_core" else [],
                under=f"pci0000:{node:02x}/0000:{node:02x}:{number % 8:02x}.0",
            )
        )
    return tree


def _line(text: str) -> Entry:
    return Entry(FILE, f"{text}\n")
