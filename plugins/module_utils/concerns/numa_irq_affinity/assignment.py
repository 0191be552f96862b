# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Places for interrupts of which some cannot stay where they are.

What can stay is chosen in turn, and the others go round the places. Where one finds none, another makes room for it.
All together are spread as evenly as they can be. Where the cores have different numbers of threads, or others that came
before lie unevenly, the devices cannot always be spread as well: then a device first gives up being even over the
cores, and over the CPUs only if that does not help. An exact search would now and then find a few interrupts more that
may stay, and takes seconds on a large machine.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Iterator, List, Optional, Sequence, Set, Tuple

from ..._core.value import frozen, replace
from .model import Interrupt
from .quota import Quota, RemainingQuota, even


@frozen
class PlannedIrq:
    """An interrupt that is assigned. ``owner`` numbers the devices of its set, ``present`` is the place it has now."""

    interrupt: Interrupt
    owner: int
    present: Optional[int]


@frozen
class IrqAssignment:
    """The interrupts of one set of CPUs, in order. A place is an index of ``cpus``, where one thread of every core
    comes first. ``total`` are the shares of all interrupts, ``own`` those of each device.
    """

    cpus: Tuple[int, ...]
    items: Tuple[PlannedIrq, ...]
    total: Quota
    own: Tuple[Quota, ...]


def _keep_in_place(
    assignment: IrqAssignment, total: Optional[Quota], own: Optional[Sequence[Quota]]
) -> List[Optional[int]]:
    """The present places of the items that can stay there together, None for the others.

    Without the one or the other, its shares bind nobody.
    """
    of_all = None if total is None else RemainingQuota(total)
    of_each = None if own is None else [RemainingQuota(quota) for quota in own]
    kept: List[Optional[int]] = []
    for item in assignment.items:
        place = item.present
        rooms = [room for room in (of_all, of_each[item.owner] if of_each else None) if room is not None]
        if place is not None and all(room.at(place) for room in rooms):
            for room in rooms:
                room.take(place)
            kept.append(place)
        else:
            kept.append(None)
    return kept


def assign(assignment: IrqAssignment) -> Sequence[int]:
    """The place of every item, in their order: where they are, if all can stay.

    Otherwise they are assigned anew until once more would make nothing better. So what was planned stays.
    """
    kept = [place for place in _keep_in_place(assignment, assignment.total, assignment.own) if place is not None]
    if len(kept) == len(assignment.items):
        return kept
    wide = _over_cpus(assignment)
    least = None if None in _keep_in_place(assignment, assignment.total, None) else _beyond(assignment, wide)
    while least is None or any(least):
        table = _Table(assignment, wide)
        places = table.assign()
        if table.even:
            return places
        assigned = replace(
            assignment, items=tuple(replace(item, present=place) for item, place in zip(assignment.items, places))
        )
        beyond = _beyond(assigned, wide)
        if least is not None and beyond >= least:
            break
        assignment, least = assigned, beyond
    return [item.present for item in assignment.items if item.present is not None]


def _over_cpus(assignment: IrqAssignment) -> List[Quota]:
    """The shares of each device when it is spread over the CPUs and the cores do not count."""
    places = range(len(assignment.cpus))
    counts = Counter(item.owner for item in assignment.items)
    nothing = [0] * len(places)
    quota_of = {count: even(places, count, loads=nothing, beside=nothing) for count in set(counts.values())}
    return [quota_of[counts[owner]] for owner in range(len(assignment.own))]


def _beyond(assignment: IrqAssignment, wide: Sequence[Quota]) -> Tuple[int, int]:
    """How many are beyond the share that their device has of the CPUs, and how many beyond that of the cores."""
    over_cpus, over_cores = (_keep_in_place(assignment, None, every) for every in (wide, assignment.own))
    return over_cpus.count(None), over_cores.count(None)


class _Table:
    """The places while they are assigned.

    ``_rooms`` are by rule and device: even over CPUs and cores, and even over the CPUs, which are there when they are
    needed first. ``_rule`` is the first rule that an item obeys; it takes room by that one and by those after it.
    """

    def __init__(self, assignment: IrqAssignment, wide: Sequence[Quota]) -> None:
        self._items = assignment.items
        self._wide = wide
        self._length = len(assignment.cpus)
        self._total = RemainingQuota(assignment.total)
        self._rooms = [[RemainingQuota(quota) for quota in assignment.own]]
        self._places: List[Optional[int]] = [None] * len(assignment.items)
        self._rule = [0] * len(assignment.items)

    @property
    def even(self) -> bool:
        """Whether every device is spread evenly over the CPUs and the cores."""
        return not any(self._rule)

    def assign(self) -> Sequence[int]:
        for index, item in enumerate(self._items):
            if item.present is not None and self._has_room(index, item.present, 0):
                self._put(index, item.present, 0)
        self._go_round(0)
        if None in self._places:
            self._rooms.append([RemainingQuota(quota) for quota in self._wide])
            for item, place in zip(self._items, self._places):
                if place is not None:
                    self._rooms[1][item.owner].take(place)
            self._go_round(1)
            self._go_round(2)
        return [place for place in self._places if place is not None]

    def _go_round(self, rule: int) -> None:
        at, stuck = 0, set()
        for index, place in enumerate(self._places):
            owner = self._items[index].owner
            if place is not None or owner in stuck:
                continue
            found = self._free(index, rule, at)
            if found is not None:
                self._put(index, found, rule)
                at = found + 1
            elif not self._make_room(index, rule):
                stuck.add(owner)

    def _of(self, index: int, rule: int) -> List[RemainingQuota]:
        return [self._total, *(rooms[self._items[index].owner] for rooms in self._rooms[rule:])]

    def _has_room(self, index: int, place: int, rule: int) -> bool:
        return self._total.at(place) and all(room.at(place) for room in self._of(index, rule)[1:])

    def _put(self, index: int, place: int, rule: int) -> None:
        for room in self._of(index, rule):
            room.take(place)
        self._places[index], self._rule[index] = place, rule

    def _lift(self, index: int) -> None:
        place = self._places[index]
        if place is not None:
            for room in self._of(index, self._rule[index]):
                room.give(place)
        self._places[index] = None

    def _free(self, index: int, rule: int, at: int) -> Optional[int]:
        """Its present place, or the next one."""
        present = self._items[index].present
        turns = ((at + step) % self._length for step in range(self._length))
        places = turns if present is None else chain((present,), turns)
        return next((place for place in places if self._has_room(index, place, rule)), None)

    def _make_room(self, index: int, rule: int) -> bool:
        """Another goes elsewhere that there is a place for it: one that moves anyway, if there is one."""
        for other, place in self._others():
            obeyed = self._rule[other]
            self._lift(other)
            for found in chain((place,), (one for one in range(self._length) if one != place)):
                if not self._has_room(index, found, rule):
                    continue
                self._put(index, found, rule)
                for obeys in range(obeyed, max(obeyed, rule) + 1):
                    elsewhere = self._free(other, obeys, 0)
                    if elsewhere is not None:
                        self._put(other, elsewhere, obeys)
                        return True
                self._lift(index)
            self._put(other, place, obeyed)
        return False

    def _others(self) -> Iterator[Tuple[int, int]]:
        """One of all that are alike, and its place."""
        stays = [place == item.present for place, item in zip(self._places, self._items)]
        seen: Set[Tuple[int, int, int, bool]] = set()
        for other in sorted(range(len(stays)), key=stays.__getitem__):
            place = self._places[other]
            if place is None:
                continue
            kind = (self._items[other].owner, place, self._rule[other], stays[other])
            if kind not in seen:
                seen.add(kind)
                yield other, place
