# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From entries to devices: which entry wins which device, and the CPUs that the interrupts of it may use.

A device is won whether its driver has requested interrupts or not: those of a card that is down, or of a GPU that
nobody has open, come later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from ..._core import match
from ..._core.value import replace
from ..._linux import pci
from ..._nvidia.gpus import PCI
from . import devices, refusals
from .model import Cpus, IrqDevice, IrqTarget, Processors
from .spec import ADDRESS, CLASS, CLASSES, DRIVER, INTERFACE, InterruptEntry, IrqAffinityDeclaration

if TYPE_CHECKING:
    from ..._core.protocols import Files

# The words of pci.distance, nearest first; behind them comes what nobody can tell.
LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS", None)


def targets(files: Files, declaration: IrqAffinityDeclaration, processors: Processors) -> Tuple[IrqTarget, ...]:
    """What is wanted of each device that an entry wins, by address. Interrupts of other devices are not read.

    Raises ``DeclarationError`` for what this machine cannot have.
    """
    entries = declaration.entries
    if not entries:
        return ()
    _check_reserved(declaration.reserved, processors)
    found = devices.find(files, processors, others=any(entry.others for entry in entries))
    _refuse_virtual(files, entries, found)
    winners = match.select([_closed(entry) for entry in entries], [_candidate(device) for device in found])
    won = [(device, entries[winner]) for device, winner in zip(found, winners) if winner is not None]
    eligible = _Eligible(files, found, declaration.reserved, processors)
    cpus = [eligible.of(device, entry) for device, entry in won]
    complete = devices.complete(files, [device for device, _entry in won])
    return tuple(
        IrqTarget(device=device, eligible=own, spread=entry.spread, rps=entry.rps, xps=entry.xps)
        for device, own, (_device, entry) in zip(complete, cpus, won)
    )


def _closed(entry: InterruptEntry) -> match.MatchEntry:
    """The entry as it is selected by: one that names no device of no class is about those of a class."""
    if entry.others or CLASS in entry.entry.match:
        return entry.entry
    return replace(entry.entry, match={CLASS: CLASSES})


def _candidate(device: IrqDevice) -> match.Candidate:
    values = {
        CLASS: (device.kind,) if device.kind in CLASSES else (),
        DRIVER: (device.driver,) if device.driver else (),
        INTERFACE: device.interfaces,
        ADDRESS: (device.address,),
    }
    return match.Candidate(device.name, values)


def _refuse_virtual(files: Files, entries: Sequence[InterruptEntry], found: Sequence[IrqDevice]) -> None:
    """An interface that is named in full, is there, and is no port of a device that we know."""
    physical = {name for device in found for name in device.interfaces}
    for entry in entries:
        for name in entry.entry.match.get(INTERFACE, ()):
            if any(special in name for special in (*match.WILDCARDS, "/")) or name in physical:
                continue
            if files.exists(f"/sys/class/net/{name}"):
                raise refusals.virtual_interface(files, str(entry.entry), name)


def _check_reserved(reserved: Cpus, processors: Processors) -> None:
    if not reserved <= processors.possible or processors.online <= reserved:
        raise refusals.reserved_cpus(reserved, processors)


def _nearest_gpu(files: Files, device: IrqDevice, found: Sequence[IrqDevice]) -> Optional[IrqDevice]:
    """The nearest on the bus of the GPUs among ``found``, and of those that are as near the first.

    None on a machine without a GPU.
    """
    own = _chain(files, device)
    gpus = [other for other in found if other.kind == devices.GPU]
    return min(gpus, key=lambda gpu: _level(device, own, gpu, _chain(files, gpu)), default=None)


def _level(device: IrqDevice, own: pci.Chain, gpu: IrqDevice, other: pci.Chain) -> int:
    same_node = None if None in (device.node, gpu.node) else device.local == gpu.local
    return LEVELS.index(pci.distance(own, other, same_node=same_node))


def _chain(files: Files, device: IrqDevice) -> pci.Chain:
    return pci.chain(files.resolve(f"{PCI}/{device.address}"))


class _Eligible:
    """The CPUs that the interrupts of a device may use, by the entry that wins it."""

    def __init__(self, files: Files, found: Sequence[IrqDevice], reserved: Cpus, processors: Processors) -> None:
        self._files = files
        self._found = found
        self._reserved = reserved
        self._processors = processors
        self._shared: Cpus = frozenset().union(*(core for core in processors.siblings if core & reserved))

    def of(self, device: IrqDevice, entry: InterruptEntry) -> Cpus:
        if entry.cpus is not None:
            return self._named(str(entry.entry), entry.cpus)
        if entry.numa_node is not None:
            cpus = self._of_node(str(entry.entry), entry.numa_node)
            return self._left(str(entry.entry), f"of NUMA node {entry.numa_node}", cpus)
        if entry.near_gpu:
            gpu = _nearest_gpu(self._files, device, self._found)
            if gpu is None:
                raise refusals.no_gpu(str(entry.entry), device.name)
            return self._left(device.name, f"next to its GPU {gpu.address}", gpu.local)
        return self._left(device.name, "next to it", device.local)

    def _named(self, where: str, cpus: Cpus) -> Cpus:
        """CPUs that were named one by one: isolated ones and siblings of reserved ones are meant."""
        if not cpus <= self._processors.online or cpus <= self._reserved:
            raise refusals.named_cpus(where, cpus, self._processors)
        return cpus - self._reserved

    def _of_node(self, where: str, number: int) -> Cpus:
        cpus = dict(self._processors.nodes).get(number)
        if not cpus:
            raise refusals.numa_node(where, number, self._processors)
        return cpus

    def _left(self, where: str, whose: str, cpus: Cpus) -> Cpus:
        """What is left of CPUs that were not named one by one: no reserved and no isolated ones.

        Others in their place would be of another NUMA node than the one that was asked for.
        """
        left = cpus - self._reserved - self._processors.isolated
        if not left:
            raise refusals.nothing_left(where, whose, cpus, self._reserved, self._processors.isolated)
        if left <= self._shared:
            raise refusals.siblings_left(where, whose, left)
        return left
