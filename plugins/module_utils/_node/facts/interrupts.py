# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which interrupts belong to the GPUs, network cards and NVMe drives, where they go, and which nobody can move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.arguments import validated
from ..._core.declared import of_file, path_of
from ..._core.errors import GpuFleetError
from ..._core.regex import regex
from ..._core.shared_options import SHARED_OPTIONS
from ...concerns.numa_irq_affinity.devices import IRQ, disambiguate, noted, setting_of, why_managed
from ...concerns.numa_irq_affinity.observation import observe_devices, overview
from ...concerns.numa_irq_affinity.options import OPTIONS
from ...concerns.numa_irq_affinity.spec import NAME, parse
from .fields import Facts, Fields, read, why
from .pci import PciDevice

if TYPE_CHECKING:
    from ..._core.protocols import Files

INTERRUPTS = "/proc/interrupts"
# x86 writes "PCI-MSIX-0000:18:00.0    1-edge", arm64 "ITS-MSI 1 Edge"; without a handler nothing follows.
_PLACE = regex(r"(?:\d+-\w+|\d+ +(?:Edge|Level)|Edge|Level)$")
NOT_DECLARED = f"{NAME} is not declared on this node"
NOT_REQUESTED = "the driver has not requested it"

Refused = Mapping[Tuple[str, str], str]


def gather(files: Files, devices: Sequence[PciDevice]) -> Facts:
    """By device the interrupts that the kernel gave it, in one pass over /proc/interrupts."""
    fields = Fields()
    text, reason = read(files, INTERRUPTS)
    handlers = parse_handlers(text or "")
    fields.add("total", None if text is None else len(handlers), reason)
    fields.add("default_cpus_mask", *read(files, f"{IRQ}/default_smp_affinity"))
    refused = noted(files)
    fields.add("declared", *_declared(files))
    fields.add("devices", [_device(files, device, handlers, refused) for device in devices])
    return fields.facts


def _declared(files: Files) -> Tuple[Optional[List[Facts]], str]:
    """By device where those that are declared belong and are, in a few words; or why nobody can tell."""
    try:
        options = of_file(files, NAME)
        if options is None:
            return None, NOT_DECLARED
        params = validated({**SHARED_OPTIONS, **OPTIONS}, options, stored=True)
        found, wants, _unmanaged = observe_devices(files, parse(params))
    except OSError as error:
        return None, why(error, str(error.filename or path_of(NAME)))
    except GpuFleetError as error:
        return None, str(error)
    return overview(found, wants), ""


def parse_handlers(text: str) -> Dict[int, Optional[str]]:
    """The names of the handlers of each numbered interrupt, which stand behind two blanks at the end of its line."""
    found: Dict[int, Optional[str]] = {}
    for line in text.splitlines():
        number, _colon, rest = line.partition(":")
        if number.strip().isdecimal():
            # A line has a count for each CPU: it is not taken apart from the front.
            name = rest.rstrip().rpartition("  ")[2].strip()
            found[int(number)] = None if not name or _PLACE.match(name) else name
    return found


def _device(files: Files, device: PciDevice, handlers: Mapping[int, Optional[str]], refused: Refused) -> Facts:
    numbers: List[int] = sorted(int(name) for name in files.names(f"{device.path}/msi_irqs"))
    line = not numbers
    if line:
        text = (files.read_optional(f"{device.path}/irq") or "0").strip()
        numbers = [int(text)] if text.isdecimal() and int(text) in handlers else []
    irqs: List[Facts] = []
    seen: Dict[str, int] = {}
    for number in numbers:
        name = handlers.get(number)
        reason = refused.get((device.address, setting_of(disambiguate(name, seen))), "") if name else ""
        irqs.append(_irq(files, number, name, line=line, refused=reason))
    return {"pci_address": device.address, "kind": device.kind, "names": list(device.names), "irqs": irqs}


def _irq(files: Files, number: int, name: Optional[str], *, line: bool, refused: str) -> Facts:
    path = f"{IRQ}/{number}/smp_affinity_list"
    handlers = name.split(", ") if name else []
    fields = Fields(irq=number)
    fields.add("name", name, NOT_REQUESTED)
    fields.add("cpus", *read(files, path))
    try:
        shared = line and len(handlers) > 1
        fields.add("managed", why_managed(handlers, files.mode(path), shared=shared, refused=refused))
    except OSError as error:
        fields.lack(why(error, path), "managed")
    return fields.facts
