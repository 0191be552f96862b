# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the interrupts of each device are and where they belong, in a line a device."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from .devices import setting_of
from .state import text_of

if TYPE_CHECKING:
    from .model import IrqDevice
    from .state import IrqAffinityState, WantedAffinity


def overview(state: IrqAffinityState) -> List[Dict[str, Any]]:
    """That of a look; nothing where nothing is declared any more."""
    return of_devices(state.devices, state.wants) if state.declaration else []


def of_devices(devices: Sequence[IrqDevice], wants: Sequence[WantedAffinity]) -> List[Dict[str, Any]]:
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
