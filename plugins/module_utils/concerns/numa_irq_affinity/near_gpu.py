# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPU a device serves, for entries with ``near: gpu``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from ..._linux import pci
from ..._nvidia.gpus import PCI
from .devices import GPU
from .model import IrqDevice

if TYPE_CHECKING:
    from ..._core.protocols import Files

# The words of pci.distance, nearest first; behind them comes what nobody can tell.
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS", None)


def nearest(files: Files, device: IrqDevice, found: Sequence[IrqDevice]) -> Optional[IrqDevice]:
    """The nearest on the bus of the GPUs among ``found``, and of those that are as near the first.

    None on a machine without a GPU.
    """
    own = _chain(files, device)
    gpus = [other for other in found if other.kind == GPU]
    return min(gpus, key=lambda gpu: _level(device, own, gpu, _chain(files, gpu)), default=None)


def _level(device: IrqDevice, own: pci.Chain, gpu: IrqDevice, other: pci.Chain) -> int:
    same_node = None if None in (device.node, gpu.node) else device.local == gpu.local
    return LEVELS.index(pci.distance(own, other, same_node=same_node))


def _chain(files: Files, device: IrqDevice) -> pci.Chain:
    return pci.chain(files.resolve(f"{PCI}/{device.address}"))
