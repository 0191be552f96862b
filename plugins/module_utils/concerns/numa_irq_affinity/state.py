# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupts and queues where they are, and where they are declared to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.value import frozen
from ..._kinds.hotplug import Hotplug
from ..._linux.boot_service import BootCarrier
from ..._linux.cpulist import render
from .irqbalance import IrqbalanceDaemon, WantedIrqbalance
from .model import Cpus, IrqDevice, Processors

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Conflict
    from ..._core.errors import DeclarationError
    from ..._kinds.foreign_values import ForeignValue
    from .spec import IrqAffinityDeclaration

NOBODY = "none"
Key = Tuple[str, str]
"""What an interrupt or a queue is known by: the PCI address of its device (of one of several interfaces, with its name)
and its setting (``interrupt nvidia``, ``rps rx-0``)."""


@frozen
class WantedAffinity:
    """The CPUs of one interrupt or queue, as they shall be and as they are. ``path`` is the file of a queue.

    ``device`` is None for a queue: only interrupts must be looked up again before a write.
    """

    object: str
    key: Key
    wanted: Cpus
    effective: Cpus
    device: Optional[IrqDevice] = None
    path: str = ""

    @property
    def setting(self) -> str:
        return self.key[1]


Observation = Tuple[Tuple[IrqDevice, ...], Tuple[WantedAffinity, ...], Mapping[Key, Unmanaged]]
"""Devices, the CPUs of their interrupts and queues, and which of these cannot be set, by key."""


@frozen
class IrqAffinityState:
    """What was seen. ``wants`` are where the interrupts and queues of the declared ``devices`` belong, or, for
    ``state: absent``, those of devices that were ever changed, as they are. ``unmanaged`` are those that cannot be set.

    ``later`` are the files for devices that come later, None where this run is not about them. ``baseline`` are the
    values from before the first change, None unless irqbalance may be off because of us. ``carrier`` is what brings the
    next boot all this. ``declaration`` is None for ``state: absent``, and ``processors`` are there for that, where
    something was ever changed. ``overridden`` are CPUs that the kernel isolates and that get interrupts nevertheless,
    and ``contradiction`` is with what another concern declares on this node. ``foreign`` is where services and scripts
    send interrupts and queues at boot.
    """

    declaration: Optional[IrqAffinityDeclaration]
    devices: Tuple[IrqDevice, ...]
    wants: Tuple[WantedAffinity, ...]
    unmanaged: Mapping[Key, Unmanaged]
    daemon: IrqbalanceDaemon
    later: Optional[Hotplug] = None
    baseline: Optional[Baseline] = None
    carrier: BootCarrier = BootCarrier()
    processors: Optional[Processors] = None
    overridden: Tuple[Conflict, ...] = ()
    contradiction: Optional[DeclarationError] = None
    foreign: Tuple[ForeignValue, ...] = ()


@frozen
class IrqAffinityDesired:
    """What is wanted of this machine: of interrupts, queues and irqbalance.

    ``unit`` is the text of the unit for devices that come later, None for no file of ours. ``mode`` is None where
    irqbalance is not at odds with us, as nothing is placed.
    """

    wants: Tuple[WantedAffinity, ...]
    balancing: WantedIrqbalance
    unmanaged: Tuple[Unmanaged, ...] = ()
    unit: Optional[str] = None
    mode: Optional[str] = None


def text_of(cpus: Cpus) -> str:
    """A list of CPUs; a queue that is steered to no CPU is not steered at all."""
    return render(cpus) or NOBODY
