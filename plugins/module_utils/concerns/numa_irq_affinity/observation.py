# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is read of the interrupts and queues of devices."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from ..._core.change import Unmanaged
from . import steering
from .devices import setting_of
from .model import Cpus, Interrupt, IrqDevice
from .planner import plan_interrupts
from .processors import read_processors
from .resolve import targets
from .state import Key, Observation, WantedAffinity, text_of

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .spec import IrqAffinityDeclaration


def observe_devices(files: Files, declaration: IrqAffinityDeclaration) -> Observation:
    """The declared devices, and where their interrupts and queues belong."""
    processors = read_processors(files)
    found = targets(files, declaration, processors)
    devices = tuple(target.device for target in found)
    wants = tuple(want_of(place.device, place.interrupt, place.cpus) for place in plan_interrupts(processors, found))
    unmanaged = lacking(devices)
    if any(target.rps is not None or target.xps is not None for target in found):
        queues, without = steering.observe_queues(files, found, isolated=processors.isolated)
        wants += queues
        unmanaged.update(without)
    return devices, wants, unmanaged


def lacking(devices: Sequence[IrqDevice]) -> Dict[Key, Unmanaged]:
    """The interrupts that the kernel places by itself."""
    return {
        (device.address, setting_of(interrupt.name)): Unmanaged(
            device.name, setting_of(interrupt.name), interrupt.managed
        )
        for device in devices
        for interrupt in device.interrupts
        if interrupt.managed
    }


def want_of(device: IrqDevice, interrupt: Interrupt, cpus: Cpus) -> WantedAffinity:
    key = (device.address, setting_of(interrupt.name))
    return WantedAffinity(device.name, key, wanted=cpus, effective=interrupt.cpus, device=device)


def overview(devices: Sequence[IrqDevice], wants: Sequence[WantedAffinity]) -> List[Dict[str, Any]]:
    """By device how many interrupts it has, the CPUs of those that can be moved, together, as they shall be and as they
    are, how many of them are elsewhere, and how many cannot be moved for which reason.
    """
    by_key = {want.key: want for want in wants}
    found = []
    for device in devices:
        keys = [(device.address, setting_of(interrupt.name)) for interrupt in device.interrupts]
        movable = [by_key[key] for key in keys if key in by_key]
        found.append(
            {
                "device": device.name,
                "pci_address": device.address,
                "numa_node": device.node,
                "interrupts": len(device.interrupts),
                "wanted": text_of(frozenset().union(*(want.wanted for want in movable))) if movable else None,
                "effective": text_of(frozenset().union(*(want.effective for want in movable))) if movable else None,
                "elsewhere": sum(want.effective != want.wanted for want in movable),
                "unmanaged": dict(Counter(one.managed for one in device.interrupts if one.managed)),
            }
        )
    return found
