# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupts and queues: the steps to what is declared, and what ``state: absent`` restores."""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Change, Refuse, RoomAction, Step, Unmanaged
from ..._core.planning import boot_change, effective_change
from ..._core.setting import BOOT, Scalar, Setting
from ..._core.value import frozen, replace
from ..._kinds.hotplug import Hotplug
from ..._kinds.hotplug import steps as steps_of_hotplug
from ..._linux import cpulist
from ..._linux.boot_service import not_persisted
from . import devices, hotplug, irqbalance, irqbalance_apply, steering
from .observation import lacking, want_of
from .processors import read_processors
from .state import NOBODY, IrqAffinityDesired, IrqAffinityState, Observation, WantedAffinity

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files
    from .model import Cpus, Processors
    from .spec import IrqAffinityDeclaration

GONE = "it is not present, and what was changed went with it"
OFFLINE = "the CPUs from before the first change are offline"
BALANCED = "irqbalance is running, and places it"


@frozen
class SetAffinity(RoomAction):
    """Send all these interrupts and queues to their CPUs, each for itself: one that refuses does not keep the others.

    ``declaration`` is what to plan anew by, where the kernel turns out to place some of the interrupts by itself; None
    for ``state: absent``. ``moved`` says that irqbalance had its hands on them until the step before, so that others
    may have come to differ since they were looked at.
    """

    wants: Tuple[WantedAffinity, ...]
    declaration: Optional[IrqAffinityDeclaration] = None
    moved: bool = False


def observe_changed(files: Files, kinds: Mapping[str, AbstractSet[str]]) -> Tuple[Optional[Processors], Observation]:
    """The devices that have something of these ``kinds``, with all their interrupts and queues as they are.

    The CPUs of the machine come first, None where there is no such device.
    """
    if not kinds:
        return None, ((), (), {})
    processors = read_processors(files)
    found = devices.find(files, processors, others=True)
    there = devices.complete(files, [device for device in found if device.address in kinds])
    wants: List[WantedAffinity] = []
    unmanaged = lacking(there)
    for device in there:
        interrupts = [interrupt for interrupt in device.interrupts if not interrupt.managed]
        wants.extend(want_of(device, interrupt, interrupt.cpus) for interrupt in interrupts)
        for interface in device.interfaces:
            steered = [kind for kind in steering.QUEUE_FILES if kind in kinds[device.address]]
            queues, without = steering.read(files, device, interface, steered)
            wants.extend(queues)
            unmanaged.update(without)
    return processors, (there, tuple(wants), unmanaged)


def restore(baseline: Baseline, state: IrqAffinityState) -> IrqAffinityDesired:
    """What ``state: absent`` wants: the CPUs from before the first change, of what is still there by its name.

    An irqbalance that has them again places interrupts as it likes, between a write and the look after it as well.
    """
    balanced = irqbalance.balances(state.daemon)
    there = {want.key: want for want in state.wants}
    wants: List[WantedAffinity] = []
    unmanaged: List[Unmanaged] = []
    for key, value in sorted(baseline.values.items()):
        if balanced and key in there and there[key].device is not None:
            unmanaged.append(Unmanaged(there[key].object, key[1], BALANCED))
        elif key in there:
            cpus = _cpus_of(value.effective)
            left = _left(there[key], cpus, state.processors)
            if cpus and not left:
                unmanaged.append(Unmanaged(there[key].object, key[1], OFFLINE))
            else:
                wants.append(replace(there[key], wanted=left))
        elif key[1].partition(" ")[0] in (devices.INTERRUPT, *steering.QUEUE_FILES):
            unmanaged.append(state.unmanaged.get(key, Unmanaged(*key, GONE)))
    return IrqAffinityDesired(
        wants=tuple(wants),
        balancing=irqbalance.restore(state.daemon, baseline),
        unmanaged=tuple(unmanaged),
    )


def _left(want: WantedAffinity, cpus: Cpus, processors: Optional[Processors]) -> Cpus:
    """What the kernel takes of these CPUs: of a queue those that are online, of an interrupt all that may be.

    Nothing where none of them is online.
    """
    if processors is None or not cpus & processors.online:
        return frozenset()
    return cpus & (processors.online if want.device is None else processors.possible)


def _cpus_of(text: Scalar) -> Cpus:
    try:
        return frozenset() if text == NOBODY else cpulist.parse(str(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a list of CPUs") from error


def steps_of(
    state: IrqAffinityState,
    desired: IrqAffinityDesired,
    settings: Sequence[Setting],
    beside: Tuple[Setting, ...],
    scope: Scope,
) -> Tuple[Step, ...]:
    """The steps that make the ``settings`` of ``desired.wants`` right, and those ``beside`` them."""
    wants, changes = _placing(desired, settings)
    refusal: Tuple[Step, ...] = ()
    if state.carrier.missing and any(change.scope == BOOT for change in changes):
        refusal = (Step(Refuse(not_persisted(state.carrier.missing))),)
    # irqbalance would undo the placing, so it comes first.
    balancing = irqbalance_apply.steps_of(state.daemon, desired.balancing, beside)
    last = () if state.later is None else hotplug_steps(state.later, beside, unit=desired.unit)
    moved = bool(balancing) and scope.immediate and state.declaration is not None
    action = SetAffinity(wants, state.declaration, moved=moved)
    placing = (Step(action, changes, probes=_probes(wants)),) if changes or moved else ()
    return (*refusal, *balancing, *placing, *last)


def hotplug_steps(found: Hotplug, made: Tuple[Setting, ...], *, unit: Optional[str]) -> Tuple[Step, ...]:
    return steps_of_hotplug(found, made, unit=unit, rules=hotplug.rules_text(unit))


def _probes(wants: Sequence[WantedAffinity]) -> Tuple[str, ...]:
    interrupts = (devices.DEFAULT,) if any(want.device for want in wants) else ()
    return (*interrupts, *[want.path for want in wants if want.path][:1])


def _placing(
    desired: IrqAffinityDesired, settings: Sequence[Setting]
) -> Tuple[Tuple[WantedAffinity, ...], Tuple[Change, ...]]:
    """What is written, and the changes that come of it."""
    wants: List[WantedAffinity] = []
    changes: List[Change] = []
    for want, setting in zip(desired.wants, settings):
        if setting.effective_matters and setting.effective != setting.wanted:
            wants.append(want)
            changes.append(effective_change(setting))
        # The declaration on the node is what brings it, and it is written once the kernel took the values.
        if setting.boot_matters and setting.boot != setting.wanted:
            changes.append(boot_change(setting))
    return tuple(wants), tuple(changes)
