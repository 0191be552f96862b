# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way from what is to what is declared: the steps, and the way back. Imported when something differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .._core import before
from .._core.before import Before
from .._core.change import BOOT, Change, RoomAction, Setting, Step, Unmanaged
from .._core.errors import CannotLook, NotPermitted, Scalar
from .._core.planning import at_boot, effective
from .._host.uncarried import RefuseUncarried
from .._topology import cpulist
from . import around, devices, irqbalance, steering
from .look import NOBODY, Desired, Seen, State, Want, lacking, want_of
from .processors import read_processors
from .spec import NAME

if TYPE_CHECKING:
    from .._host.protocols import Files
    from .model import Cpus, Processors
    from .spec import Declaration

GONE = "it is not there now, and what was changed went with it"
OFFLINE = "the CPUs from before the first change are offline"
BALANCED = "irqbalance runs, and places it"


@dataclass(frozen=True)
class SetAffinity(RoomAction):
    """Send all these interrupts and queues to their CPUs, each for itself: one that refuses does not keep the others.

    ``declaration`` is what to plan anew by, where the kernel turns out to place some of the interrupts by itself; None
    for ``state: absent``. ``moved`` says that irqbalance had its hands on them until the step before, so that others
    may have come to differ since they were looked at.
    """

    wants: Tuple[Want, ...]
    declaration: Optional[Declaration] = None
    moved: bool = False


def look_back(files: Files) -> Tuple[Optional[Processors], Seen]:
    """The devices that have something that was ever changed, with all their interrupts and queues as they are.

    The CPUs of the machine come first, None where nothing was.
    """
    kinds: Dict[str, Set[str]] = {}
    for identity, setting in before.load(files, NAME).found:
        kinds.setdefault(identity.partition(" ")[0], set()).add(setting.partition(" ")[0])
    if not kinds:
        return None, ((), (), {})
    processors = read_processors(files)
    found = devices.find(files, processors, others=True)
    there = devices.complete(files, [device for device in found if device.address in kinds])
    wants: List[Want] = []
    unmanaged = lacking(there)
    for device in there:
        interrupts = [interrupt for interrupt in device.interrupts if not interrupt.managed]
        wants.extend(want_of(device, interrupt, interrupt.cpus) for interrupt in interrupts)
        for interface in device.interfaces:
            steered = [kind for kind in steering.KNOBS if kind in kinds[device.address]]
            queues, without = steering.read(files, device, interface, steered)
            wants.extend(queues)
            unmanaged.update(without)
    return processors, (there, tuple(wants), unmanaged)


def restore(params: Mapping[str, Any], found: Before, state: State) -> Desired:
    """What ``state: absent`` wants: the CPUs from before the first change, of what is still there by its name.

    An irqbalance that has them again places interrupts as it likes, between a write and the look after it as well.
    """
    balanced = irqbalance.balances(state.around.daemon)
    there = {want.key: want for want in state.wants}
    wants: List[Want] = []
    unmanaged: List[Unmanaged] = []
    for key, value in sorted(found.found.items()):
        if balanced and key in there and there[key].device is not None:
            unmanaged.append(Unmanaged(there[key].object, key[1], BALANCED))
        elif key in there:
            cpus = _cpus_of(value.effective)
            left = _left(there[key], cpus, state.processors)
            if cpus and not left:
                unmanaged.append(Unmanaged(there[key].object, key[1], OFFLINE))
            else:
                wants.append(replace(there[key], wanted=left))
        elif key[1].partition(" ")[0] in (devices.INTERRUPT, *steering.KNOBS):
            unmanaged.append(state.unmanaged.get(key, Unmanaged(*key, GONE)))
    return Desired(
        wants=tuple(wants),
        goal=around.restore(state.around, found),
        unmanaged=tuple(unmanaged),
        immediate=params["immediate"],
        permanent=params["permanent"],
        giving_back=True,
    )


def _left(want: Want, cpus: Cpus, processors: Optional[Processors]) -> Cpus:
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
        raise CannotLook(
            "read the CPUs from before the first change",
            object=before.path_of(NAME),
            cause=f"{text!r} is no list of CPUs",
            hint="restore it from a backup, or remove it to give up going back",
        ) from error


def steps_of(
    state: State, desired: Desired, settings: Sequence[Setting], beside: Tuple[Setting, ...]
) -> Tuple[Step, ...]:
    """The steps that make the ``settings`` of ``desired.wants`` right, and those ``beside`` them."""
    wants, changes = _placing(desired, settings)
    if wants and state.read_only:
        raise NotPermitted(
            f"set {wants[0].setting}",
            object=wants[0].object,
            cause=f"{state.read_only} is read-only here",
            hint="run on the host itself, not in a container without the right to change it",
        )
    refusal: Tuple[Step, ...] = ()
    if state.uncarried and any(change.scope == BOOT for change in changes):
        refusal = (Step(RefuseUncarried(state.uncarried)),)
    first, last = around.steps_of(state.around, desired.goal, beside)
    moved = bool(first) and desired.immediate and state.declaration is not None and not state.read_only
    action = SetAffinity(wants, state.declaration, moved=moved)
    placing = (Step(action, changes),) if changes or moved else ()
    return (*refusal, *first, *placing, *last)


def _placing(desired: Desired, settings: Sequence[Setting]) -> Tuple[Tuple[Want, ...], Tuple[Change, ...]]:
    """What is written, and the changes that come of it."""
    wants: List[Want] = []
    changes: List[Change] = []
    for want, setting in zip(desired.wants, settings):
        if setting.effective_matters and setting.effective != setting.wanted:
            wants.append(want)
            changes.append(effective(setting))
        # The declaration on the node is what brings it, and it is written once the kernel took the values.
        if setting.boot_matters and setting.boot != setting.wanted:
            changes.append(at_boot(setting))
    return tuple(wants), tuple(changes)
