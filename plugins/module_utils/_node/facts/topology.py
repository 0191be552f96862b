# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the devices are: the NUMA node and CPUs of every GPU, network card and NVMe drive, and who is near whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import GpuFleetError
from ..._core.value import frozen
from ..._linux import cpulist, pci
from ..._linux.near import Told, majority, place
from ..._linux.numa import FOLDER, node_numbers, parse_meminfo
from ..._nvidia.gpus import PCI
from ..cpu_owners import owner_facts
from .fields import Facts, Fields, read_as
from .pci import GPU, NIC, NOT_ON_BUS, PciDevice

if TYPE_CHECKING:
    from ..._core.protocols import Files

NO_NUMA = "this kernel has no NUMA nodes"
NOT_TOLD = "neither the driver nor the firmware reports its node"


@frozen
class NumaFacts:
    """A NUMA node, as numbers and as facts; ``distances`` are those to all nodes, in the order of their numbers.

    Where the kernel's words are not numbers there are none, and the facts say why.
    """

    cpus: FrozenSet[int]
    distances: Tuple[int, ...]
    facts: Facts


def gather(files: Files, devices: Sequence[PciDevice], links: Mapping[str, Facts], gpus: Mapping[str, Facts]) -> Facts:
    """By PCI address, ``links`` has those of all devices, ``gpus`` what the driver tells, with their ``place``."""
    nodes = _read_nodes(files)
    on_bus = {device.address for device in devices}
    placed = [
        (device, {**_place(files, device, nodes, gpus.get(device.address, {})), "link": links[device.address]})
        for device in devices
    ]
    unseen = [
        _place(files, _unseen(address), nodes, answer)
        for address, answer in gpus.items()
        if answer.get("place") and address not in on_bus
    ]
    fields = Fields()
    fields.add("cpu_owners", *_owners(files))
    return {
        "nodes": [node.facts for node in nodes.values()],
        "devices": [facts for _device, facts in placed] + unseen,
        "distances": [
            _distance(gpu, at, nic, there, numa=bool(nodes))
            for gpu, at in placed
            if gpu.kind == GPU
            for nic, there in placed
            if nic.kind == NIC
        ],
        **fields.facts,
    }


def _owners(files: Files) -> Tuple[Optional[List[Dict[str, str]]], str]:
    try:
        return owner_facts(files), ""
    except GpuFleetError as error:
        return None, str(error)


def _unseen(address: str) -> PciDevice:
    """A GPU that the driver places and the bus does not show, as in a container without its own /sys."""
    return PciDevice(GPU, address, path=f"{PCI}/{address}", chain=(), vendor="", device="", driver=None, names=())


def _read_nodes(files: Files) -> Dict[int, NumaFacts]:
    return {number: _read_node(files, number) for number in node_numbers(files)}


def _read_node(files: Files, number: int) -> NumaFacts:
    folder = f"{FOLDER}/node{number}"
    memory = parse_meminfo(files.read_optional(f"{folder}/meminfo") or "")
    distances, far = read_as(files, f"{folder}/distance", lambda text: tuple(map(int, text.split())))
    cpus, wrong = read_as(files, f"{folder}/cpulist", cpulist.parse)
    fields = Fields(node=number)
    fields.add("cpus", None if cpus is None else cpulist.render(cpus), wrong)
    fields.add("memory_mib", memory.get("MemTotal", 0) // 1024)
    fields.add("distances", list(distances or ()) or None, far or "the kernel does not report it")
    return NumaFacts(cpus or frozenset(), distances or (), fields.facts)


def _place(files: Files, device: PciDevice, nodes: Mapping[int, NumaFacts], answer: Facts) -> Facts:
    driver: Facts = answer.get("place", {})
    fields = Fields(kind=device.kind, pci_address=device.address)
    if device.vendor:
        fields.add("pci_id", f"{device.vendor[2:]}:{device.device[2:]}")
        fields.add("names", list(device.names))
        fields.add("kernel_driver", device.driver, "no driver is bound to it")
    else:
        fields.add("pci_id", answer.get("pci_id"), NOT_ON_BUS)
        fields.lack(NOT_ON_BUS, "names", "kernel_driver", "link")
    node_cpus = {number: node.cpus for number, node in nodes.items()}
    local = read_as(files, f"{device.path}/local_cpulist", cpulist.parse)[0] or frozenset()
    numa_node, reason = read_as(files, f"{device.path}/numa_node", int)
    told = Told(
        own_node=driver.get("numa_node"),
        affinity=cpulist.parse(driver.get("cpus") or ""),
        memory_nodes=driver.get("near_nodes") or (),
        numa_node=numa_node if numa_node is not None and numa_node >= 0 else None,
        local=local,
    )
    found = place(told, node_cpus, lambda node: dict(zip(nodes, nodes[node].distances)))
    reason = NO_NUMA if not nodes else reason or NOT_TOLD
    fields.add("numa_node", found.node, reason)
    fields.add("numa_source", found.node_source or None, reason)
    fields.add("cpus", cpulist.render(found.cpus) or None, reason)
    fields.add("cpus_source", found.cpus_source or None, reason)
    cpu_node = majority(found.cpus, node_cpus)
    fields.add("cpu_node", found.near if cpu_node is None else cpu_node, reason)
    return fields.facts


def _distance(gpu: PciDevice, at: Facts, nic: PciDevice, there: Facts, *, numa: bool) -> Facts:
    fields = Fields(gpu=gpu.address, nic=nic.address)
    known = not numa or None not in (at["cpu_node"], there["cpu_node"])
    level = pci.distance(gpu.chain, nic.chain, same_node=at["cpu_node"] == there["cpu_node"] if known else None)
    fields.add("level", level, "they are below different host bridges, and the NUMA node of one is not known")
    return fields.facts
