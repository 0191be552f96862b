# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PCI functions that have interrupts to place, where they are, and what the kernel says of their interrupts.

The class decides what a device is called: ``gpu`` is a display controller of NVIDIA, ``network`` an Ethernet controller
or one of the "other" network controllers (0x0280, as older InfiniBand cards say), ``infiniband`` 0x0207, ``nvme``
0x010802, ``storage`` any other mass storage controller, and all else is ``other``. A virtual function is a device like
any other, and one that is lent to a virtual machine (vfio-pci) has no interrupts of ours. The interrupts of auxiliary
devices (``mlx5_core.sf.4``) are those of the function above them.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.record import read_note
from ..._core.regex import regex
from ..._core.value import frozen, replace
from ..._linux.cpus import parse_cpus, read_cpus
from ..._linux.near import majority, nearest_with_cpus
from ..._linux.numa import read_distances
from ..._nvidia.gpus import DISPLAY_CLASSES, NVIDIA, PCI
from .model import Cpus, Interrupt, IrqDevice, Processors

if TYPE_CHECKING:
    from ..._core.protocols import Files

IRQ = "/proc/irq"
DEFAULT = f"{IRQ}/default_smp_affinity"
NOTE = "/run/gpufleet/numa_irq_affinity.json"
INTERRUPT = "interrupt"
GPU, NETWORK, INFINIBAND, NVME, STORAGE, OTHER = "gpu", "network", "infiniband", "nvme", "storage", "other"
NETWORK_KINDS: Mapping[str, str] = {"0x0200": NETWORK, "0x0280": NETWORK, "0x0207": INFINIBAND}
NVM_EXPRESS = "0x010802"
MASS_STORAGE = "0x01"

READ_ONLY = "it cannot be moved: its smp_affinity_list is read-only"
QUEUE = "the kernel places the interrupts of NVMe queues itself"
REFUSED = "the kernel refused to move it, and will until the next boot"
SHARED = "several drivers share its line"

# What /proc/irq/N holds besides a folder for each handler.
IRQ_FILES = frozenset(
    (
        "affinity_hint",
        "effective_affinity",
        "effective_affinity_list",
        "node",
        "smp_affinity",
        "smp_affinity_list",
        "spurious",
    )
)
NVME_QUEUE = regex(r"nvme\d+q[1-9]\d*")


@frozen
class _Requested:
    """The numbers of a device's interrupts, requested by its driver or only set aside for it; ``line`` says INTx."""

    numbers: Tuple[int, ...]
    line: bool = False


def find(files: Files, processors: Processors, *, others: bool = False) -> Tuple[IrqDevice, ...]:
    """All devices of a class by address, and with ``others`` those of none; without their interrupts (``complete``)."""
    found = []
    for address in files.names(PCI):
        try:
            device = _device(files, address, processors, others=others)
        except OSError:
            # Gone between the listing and now.
            if files.exists(f"{PCI}/{address}/class"):
                raise
            continue
        if device is not None:
            found.append(device)
    return tuple(found)


def complete(files: Files, devices: Sequence[IrqDevice]) -> Tuple[IrqDevice, ...]:
    """The devices with the interrupts that their drivers requested, by number.

    Handlers of one device that have the same name are told apart by their order: ``nvidia``, ``nvidia#2``.
    """
    refused = noted(files)
    requested = [_requested(files, device) for device in devices]
    users = Counter(number for own in requested if own.line for number in own.numbers)
    return tuple(
        replace(device, interrupts=_interrupts(files, device, own, users=users, refused=refused))
        for device, own in zip(devices, requested)
    )


def noted(files: Files) -> Dict[Tuple[str, str], str]:
    """What the kernel refused to let anybody set since the machine started: the reason by identity and setting.

    That is the PCI address and, of an interrupt, ``setting_of`` its name. What cannot be understood is nothing.
    """
    return read_note(files, NOTE, lambda rows: {(str(one), str(setting)): str(why) for one, setting, why in rows}) or {}


def note_text(refused: Mapping[Tuple[str, str], str]) -> str:
    """The text of the note: JSON, a list of identity, setting and reason."""
    return json.dumps([[*key, refused[key]] for key in sorted(refused)], indent=1) + "\n"


def setting_of(name: str) -> str:
    """The setting that is the place of an interrupt."""
    return f"{INTERRUPT} {name}"


def disambiguate(name: str, seen: Dict[str, int]) -> str:
    """The name of a device's next interrupt, with a number where earlier ones (counted in ``seen``) have it too."""
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name}#{seen[name]}"


def why_managed(handlers: Sequence[str], mode: int, *, shared: bool, refused: str) -> str:
    """Why nobody can move an interrupt, empty where somebody can.

    ``mode`` is that of its smp_affinity_list. ``shared`` says that it is a line of several drivers, and ``refused`` is
    what was noted of it.
    """
    if not mode & 0o222:
        return READ_ONLY
    if shared:
        return SHARED
    return QUEUE if handlers and all(map(NVME_QUEUE.fullmatch, handlers)) else refused


def _device(files: Files, address: str, processors: Processors, *, others: bool) -> Optional[IrqDevice]:
    folder = f"{PCI}/{address}"
    kind = _kind(files, folder)
    if kind == OTHER and not others:
        return None
    node, local = _place(files, folder, processors)
    return IrqDevice(
        address=address,
        kind=kind,
        driver=files.link(f"{folder}/driver").rpartition("/")[2],
        interfaces=_interfaces(files, folder) if kind in (NETWORK, INFINIBAND, OTHER) else (),
        node=node,
        local=local,
        interrupts=(),
    )


def _kind(files: Files, folder: str) -> str:
    code = files.read(f"{folder}/class").strip()
    if code.startswith(DISPLAY_CLASSES):
        return GPU if files.read(f"{folder}/vendor").strip() == NVIDIA else OTHER
    if code == NVM_EXPRESS:
        return NVME
    return STORAGE if code.startswith(MASS_STORAGE) else NETWORK_KINDS.get(code[:6], OTHER)


def _interfaces(files: Files, folder: str) -> Tuple[str, ...]:
    """Its own, and those of a virtio or auxiliary device (a scalable function) below it."""
    below = [f"{name}/net" for name in files.names(folder) if name.startswith("virtio") or ".sf." in name]
    return tuple(name for part in ("net", *below) for name in files.names(f"{folder}/{part}"))


def _place(files: Files, folder: str, processors: Processors) -> Tuple[Optional[int], Cpus]:
    """The NUMA node, None where nobody tells, and the CPUs next to it."""
    nodes = dict(processors.nodes)
    text = (files.read_optional(f"{folder}/numa_node") or "").strip()
    node: Optional[int] = int(text) if text.isdecimal() else None
    if node not in nodes:
        node = majority(read_cpus(files, f"{folder}/local_cpulist"), nodes)
    if node is None:
        return None, processors.online
    near = node if nodes[node] else nearest_with_cpus(node, nodes, read_distances(files, node))
    return node, processors.online if near is None else nodes[near]


def _requested(files: Files, device: IrqDevice) -> _Requested:
    """Its MSI vectors, or else its line."""
    if device.driver.replace("_", "-").endswith("vfio-pci"):
        return _Requested(())
    folder = f"{PCI}/{device.address}"
    vectors = files.names(f"{folder}/msi_irqs")
    if vectors:
        return _Requested(tuple(sorted(map(int, vectors))))
    line = (files.read_optional(f"{folder}/irq") or "").strip()
    return _Requested((int(line),) if line.isdecimal() and int(line) else (), line=True)


def _interrupts(
    files: Files,
    device: IrqDevice,
    requested: _Requested,
    *,
    users: Mapping[int, int],
    refused: Mapping[Tuple[str, str], str],
) -> Tuple[Interrupt, ...]:
    """Those that have a handler; ``users`` counts the devices of a line."""
    found: List[Interrupt] = []
    seen: Dict[str, int] = {}
    sets: Dict[str, Cpus] = {}
    for number in requested.numbers:
        handlers = [name for name in files.names(f"{IRQ}/{number}") if name not in IRQ_FILES]
        if not handlers:
            continue
        path = f"{IRQ}/{number}/smp_affinity_list"
        try:
            mode, text = files.mode(path), files.read(path)
        except OSError as error:
            # Given back between the listing and now; one that was open already says EIO.
            if not isinstance(error, FileNotFoundError) and files.exists(path):
                raise
            continue
        if text not in sets:
            # Many have the same, and of hundreds of CPUs.
            sets[text] = parse_cpus(text, path)
        name = disambiguate(", ".join(handlers), seen)
        managed = why_managed(
            handlers,
            mode,
            shared=requested.line and (len(handlers) > 1 or users[number] > 1),
            refused=refused.get((device.address, setting_of(name)), ""),
        )
        found.append(Interrupt(name=name, number=number, cpus=sets[text], managed=managed))
    return tuple(found)
