# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PCI devices that matter to GPU work: GPUs, network cards and NVMe drives, with their place and their link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Tuple

from ..._core.value import frozen
from ..._linux import pci
from ..._nvidia.gpus import DISPLAY_CLASSES, NVIDIA, PCI
from .fields import Facts, Fields, read_as

if TYPE_CHECKING:
    from ..._core.protocols import Files

GPU, NIC, NVME = "gpu", "nic", "nvme"
# Ethernet, InfiniBand and what else calls itself a network controller; NVM Express.
KINDS: Dict[str, str] = {"0x0200": NIC, "0x0207": NIC, "0x0280": NIC, "0x0108": NVME}
NOT_ON_BUS = "it is not among the PCI devices visible from here"
IDLE = "a GPU lowers the speed of its link while it is idle"


@frozen
class PciDevice:
    """A function of PCI. ``names`` are what the kernel calls it: interfaces, RDMA devices, the NVMe controller."""

    kind: str
    address: str
    path: str
    chain: pci.Chain
    vendor: str
    device: str
    driver: Optional[str]
    names: Tuple[str, ...]


def read_devices(files: Files) -> Tuple[PciDevice, ...]:
    """All of them by address: a look at the class of every function, and more only at those that count."""
    found = []
    for address in files.names(PCI):
        try:
            kind = files.read(f"{PCI}/{address}/class")[:6]
            if kind in DISPLAY_CLASSES or kind in KINDS:
                device = _read_device(files, address, KINDS.get(kind, GPU))
                if device.kind != GPU or device.vendor == NVIDIA:
                    found.append(device)
        except OSError:
            # Gone between the listing and now.
            if files.exists(f"{PCI}/{address}/class"):
                raise
    return tuple(found)


def read_link(files: Files, device: PciDevice, *, idle: bool = False) -> Facts:
    """The link now, at most, and what the slot can do (Documentation/ABI/testing/sysfs-bus-pci).

    It is degraded when it is slower or narrower than the device could be, wherever the cause is: a drive in the wrong
    slot is. Only the speed of a GPU is measured by what its slot can do as well, since a GB200 is ahead of its CPU.
    ``idle`` says that the device is a GPU that may have lowered the speed, but never the width, to save power.
    """
    fields = Fields()
    speed = read_as(files, f"{device.path}/current_link_speed", pci.gigatransfers)
    width = read_as(files, f"{device.path}/current_link_width", pci.lanes)
    max_speed = read_as(files, f"{device.path}/max_link_speed", pci.gigatransfers)
    max_width = read_as(files, f"{device.path}/max_link_width", pci.lanes)
    slot = device.path.rpartition("/")[0]
    slot_speed = read_as(files, f"{slot}/max_link_speed", pci.gigatransfers)
    fields.add("speed_gts", *speed)
    fields.add("max_speed_gts", *max_speed)
    fields.add("slot_max_speed_gts", *slot_speed)
    fields.add("width", *width)
    fields.add("max_width", *max_width)
    fields.add("slot_max_width", *read_as(files, f"{slot}/max_link_width", pci.lanes))
    causes = []
    reachable = min(filter(None, (max_speed[0], slot_speed[0] if device.kind == GPU else None)), default=None)
    slow = bool(speed[0] and reachable and speed[0] < reachable)
    if slow and not idle:
        causes.append("slow")
    if width[0] and max_width[0] and width[0] < max_width[0]:
        causes.append("narrow")
    if causes or (speed[0] and width[0] and max_speed[0] and max_width[0]):
        fields.add("degraded", bool(causes))
    else:
        fields.lack("the link is not known", "degraded")
    fields.add("causes", causes)
    fields.add("note", IDLE if slow and idle else "")
    return fields.facts


def _read_device(files: Files, address: str, kind: str) -> PciDevice:
    path = files.resolve(f"{PCI}/{address}")
    driver = files.resolve(f"{path}/driver")
    return PciDevice(
        kind=kind,
        address=address,
        path=path,
        chain=pci.chain(path),
        vendor=files.read(f"{path}/vendor").strip(),
        device=files.read(f"{path}/device").strip(),
        driver=driver.rpartition("/")[2] if files.exists(driver) else None,
        names=_names(files, path, kind),
    )


def _names(files: Files, path: str, kind: str) -> Tuple[str, ...]:
    if kind == GPU:
        return ()
    if kind == NVME:
        return files.names(f"{path}/nvme")
    interfaces = files.names(f"{path}/net")
    if not interfaces:
        # A paravirtual card has a device of virtio between.
        virtio = (name for name in files.names(path) if name.startswith("virtio"))
        interfaces = tuple(name for child in virtio for name in files.names(f"{path}/{child}/net"))
    return (*files.names(f"{path}/infiniband"), *interfaces)
