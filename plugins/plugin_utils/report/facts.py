# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the report shows of a node beside its settings, taken from the answer of ``gpu_node_info``.

Each part and each field of that answer may be null or not there; here that is None, or an empty list.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ...module_utils._node.compressed import decompress

Answer = Mapping[str, Any]
Texts = Tuple[str, ...]

# What is counted of the health of a GPU, and where it lies in the facts.
COUNTERS: Mapping[str, Texts] = {
    "ecc_volatile_corrected": ("ecc_volatile_corrected",),
    "ecc_volatile_uncorrected": ("ecc_volatile_uncorrected",),
    "ecc_aggregate_corrected": ("ecc_aggregate_corrected",),
    "ecc_aggregate_uncorrected": ("ecc_aggregate_uncorrected",),
    "remapped_rows_correctable": ("remapped_rows", "correctable"),
    "remapped_rows_uncorrectable": ("remapped_rows", "uncorrectable"),
    "pcie_replays": ("pcie_replays",),
    "nvlink_crc_errors": ("nvlinks", "crc_errors"),
    "nvlink_replay_errors": ("nvlinks", "replay_errors"),
    "nvlink_recovery_errors": ("nvlinks", "recovery_errors"),
}


@dataclass(frozen=True)
class Link:
    """A link on PCI Express as it is and as the device could have it. ``causes`` are ``slow`` and ``narrow``."""

    speed_gts: Optional[float]
    width: Optional[int]
    best_speed_gts: Optional[float]
    best_width: Optional[int]
    degraded: Optional[bool]
    causes: Texts


@dataclass(frozen=True)
class Delivery:
    """How many interrupts of a device may be delivered to these CPUs; of ``fixed`` ones nobody can change that."""

    cpus: str
    movable: int
    fixed: int


@dataclass(frozen=True)
class Device:
    """A GPU, network card or NVMe drive in its place. ``node`` is the NUMA node whose CPUs are the nearest."""

    kind: str
    pci_address: str
    names: Texts
    node: Optional[int]
    link: Optional[Link]
    model: Optional[str]
    size_bytes: Optional[int]
    interrupts: Tuple[Delivery, ...]


@dataclass(frozen=True)
class Numa:
    """A NUMA node. ``distances`` are those to all nodes, in the order of their numbers.

    ``hugepages`` are the pools with pages in them: size in KiB, pages, free pages.
    """

    node: int
    cpus: str
    memory_mib: Optional[int]
    distances: Tuple[int, ...]
    hugepages: Tuple[Tuple[int, int, int], ...]


@dataclass(frozen=True)
class Instance:
    """A MIG GPU instance: ``start`` and ``size`` are slices of the memory of its GPU."""

    profile: Optional[str]
    start: int
    size: int
    compute_instances: int


@dataclass(frozen=True)
class Gpu:
    """A GPU; None where nobody tells. ``healthy`` is None where the driver did not answer, ``mig`` where there is none.

    ``xids`` are the errors in the log of the kernel, ``counters`` those of ``COUNTERS`` that are known.
    """

    index: Optional[int]
    model: Optional[str]
    pci_address: str
    uuid: Optional[str]
    serial: Optional[str]
    vbios: Optional[str]
    gsp_firmware: Optional[str]
    lost: bool
    memory_mib: Optional[int]
    used_mib: Optional[int]
    temperature_celsius: Optional[int]
    draw_watts: Optional[float]
    limit_watts: Optional[float]
    persistence: Optional[bool]
    ecc: Optional[bool]
    mig: Optional[bool]
    instances: Tuple[Instance, ...]
    processes: int
    nvlinks: Optional[int]
    nvlinks_inactive: int
    fabric: Optional[str]
    healthy: Optional[bool]
    problems: Texts
    xids: Texts
    counters: Mapping[str, int]


@dataclass(frozen=True)
class Firmware:
    """A version of something. ``of`` is what it belongs to where a node has several kinds, such as models of drives."""

    component: str
    of: str
    version: str


@dataclass(frozen=True)
class NodeFacts:
    """``versions`` has each once; ``near`` are pairs of a GPU and a network card with the level of PCI between them."""

    distribution: Optional[str]
    product: Optional[str]
    serial: Optional[str]
    cpus: Optional[int]
    memory_mib: Optional[int]
    versions: Tuple[Firmware, ...]
    gpus: Tuple[Gpu, ...]
    numa: Tuple[Numa, ...]
    devices: Tuple[Device, ...]
    near: Tuple[Tuple[str, str, Optional[str]], ...]

    @property
    def models(self) -> str:
        """The GPUs in a few words, such as ``8 x NVIDIA H100 80GB HBM3``; empty without any."""
        counts = Counter(gpu.model or "unknown GPU" for gpu in self.gpus)
        return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items()))

    def version(self, component: str) -> Optional[str]:
        return next((entry.version for entry in self.versions if entry.component == component), None)


def answer_in(info: Optional[Mapping[str, Any]]) -> Tuple[Answer, Optional[str]]:
    """The facts in a registered result of ``gpu_node_info``, compressed or not; empty, with the reason, without any."""
    if info is None:
        return {}, "gpu_node_info was not asked"
    node = info.get("node")
    if "compressed" in info:
        try:
            node = decompress(info["compressed"])
        except ValueError as error:
            return {}, f"its facts cannot be read: {error}"
    if not node or not isinstance(node, dict):
        return {}, str(info.get("msg") or "gpu_node_info has no answer")
    return node, None


def facts_of(node: Answer) -> NodeFacts:
    system, machine = _part(node, "system"), _part(node, "firmware", "machine")
    distribution = [text for text in (system.get("distribution"), system.get("distribution_version")) if text]
    product = [text for text in (machine.get("vendor"), machine.get("product")) if text]
    gpus = _gpus(node)
    return NodeFacts(
        distribution=" ".join(distribution) or None,
        product=" ".join(product) or None,
        serial=machine.get("serial"),
        cpus=system.get("cpus"),
        memory_mib=_part(node, "memory").get("total_mib"),
        versions=tuple(dict.fromkeys(_versions(node, gpus))),
        gpus=gpus,
        numa=_numa(node),
        devices=_devices(node),
        near=tuple(
            (entry["gpu"], entry["nic"], entry.get("level")) for entry in _list(_part(node, "topology"), "distances")
        ),
    )


def _part(facts: Answer, *names: str) -> Answer:
    for name in names:
        facts = facts.get(name) or {}
    return facts


def _list(facts: Answer, name: str) -> List[Answer]:
    return facts.get(name) or []


def _versions(node: Answer, gpus: Tuple[Gpu, ...]) -> List[Firmware]:
    driver, machine = _part(node, "driver"), _part(node, "firmware", "machine")
    product = machine.get("product") or ""
    found = [
        ("driver", "", driver.get("version") or driver.get("kernel_module_version")),
        ("CUDA", "", driver.get("cuda_version")),
        ("kernel", "", _part(node, "system").get("kernel")),
        ("BIOS", product, machine.get("bios_version")),
        ("microcode", product, machine.get("microcode")),
    ]
    found += [("VBIOS", gpu.model or "", gpu.vbios) for gpu in gpus]
    found += [("GSP firmware", "", gpu.gsp_firmware) for gpu in gpus]
    cards, drives = _list(_part(node, "firmware"), "nics"), _list(_part(node, "firmware"), "nvme")
    found += [("NIC firmware", card.get("board_id") or "", card.get("firmware")) for card in cards]
    found += [("NVMe firmware", drive.get("model") or "", drive.get("firmware")) for drive in drives]
    return [Firmware(component, of, version) for component, of, version in found if version]


def _numa(node: Answer) -> Tuple[Numa, ...]:
    pools: Dict[int, List[Tuple[int, int, int]]] = {}
    for pool in _list(_part(node, "memory"), "hugepages"):
        if pool.get("pages") and pool.get("node") is not None:
            pools.setdefault(pool["node"], []).append((pool["size_kb"], pool["pages"], pool.get("free") or 0))
    return tuple(
        Numa(
            node=entry["node"],
            cpus=entry.get("cpus") or "",
            memory_mib=entry.get("memory_mib"),
            distances=tuple(entry.get("distances") or ()),
            hugepages=tuple(pools.get(entry["node"], ())),
        )
        for entry in _list(_part(node, "topology"), "nodes")
    )


def _devices(node: Answer) -> Tuple[Device, ...]:
    drives: Dict[str, Answer] = {}
    for drive in _list(node, "block"):
        # Of a drive with several namespaces the first stands for it.
        drives.setdefault(drive.get("pci_address") or "", drive)
    delivered = {entry["pci_address"]: entry for entry in _list(_part(node, "interrupts"), "devices")}
    return tuple(
        Device(
            kind=entry["kind"],
            pci_address=entry["pci_address"],
            names=tuple(entry.get("names") or ()),
            node=entry.get("numa_node") if entry.get("cpu_node") is None else entry["cpu_node"],
            link=_link(entry.get("link")),
            model=drives.get(entry["pci_address"], {}).get("model"),
            size_bytes=drives.get(entry["pci_address"], {}).get("size_bytes"),
            interrupts=_deliveries(delivered.get(entry["pci_address"], {})),
        )
        for entry in _list(_part(node, "topology"), "devices")
    )


def _link(link: Optional[Answer]) -> Optional[Link]:
    if not link:
        return None
    return Link(
        speed_gts=link.get("speed_gts"),
        width=link.get("width"),
        best_speed_gts=link.get("max_speed_gts"),
        best_width=link.get("max_width"),
        degraded=link.get("degraded"),
        causes=tuple(link.get("causes") or ()),
    )


def _deliveries(device: Answer) -> Tuple[Delivery, ...]:
    movable: Counter[str] = Counter()
    fixed: Counter[str] = Counter()
    for interrupt in _list(device, "irqs"):
        (fixed if interrupt.get("managed") else movable)[interrupt.get("cpus") or ""] += 1
    return tuple(Delivery(cpus, movable[cpus], fixed[cpus]) for cpus in sorted({*movable, *fixed}) if cpus)


def _gpus(node: Answer) -> Tuple[Gpu, ...]:
    health = {entry["pci_address"]: entry for entry in _list(_part(node, "health"), "gpus")}
    known = {entry["pci_address"]: entry for entry in _list(node, "gpus")}
    # Both are null or not there by themselves.
    return tuple(
        _gpu(address, known.get(address, {}), health.get(address, {}), _xids(node, address))
        for address in dict.fromkeys([*known, *health])
    )


def _xids(node: Answer, address: str) -> Texts:
    return tuple(
        f"Xid {xid['xid']} ({xid['count']} since boot), last: {xid.get('last') or '-'}"
        for xid in _list(_part(node, "health"), "xids")
        if xid["pci_address"] == address
    )


def _gpu(address: str, gpu: Answer, health: Answer, xids: Texts) -> Gpu:
    mig, links = gpu.get("mig") or {}, health.get("nvlinks") or {}
    memory, power = gpu.get("memory") or {}, gpu.get("power") or {}
    return Gpu(
        index=gpu.get("index"),
        model=gpu.get("model"),
        pci_address=address,
        uuid=gpu.get("uuid"),
        serial=gpu.get("serial"),
        vbios=gpu.get("vbios"),
        gsp_firmware=gpu.get("gsp_firmware"),
        lost=bool(gpu.get("lost")),
        memory_mib=memory.get("total_mib"),
        used_mib=memory.get("used_mib"),
        temperature_celsius=gpu.get("temperature_celsius"),
        draw_watts=power.get("draw_watts"),
        limit_watts=power.get("limit_watts"),
        persistence=gpu.get("persistence"),
        ecc=(gpu.get("ecc") or {}).get("current"),
        mig=mig.get("current"),
        instances=tuple(
            Instance(one.get("profile"), one["start"], one["size"], len(one.get("compute_instances") or ()))
            for one in mig.get("instances") or ()
        ),
        processes=len(gpu.get("processes") or ()),
        nvlinks=links.get("total"),
        nvlinks_inactive=len(links.get("inactive") or ()),
        fabric=(health.get("fabric") or {}).get("state"),
        healthy=health.get("healthy"),
        problems=tuple(health.get("problems") or ()),
        xids=xids,
        counters=_counters(health),
    )


def _counters(health: Answer) -> Dict[str, int]:
    found = {}
    for name, path in COUNTERS.items():
        value = _part(health, *path[:-1]).get(path[-1])
        if value is not None:
            found[name] = value
    return found
