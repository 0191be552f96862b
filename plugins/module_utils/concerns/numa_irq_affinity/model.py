# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices with their interrupts and queues, and what is wanted of them, as values.

An interrupt is known by its device and the name of its handler (``0000:17:00.0``, ``mlx5_comp3@pci:0000:17:00.0``): its
number is another one after every boot, driver reload and change of queues.
"""

from __future__ import annotations

from typing import FrozenSet, Optional, Tuple

from ..._core.value import frozen

Cpus = FrozenSet[int]

ONE_PER_IRQ, ALL = "one_per_irq", "all"


@frozen
class Interrupt:
    """One interrupt that a driver requested. ``number`` is that of this moment.

    ``cpus`` is what it may be delivered to. ``managed`` says why nobody can move it, and is empty where somebody can.
    """

    name: str
    number: int
    cpus: Cpus
    managed: str = ""


@frozen
class IrqDevice:
    """A PCI function with interrupts.

    ``kind`` is its class as declarations call it (gpu, network, infiniband, nvme, storage, other). ``interfaces`` are
    its network interfaces. ``node`` is its NUMA node, None where nobody tells; ``local`` are the CPUs next to it, the
    online ones of the nearest node that has any.
    """

    address: str
    kind: str
    driver: str
    interfaces: Tuple[str, ...]
    node: Optional[int]
    local: Cpus
    interrupts: Tuple[Interrupt, ...]

    @property
    def name(self) -> str:
        """What a person calls it: its interface, or its address."""
        return self.interfaces[0] if len(self.interfaces) == 1 else self.address


@frozen
class Processors:
    """The CPUs of the machine. ``siblings`` are the sets of threads of the cores, ``nodes`` (number, CPUs) by number.

    ``isolated`` are those that the scheduler leaves alone (isolcpus, nohz_full): nobody is sent there unasked.
    """

    online: Cpus
    possible: Cpus
    isolated: Cpus
    siblings: Tuple[Cpus, ...]
    nodes: Tuple[Tuple[int, Cpus], ...]


@frozen
class IrqTarget:
    """What is wanted of one device: the CPUs that its interrupts may use, and how they are assigned.

    With ``one_per_irq`` every interrupt has one CPU of ``eligible``, with ``all`` every one has all of them. ``rps``
    and ``xps``: whether its queues are steered to these CPUs as well; None leaves them alone, False takes it off.
    """

    device: IrqDevice
    eligible: Cpus
    spread: str = ONE_PER_IRQ
    rps: Optional[bool] = None
    xps: Optional[bool] = None


@frozen
class Placement:
    """Where one interrupt belongs."""

    device: IrqDevice
    interrupt: Interrupt
    cpus: Cpus
