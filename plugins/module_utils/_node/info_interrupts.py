# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which interrupts belong to the GPUs, network cards and NVMe drives, and where they go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence

from .info_fields import Facts, Fields, read
from .info_pci import Device

if TYPE_CHECKING:
    from .._host.protocols import Files

INTERRUPTS = "/proc/interrupts"
IRQ = "/proc/irq"
# x86 writes "PCI-MSIX-0000:18:00.0    1-edge", arm64 "ITS-MSI 1 Edge"; without a handler nothing follows.
_PLACE = re.compile(r"(?:\d+-\w+|\d+ +(?:Edge|Level)|Edge|Level)$")
NOT_REQUESTED = "the driver has not requested it"


def gather(files: Files, devices: Sequence[Device]) -> Facts:
    """By device the interrupts that the kernel gave it, in one pass over /proc/interrupts."""
    fields = Fields()
    text, reason = read(files, INTERRUPTS)
    handlers = parse_handlers(text or "")
    fields.add("total", None if text is None else len(handlers), reason)
    fields.add("default_cpus_mask", *read(files, f"{IRQ}/default_smp_affinity"))
    fields.add("devices", [_device(files, device, handlers) for device in devices])
    return fields.facts


def parse_handlers(text: str) -> Dict[int, Optional[str]]:
    """The names of the handlers of each numbered interrupt, which stand behind two blanks at the end of its line."""
    found: Dict[int, Optional[str]] = {}
    for line in text.splitlines():
        number, _colon, rest = line.partition(":")
        if number.strip().isdigit():
            # A line has a count for each CPU: it is not taken apart from the front.
            name = rest.rstrip().rpartition("  ")[2].strip()
            found[int(number)] = None if not name or _PLACE.match(name) else name
    return found


def _device(files: Files, device: Device, handlers: Mapping[int, Optional[str]]) -> Facts:
    numbers: List[int] = sorted(int(name) for name in files.names(f"{device.path}/msi_irqs"))
    if not numbers:
        line = (files.read_optional(f"{device.path}/irq") or "0").strip()
        numbers = [int(line)] if line.isdigit() and int(line) in handlers else []
    return {
        "pci_address": device.address,
        "kind": device.kind,
        "names": list(device.names),
        "irqs": [_irq(files, number, handlers.get(number)) for number in numbers],
    }


def _irq(files: Files, number: int, name: Optional[str]) -> Facts:
    fields = Fields(irq=number)
    fields.add("name", name, NOT_REQUESTED)
    fields.add("cpus", *read(files, f"{IRQ}/{number}/smp_affinity_list"))
    return fields.facts
