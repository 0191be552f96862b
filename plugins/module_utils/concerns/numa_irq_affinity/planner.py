# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPU every interrupt belongs on, so that they are spread evenly and what is good already stays.

Interrupts that may use the same CPUs are assigned together, the smallest set of CPUs first; a set that overlaps another
fills up where less lies. In each set these come one after the other: the CPUs have loads that are as even as they
can be, then the cores have, then every device's own interrupts are spread over CPUs and cores in the same way, then few
interrupts move: none where all can stay. ``assignment`` finds the places.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ..._linux import cpus as topology
from .assignment import IrqAssignment, PlannedIrq, assign
from .model import ALL, Cpus, Interrupt, IrqDevice, IrqTarget, Placement, Processors
from .quota import even


def plan_interrupts(processors: Processors, targets: Sequence[IrqTarget]) -> Tuple[Placement, ...]:
    """Where the movable interrupts of the devices belong, by address of the device and natural order of the names.

    A target that has movable interrupts has eligible CPUs, all of them online, and no two movable interrupts have the
    same number. The order of the targets and of their interrupts is of no account.
    """
    every = [(target, _movable(target.device)) for target in sorted(targets, key=lambda one: one.device.address)]
    assigned: Dict[Cpus, List[Sequence[Interrupt]]] = {}
    for target, interrupts in every:
        if interrupts and target.spread != ALL:
            assigned.setdefault(target.eligible, []).append(interrupts)
    cpu_of: Dict[int, int] = {}
    loads: Dict[int, int] = {}
    for eligible in sorted(assigned, key=lambda cpus: (len(cpus), sorted(cpus))):
        assignment = _prepare(processors, eligible, assigned[eligible], loads)
        for item, place in zip(assignment.items, assign(assignment)):
            cpu = assignment.cpus[place]
            cpu_of[item.interrupt.number] = cpu
            loads[cpu] = loads.get(cpu, 0) + 1
    return tuple(
        Placement(
            device=target.device,
            interrupt=interrupt,
            cpus=target.eligible if target.spread == ALL else frozenset((cpu_of[interrupt.number],)),
        )
        for target, interrupts in every
        for interrupt in interrupts
    )


def _movable(device: IrqDevice) -> List[Interrupt]:
    return sorted(
        (interrupt for interrupt in device.interrupts if not interrupt.managed),
        key=lambda interrupt: (_natural(interrupt.name), interrupt.number),
    )


def _natural(name: str) -> Tuple[Tuple[Union[int, str], ...], str]:
    """Numbers by their value. Text and numbers alternate, so that only like is compared with like."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name


def _prepare(
    processors: Processors, eligible: Cpus, devices: Sequence[Sequence[Interrupt]], loads: Mapping[int, int]
) -> IrqAssignment:
    cores = topology.cores(eligible, processors.siblings)
    cpus = topology.interleave_threads(cores)
    core = {cpu: index for index, threads in enumerate(cores) for cpu in threads}
    core_of = [core[cpu] for cpu in cpus]
    place = {cpu: index for index, cpu in enumerate(cpus)}
    items = tuple(
        PlannedIrq(interrupt=interrupt, owner=owner, present=_present(interrupt, place))
        for owner, interrupts in enumerate(devices)
        for interrupt in interrupts
    )
    nothing, none_beside = [0] * len(cpus), [0] * len(cores)
    counts = [len(interrupts) for interrupts in devices]
    quota_of = {count: even(core_of, count, loads=nothing, beside=none_beside) for count in set(counts)}
    return IrqAssignment(
        cpus=cpus,
        items=items,
        total=even(
            core_of,
            len(items),
            loads=[loads.get(cpu, 0) for cpu in cpus],
            beside=_beside(processors, eligible, cores, loads),
        ),
        own=tuple(quota_of[count] for count in counts),
    )


def _beside(processors: Processors, eligible: Cpus, cores: topology.Cores, loads: Mapping[int, int]) -> Sequence[int]:
    """What lies on the threads of the cores that are not eligible."""
    siblings = {cpu: threads for threads in processors.siblings for cpu in threads}
    others = [siblings.get(threads[0], frozenset()) - eligible for threads in cores]
    return [sum(loads.get(cpu, 0) for cpu in threads) for threads in others]


def _present(interrupt: Interrupt, place: Dict[int, int]) -> Optional[int]:
    return place.get(next(iter(interrupt.cpus))) if len(interrupt.cpus) == 1 else None
