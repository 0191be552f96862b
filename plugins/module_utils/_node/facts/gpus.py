# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs: what the bus says of each, and what the driver says of those that it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from .fields import Facts, Fields, read
from .pci import GPU, NOT_ON_BUS, PciDevice

if TYPE_CHECKING:
    from ..._core.protocols import Files

IDENTITY = ("index", "uuid", "model")
STATE = (
    *("serial", "board_part_number", "brand", "architecture", "cuda_capability", "minor", "persistence"),
    *("compute_mode", "addressing_mode", "virtualization_mode", "temperature_celsius", "performance_state"),
    *("throttle_reasons", "vbios", "inforom", "gsp_firmware", "mig", "ecc", "memory", "clocks", "power", "processes"),
)
UNKNOWN_TO_DRIVER = "the NVIDIA driver does not know this GPU"


def by_address(answers: Sequence[Facts], devices: Sequence[PciDevice]) -> Dict[str, Facts]:
    """What the driver says of each GPU, by PCI address.

    Of a lost GPU the driver knows the number alone. It counts along the bus, so those that are lost are the GPUs that
    nobody else claims, in that order; where the numbers do not match, they go by names of our own (``lost GPU 3``).
    """
    found = {facts["pci_address"]: facts for facts in answers if not facts["lost"]}
    lost = [facts for facts in answers if facts["lost"]]
    unclaimed = [device.address for device in devices if device.kind == GPU and device.address not in found]
    if len(lost) != len(unclaimed):
        unclaimed = [f"lost GPU {facts['index']}" for facts in lost]
    found.update(zip(unclaimed, lost))
    return found


def gather(
    files: Files,
    devices: Sequence[PciDevice],
    links: Mapping[str, Facts],
    answers: Mapping[str, Facts],
    trouble: str,
) -> List[Facts]:
    """Every GPU of the bus and of the driver, in the driver's order. ``trouble`` is why the driver does not respond."""
    on_bus: Dict[str, Optional[PciDevice]] = {device.address: device for device in devices if device.kind == GPU}
    on_bus.update((address, None) for address in answers if address not in on_bus)

    def order(pair: Tuple[str, Optional[PciDevice]]) -> Tuple[float, str]:
        return answers.get(pair[0], {}).get("index", float("inf")), pair[0]

    return [
        _gpu(files, address, device, links.get(address), answers.get(address, {}), trouble)
        for address, device in sorted(on_bus.items(), key=order)
    ]


def _gpu(
    files: Files, address: str, device: Optional[PciDevice], link: Optional[Facts], answer: Facts, trouble: str
) -> Facts:
    fields = Fields()
    reason = answer.get("lost") or trouble or UNKNOWN_TO_DRIVER
    for name in IDENTITY:
        value = answer.get(name)
        fields.add(name, None if value == "" else value, reason)
    if device is None:
        fields.add("pci_address", address if answer.get("pci_address") else None, NOT_ON_BUS)
        fields.add("pci_id", answer.get("pci_id"), NOT_ON_BUS)
        fields.add("pci_subsystem_id", answer.get("pci_subsystem_id"), NOT_ON_BUS)
        fields.lack(NOT_ON_BUS, "kernel_driver", "link")
    else:
        fields.add("pci_address", address)
        fields.add("pci_id", f"{device.vendor[2:]}:{device.device[2:]}")
        vendor, why = read(files, f"{device.path}/subsystem_vendor")
        model, _why = read(files, f"{device.path}/subsystem_device")
        fields.add("pci_subsystem_id", f"{vendor[2:]}:{model[2:]}" if vendor and model else None, why)
        fields.add("kernel_driver", device.driver, "no driver is bound to it")
        fields.add("link", link)
    fields.add("lost", bool(answer.get("lost")))
    fields.take(answer.get("state", {}), STATE, reason)
    return fields.facts
