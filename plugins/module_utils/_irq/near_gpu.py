# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPU a device serves. Imported where an entry says ``near: gpu``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from .._host.gpus import PCI
from .._topology import pci
from .devices import GPU
from .model import Device

if TYPE_CHECKING:
    from .._host.protocols import Files

# The words of pci.distance, nearest first; behind them comes what nobody can tell.
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS", None)


def nearest(files: Files, device: Device, found: Sequence[Device]) -> Optional[Device]:
    """The nearest on the bus of the GPUs among ``found``, and of those that are as near the first.

    None on a machine without a GPU.
    """
    own = _chain(files, device)
    gpus = [other for other in found if other.kind == GPU]
    return min(gpus, key=lambda gpu: _level(device, own, gpu, _chain(files, gpu)), default=None)


def _level(device: Device, own: pci.Chain, gpu: Device, other: pci.Chain) -> int:
    same_node = None if None in (device.node, gpu.node) else device.local == gpu.local
    return LEVELS.index(pci.distance(own, other, same_node=same_node))


def _chain(files: Files, device: Device) -> pci.Chain:
    return pci.chain(files.resolve(f"{PCI}/{device.address}"))
