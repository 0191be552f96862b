# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block queues as they are, as the next boot will make them, and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.change import Conflict, Unmanaged
from ..._core.setting import Scalar
from ..._core.value import frozen
from .devices import Disk, Queue, Subject

if TYPE_CHECKING:
    from ..._kinds.own_files import OwnFile
    from .owners import LateOwners

OUR_MODULES = "/etc/modules-load.d/gpufleet-nvme_scheduler.conf"


@frozen
class NvmeSchedulerState:
    """What was seen. ``winners`` are indexes of the declared entries, one a disk.

    ``texts`` are the rule files that bear on queues, ``scripts`` those that they run, by path. ``boot`` is by device
    and setting, ``modules`` the kernel module of each scheduler that is one, ``late`` who sets queues behind udev.
    """

    disks: Tuple[Disk, ...]
    winners: Tuple[Optional[int], ...]
    texts: Tuple[Tuple[str, str], ...]
    subjects: Mapping[str, Subject]
    scripts: Mapping[str, str]
    boot: Mapping[Tuple[str, str], Scalar]
    rules_file: OwnFile
    modules_file: OwnFile
    modules: Mapping[str, str]
    udev_runs: bool
    owners: Tuple[Conflict, ...] = ()
    late: Optional[LateOwners] = None

    @property
    def queues(self) -> Tuple[Queue, ...]:
        return tuple(queue for disk in self.disks for queue in disk.queues)


@frozen
class WantedQueue:
    """The values one queue shall have, in the order of writing."""

    queue: Queue
    values: Mapping[str, Scalar]


@frozen
class NvmeSchedulerDesired:
    """What this machine shall have. None for a text means: no such file."""

    wants: Tuple[WantedQueue, ...]
    rules_text: Optional[str]
    modules_text: Optional[str]
    unmanaged: Tuple[Unmanaged, ...] = ()
