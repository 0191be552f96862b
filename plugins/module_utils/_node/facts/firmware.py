# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has firmware of its own beside the GPUs: the machine, its NVMe drives and its network cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

from .fields import Facts, Fields, read
from .pci import NIC, NVME, PciDevice

if TYPE_CHECKING:
    from ..._core.protocols import Files

DMI = "/sys/class/dmi/id"
MACHINE = {
    "vendor": "sys_vendor",
    "product": "product_name",
    "serial": "product_serial",
    "board": "board_name",
    "bios_vendor": "bios_vendor",
    "bios_version": "bios_version",
    "bios_date": "bios_date",
}
MICROCODE = "/sys/devices/system/cpu/cpu0/microcode/version"
NO_RDMA = "only RDMA devices show it in /sys"


def gather(files: Files, devices: Sequence[PciDevice]) -> Facts:
    machine = Fields()
    for field, name in MACHINE.items():
        machine.add(field, *read(files, f"{DMI}/{name}"))
    machine.add("microcode", *read(files, MICROCODE))
    return {
        "machine": machine.facts,
        "nvme": [_drive(files, device) for device in devices if device.kind == NVME and device.names],
        "nics": [_card(files, device) for device in devices if device.kind == NIC],
    }


def _drive(files: Files, device: PciDevice) -> Facts:
    fields = Fields(pci_address=device.address, name=device.names[0])
    for field in ("model", "serial", "firmware_rev"):
        fields.add(field.replace("_rev", ""), *read(files, f"{device.path}/nvme/{device.names[0]}/{field}"))
    return fields.facts


def _card(files: Files, device: PciDevice) -> Facts:
    fields = Fields(pci_address=device.address, names=list(device.names))
    rdma = next(iter(files.names(f"{device.path}/infiniband")), None)
    for field, name in (("firmware", "fw_ver"), ("board_id", "board_id")):
        fields.add(
            field, *((None, NO_RDMA) if rdma is None else read(files, f"{device.path}/infiniband/{rdma}/{name}"))
        )
    return fields.facts
