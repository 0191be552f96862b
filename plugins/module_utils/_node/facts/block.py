# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The block queues of NVMe disks and of what lies on top of them, as the concern nvme_scheduler reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from ...concerns.nvme_scheduler import devices
from ...concerns.nvme_scheduler.spec import TUNABLES
from .fields import Facts, Fields, read_as

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ...concerns.nvme_scheduler.devices import Disk, Queue

SECTOR = 512
NOT_ITS_OWN = "it has no request queue of its own"


def gather(files: Files) -> List[Facts]:
    disks = devices.observe(
        files, settings=frozenset(TUNABLES), entries=(), asked=frozenset(("model", "address")), others=True
    )
    return [_disk(files, disk) for disk in disks]


def _disk(files: Files, disk: Disk) -> Facts:
    fields = Fields(name=disk.name)
    for field, key in (("model", "model"), ("serial", "serial"), ("pci_address", "address")):
        fields.add(field, disk.controller.get(key), "it has none")
    sectors, reason = read_as(files, f"{devices.FOLDER}/{disk.name}/size", int)
    fields.add("size_bytes", None if sectors is None else sectors * SECTOR, reason)
    fields.add("queues", [_queue(queue) for queue in disk.queues])
    return fields.facts


def _queue(queue: Queue) -> Facts:
    """The settings of a device: the disk itself, or a hidden path of a multipath disk."""
    fields = Fields(device=queue.name, schedulers=list(queue.schedulers))
    for setting in TUNABLES:
        missing = "this kernel does not have it for this device" if setting in queue.missing else NOT_ITS_OWN
        reason = "the kernel refuses to read it" if setting in queue.values else missing
        fields.add(setting, queue.values.get(setting), reason)
    return fields.facts
