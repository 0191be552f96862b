# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the report shows of a node beside its settings, taken from the answer of ``gpu_node_info``.

Each part and each field of that answer may be null or not there; here that is None, or an empty list. What things are
called by must be there, and what is there must have its type: an answer that is malformed gives no facts at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ...module_utils._node.compressed import decompress
from ..shapes import (
    LONGEST,
    cpu_list,
    length,
    listed,
    mapping,
    needed,
    number,
    optional,
    plain,
    rows,
    text,
    truth,
    whole,
)

Answer = Mapping[str, Any]
Texts = Tuple[str, ...]

UNREADABLE = "its facts could not be read"

# What the report has of a GPU as the answer has it.
AS_IN_THE_ANSWER = (
    *("index", "model", "pci_address", "uuid", "serial", "vbios", "gsp_firmware"),
    *("temperature_celsius", "persistence", "processes"),
)
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
    """How many interrupts of a device may be delivered to these CPUs; of ``fixed`` ones that cannot be changed."""

    cpus: str
    movable: int
    fixed: int


@dataclass(frozen=True)
class DeviceFacts:
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
class CpuOwner:
    """Who has CPUs: an argument of the kernel that isolates them, or a slice of systemd (``kind`` as in the facts)."""

    kind: str
    name: str
    cpus: str


@dataclass(frozen=True)
class InstanceFacts:
    """A MIG GPU instance: ``start`` and ``size`` are slices of the memory of its GPU."""

    profile: Optional[str]
    start: int
    size: int
    compute_instances: int


@dataclass(frozen=True)
class GpuFacts:
    """A GPU; None where it is not known. ``healthy`` is None where the driver did not respond, ``mig`` where it
    has none.

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
    instances: Tuple[InstanceFacts, ...]
    processes: int
    nvlinks: Optional[int]
    nvlinks_inactive: int
    fabric: Optional[str]
    healthy: Optional[bool]
    problems: Texts
    xids: Texts
    counters: Mapping[str, int]


@dataclass(frozen=True)
class PortFacts:
    """A port of a network card.

    ``errors`` are its counters that are not 0: name, value, and how it has grown, each None where it is not known.
    """

    name: str
    kind: Optional[str]
    pci_address: Optional[str]
    interfaces: Texts
    state: Optional[str]
    rate_gbps: Optional[float]
    best_rate_gbps: Optional[float]
    healthy: Optional[bool]
    problems: Texts
    errors: Tuple[Tuple[str, Optional[int], Optional[int]], ...]


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
    gpus: Tuple[GpuFacts, ...]
    numa: Tuple[Numa, ...]
    devices: Tuple[DeviceFacts, ...]
    ports: Tuple[PortFacts, ...]
    near: Tuple[Tuple[str, str, Optional[str]], ...]
    cpu_owners: Tuple[CpuOwner, ...]

    @property
    def models(self) -> str:
        """The GPUs in a few words, such as ``8 x NVIDIA H100 80GB HBM3``; empty without any."""
        counts = Counter(gpu.model or "unknown GPU" for gpu in self.gpus)
        return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items()))

    def version(self, component: str) -> Optional[str]:
        return next((entry.version for entry in self.versions if entry.component == component), None)


@dataclass(frozen=True)
class AnswerFacts:
    """What a registered result of ``gpu_node_info`` has. ``known`` is what the report shows of the answer of the node,
    and ``answer`` the whole of it for who asked for that; both are None where there is none, and then ``missing`` is
    the reason.
    """

    answer: Optional[Answer] = None
    known: Optional[NodeFacts] = None
    missing: Optional[str] = None

    @property
    def unreadable(self) -> bool:
        """Whether the node gave an answer that is malformed."""
        return self.missing is not None and self.missing.startswith(UNREADABLE)


def facts_in(info: Optional[Mapping[str, Any]], *, whole_answer: bool = False) -> AnswerFacts:
    """The facts in a registered result of ``gpu_node_info``, compressed or not.

    With ``whole_answer`` there is all of it, and what the report shows nothing of must be sound too. Without, it is let
    go: the answers of a thousand nodes take three times what the report shows of them.
    """
    if info is None:
        return AnswerFacts(missing="gpu_node_info was not asked")
    node = info.get("node")
    try:
        if "compressed" in info:
            node = decompress(needed(text)(info["compressed"]))
        if not node:
            message = info.get("msg")
            said = message[:LONGEST] if message and isinstance(message, str) else "gpu_node_info has no answer"
            return AnswerFacts(missing=said)
        if not whole_answer:
            return AnswerFacts(known=facts_of(node))
        plain(node)
        return AnswerFacts(node, facts_of(node))
    except ValueError as error:
        return AnswerFacts(missing=f"{UNREADABLE}: {error}")


_text = needed(text)
_texts = listed(_text)
_link = mapping(speed_gts=number, width=whole, max_speed_gts=number, max_width=whole, degraded=truth, causes=_texts)
_instances = rows(profile=text, start=needed(whole), size=needed(whole), compute_instances=length)
_gpu_shape = mapping(
    index=whole,
    model=text,
    pci_address=_text,
    uuid=text,
    serial=text,
    vbios=text,
    gsp_firmware=text,
    lost=truth,
    memory=mapping(total_mib=whole, used_mib=whole),
    temperature_celsius=whole,
    power=mapping(draw_watts=number, limit_watts=number),
    persistence=truth,
    ecc=mapping(current=truth),
    mig=mapping(current=truth, instances=_instances),
    processes=length,
)
_health_shape = mapping(
    pci_address=_text,
    healthy=truth,
    problems=_texts,
    fabric=mapping(state=text),
    remapped_rows=mapping(correctable=whole, uncorrectable=whole),
    nvlinks=mapping(total=whole, inactive=length, crc_errors=whole, replay_errors=whole, recovery_errors=whole),
    **{path[0]: whole for path in COUNTERS.values() if len(path) == 1},
)
_shape = mapping(
    system=mapping(distribution=text, distribution_version=text, kernel=text, cpus=whole),
    memory=mapping(
        total_mib=whole,
        hugepages=rows(node=whole, size_kb=needed(whole), pages=whole, free=whole),
    ),
    driver=mapping(version=text, kernel_module_version=text, cuda_version=text),
    firmware=mapping(
        machine=mapping(vendor=text, product=text, serial=text, bios_version=text, microcode=text),
        nics=rows(board_id=text, firmware=text),
        nvme=rows(model=text, firmware=text),
    ),
    block=rows(pci_address=text, model=text, size_bytes=whole),
    topology=mapping(
        nodes=rows(node=needed(whole), cpus=cpu_list, memory_mib=whole, distances=listed(needed(whole))),
        devices=rows(
            kind=_text, pci_address=_text, names=_texts, numa_node=whole, cpu_node=whole, link=optional(_link)
        ),
        distances=rows(gpu=_text, nic=_text, level=text),
        cpu_owners=rows(kind=_text, name=_text, cpus=needed(cpu_list)),
    ),
    interrupts=mapping(devices=rows(pci_address=_text, irqs=rows(cpus=cpu_list, managed=text))),
    network=mapping(
        ports=rows(
            name=_text,
            kind=text,
            pci_address=text,
            interfaces=_texts,
            state=text,
            rate_gbps=number,
            best_rate_gbps=number,
            healthy=truth,
            problems=_texts,
            errors=rows(counter=_text, total=whole, growth=whole),
        )
    ),
    gpus=listed(needed(_gpu_shape)),
    health=mapping(
        xids=rows(pci_address=_text, xid=needed(whole), count=needed(whole), last=text),
        gpus=listed(needed(_health_shape)),
    ),
)


def facts_of(answer: Any) -> NodeFacts:
    """What the report shows of an answer. Raises ``Malformed``, with the place in it."""
    node: Answer = _shape(answer)
    system, machine, topology = node["system"], node["firmware"]["machine"], node["topology"]
    distribution = [text for text in (system["distribution"], system["distribution_version"]) if text]
    product = [text for text in (machine["vendor"], machine["product"]) if text]
    gpus = _gpus(node)
    return NodeFacts(
        distribution=" ".join(distribution) or None,
        product=" ".join(product) or None,
        serial=machine["serial"],
        cpus=system["cpus"],
        memory_mib=node["memory"]["total_mib"],
        versions=tuple(dict.fromkeys(_versions(node, gpus))),
        gpus=gpus,
        numa=_numa(node),
        devices=_devices(node),
        ports=tuple(_port(entry) for entry in node["network"]["ports"]),
        near=tuple((entry["gpu"], entry["nic"], entry["level"]) for entry in topology["distances"]),
        cpu_owners=tuple(CpuOwner(**owner) for owner in topology["cpu_owners"]),
    )


def _versions(node: Answer, gpus: Tuple[GpuFacts, ...]) -> List[Firmware]:
    driver, firmware = node["driver"], node["firmware"]
    machine = firmware["machine"]
    product = machine["product"] or ""
    found = [
        ("driver", "", driver["version"] or driver["kernel_module_version"]),
        ("CUDA", "", driver["cuda_version"]),
        ("kernel", "", node["system"]["kernel"]),
        ("BIOS", product, machine["bios_version"]),
        ("microcode", product, machine["microcode"]),
    ]
    found += [("VBIOS", gpu.model or "", gpu.vbios) for gpu in gpus]
    found += [("GSP firmware", "", gpu.gsp_firmware) for gpu in gpus]
    found += [("NIC firmware", card["board_id"] or "", card["firmware"]) for card in firmware["nics"]]
    found += [("NVMe firmware", drive["model"] or "", drive["firmware"]) for drive in firmware["nvme"]]
    return [Firmware(component, of, version) for component, of, version in found if version]


def _numa(node: Answer) -> Tuple[Numa, ...]:
    pools: Dict[int, List[Tuple[int, int, int]]] = {}
    for pool in node["memory"]["hugepages"]:
        if pool["pages"] and pool["node"] is not None:
            pools.setdefault(pool["node"], []).append((pool["size_kb"], pool["pages"], pool["free"] or 0))
    return tuple(
        Numa(
            node=entry["node"],
            cpus=entry["cpus"] or "",
            memory_mib=entry["memory_mib"],
            distances=entry["distances"],
            hugepages=tuple(pools.get(entry["node"], ())),
        )
        for entry in node["topology"]["nodes"]
    )


def _devices(node: Answer) -> Tuple[DeviceFacts, ...]:
    drives: Dict[str, Answer] = {}
    for drive in node["block"]:
        # Of a drive with several namespaces the first stands for it.
        drives.setdefault(drive["pci_address"] or "", drive)
    delivered = {entry["pci_address"]: entry["irqs"] for entry in node["interrupts"]["devices"]}
    return tuple(
        DeviceFacts(
            kind=entry["kind"],
            pci_address=entry["pci_address"],
            names=entry["names"],
            node=entry["numa_node"] if entry["cpu_node"] is None else entry["cpu_node"],
            link=_link_of(entry["link"]),
            model=drives.get(entry["pci_address"], {}).get("model"),
            size_bytes=drives.get(entry["pci_address"], {}).get("size_bytes"),
            interrupts=_deliveries(delivered.get(entry["pci_address"], ())),
        )
        for entry in node["topology"]["devices"]
    )


def _port(port: Answer) -> PortFacts:
    errors = tuple((error["counter"], error["total"], error["growth"]) for error in port["errors"])
    return PortFacts(**{**port, "errors": errors})


def _link_of(link: Optional[Answer]) -> Optional[Link]:
    if not link:
        return None
    return Link(
        best_speed_gts=link["max_speed_gts"],
        best_width=link["max_width"],
        **{name: link[name] for name in ("speed_gts", "width", "degraded", "causes")},
    )


def _deliveries(interrupts: Sequence[Answer]) -> Tuple[Delivery, ...]:
    movable: Counter[str] = Counter()
    fixed: Counter[str] = Counter()
    for interrupt in interrupts:
        (fixed if interrupt["managed"] else movable)[interrupt["cpus"] or ""] += 1
    return tuple(Delivery(cpus, movable[cpus], fixed[cpus]) for cpus in sorted({*movable, *fixed}) if cpus)


def _gpus(node: Answer) -> Tuple[GpuFacts, ...]:
    known = {entry["pci_address"]: entry for entry in node["gpus"]}
    health = {entry["pci_address"]: entry for entry in node["health"]["gpus"]}
    # Either may lack what the other has.
    return tuple(
        _gpu(
            known.get(address) or _gpu_shape({"pci_address": address}),
            health.get(address) or _health_shape({"pci_address": address}),
            _xids(node, address),
        )
        for address in dict.fromkeys([*known, *health])
    )


def _xids(node: Answer, address: str) -> Texts:
    return tuple(
        f"Xid {xid['xid']} ({xid['count']} since boot), last: {xid['last'] or '-'}"
        for xid in node["health"]["xids"]
        if xid["pci_address"] == address
    )


def _gpu(gpu: Answer, health: Answer, xids: Texts) -> GpuFacts:
    mig, links = gpu["mig"], health["nvlinks"]
    return GpuFacts(
        **{name: gpu[name] for name in AS_IN_THE_ANSWER},
        lost=bool(gpu["lost"]),
        memory_mib=gpu["memory"]["total_mib"],
        used_mib=gpu["memory"]["used_mib"],
        draw_watts=gpu["power"]["draw_watts"],
        limit_watts=gpu["power"]["limit_watts"],
        ecc=gpu["ecc"]["current"],
        mig=mig["current"],
        instances=tuple(InstanceFacts(**instance) for instance in mig["instances"]),
        nvlinks=links["total"],
        nvlinks_inactive=links["inactive"],
        fabric=health["fabric"]["state"],
        healthy=health["healthy"],
        problems=health["problems"],
        xids=xids,
        counters=_counters(health),
    )


def _counters(health: Answer) -> Dict[str, int]:
    found = {}
    for name, path in COUNTERS.items():
        value: Any = health
        for step in path:
            value = value[step]
        if value is not None:
            found[name] = value
    return found
