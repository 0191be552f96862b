# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dealing out interrupts of which some cannot stay. Imported when there are some.

What stays is chosen in turn, and the others go round the places. Mostly it can be seen that no plan moves fewer. Where
it cannot, ``exchange`` finds one, which takes a millisecond for fifty cells (a device at a place). With more cells than
``CELLS`` others make room where one finds none. All are spread as evenly then too; a few may move that could have
stayed, and where the cores are not alike, a device of its own may be spread over them less evenly than it could be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from . import exchange
from .planner import stay
from .shares import Room, Shares, even

if TYPE_CHECKING:
    from .planner import Deal

CELLS = 200


def deal_out(deal: Deal, kept: Sequence[Optional[int]], total: Room, own: Sequence[Room]) -> Sequence[int]:
    """The place of every item, in their order. ``kept`` are those that stay, which have taken their room already."""
    many = len(deal.own) * len(deal.cpus) > CELLS
    if many or _stays_the_most(deal, kept):
        places = _in_turn(deal, kept, total, own)
        if places is not None:
            return places
    if many:
        wide = _over_cpus(deal)
        settled = _settled(deal, wide)
        # Where others that came before lie unevenly, there may be none that is even for each device.
        if _lies_unevenly(deal.total) or not _beyond(settled, wide)[0]:
            return [item.present for item in settled.items if item.present is not None]
    return exchange.exchange(
        total=deal.total,
        own=deal.own,
        owners=[item.owner for item in deal.items],
        present=[item.present for item in deal.items],
    )


def _in_turn(deal: Deal, kept: Sequence[Optional[int]], total: Room, own: Sequence[Room]) -> Optional[Sequence[int]]:
    """The items that do not stay go round the places. None when one of them finds no room."""
    places: List[int] = []
    at, length = 0, len(deal.cpus)
    for item, place in zip(deal.items, kept):
        if place is None:
            turns = ((at + step) % length for step in range(length))
            place = next((turn for turn in turns if total.at(turn) and own[item.owner].at(turn)), None)
            if place is None:
                return None
            total.take(place)
            own[item.owner].take(place)
            at = place + 1
        places.append(place)
    return places


def _stays_the_most(deal: Deal, kept: Sequence[Optional[int]]) -> bool:
    """Whether it is certain that no other choice keeps more: not even one that only half of the rules bind does."""
    count = _count(kept)
    return (
        count == sum(item.present is not None for item in deal.items)
        or count == _count(stay(deal, Room(deal.total), None))
        or count == _count(stay(deal, None, [Room(shares) for shares in deal.own]))
    )


def _count(places: Sequence[Optional[int]]) -> int:
    return sum(place is not None for place in places)


# --- with many cells --------------------------------------------------------------------------------------------------


def _settled(deal: Deal, wide: Sequence[Shares]) -> Deal:
    """Dealt until dealing once more would make nothing better. So what was planned stays. ``wide``: over CPUs alone."""
    least = None if None in stay(deal, Room(deal.total), None) else _beyond(deal, wide)
    while least is None or any(least):
        places = _Table(deal, wide).deal_out()
        dealt = replace(deal, items=tuple(replace(item, present=place) for item, place in zip(deal.items, places)))
        beyond = _beyond(dealt, wide)
        if least is not None and beyond >= least:
            break
        deal, least = dealt, beyond
    return deal


def _lies_unevenly(total: Shares) -> bool:
    return len(set(zip(total.sure, total.more))) > 1


def _over_cpus(deal: Deal) -> List[Shares]:
    """The shares of each device when it is spread over the CPUs and the cores do not count."""
    places = range(len(deal.cpus))
    counts = Counter(item.owner for item in deal.items)
    nothing = [0] * len(places)
    shares_of = {count: even(places, count, loads=nothing, beside=nothing) for count in set(counts.values())}
    return [shares_of[counts[owner]] for owner in range(len(deal.own))]


def _beyond(deal: Deal, wide: Sequence[Shares]) -> Tuple[int, int]:
    """How many are beyond the share that their device has of the CPUs, and how many beyond that of the cores."""
    over_cpus, over_cores = (stay(deal, None, [Room(shares) for shares in every]) for every in (wide, deal.own))
    return over_cpus.count(None), over_cores.count(None)


class _Table:
    """The places while they are dealt out.

    ``rooms`` are by rule and device: even over CPUs and cores, and even over the CPUs. ``_rule`` is the first rule that
    an item obeys; it takes room by that one and by those after it.
    """

    def __init__(self, deal: Deal, wide: Sequence[Shares]) -> None:
        self._items = deal.items
        self._length = len(deal.cpus)
        self._total = Room(deal.total)
        self._rooms = [[Room(shares) for shares in every] for every in (deal.own, wide)]
        self._places: List[Optional[int]] = [None] * len(deal.items)
        self._rule = [0] * len(deal.items)

    def deal_out(self) -> Sequence[int]:
        for index, item in enumerate(self._items):
            if item.present is not None and self._total.at(item.present) and self._has_room(index, item.present, 0):
                self._put(index, item.present, 0)
        for rule in range(len(self._rooms) + 1):
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
        return [place for place in self._places if place is not None]

    def _of(self, index: int, rule: int) -> List[Room]:
        return [rooms[self._items[index].owner] for rooms in self._rooms[rule:]]

    def _has_room(self, index: int, place: int, rule: int) -> bool:
        return all(room.at(place) for room in self._of(index, rule))

    def _put(self, index: int, place: int, rule: int) -> None:
        for room in (self._total, *self._of(index, rule)):
            room.take(place)
        self._places[index], self._rule[index] = place, rule

    def _free(self, index: int, rule: int, at: int) -> Optional[int]:
        """Its present place, or the next one."""
        present = self._items[index].present
        turns = ((at + step) % self._length for step in range(self._length))
        places = turns if present is None else chain((present,), turns)
        return next((place for place in places if self._total.at(place) and self._has_room(index, place, rule)), None)

    def _make_room(self, index: int, rule: int) -> bool:
        """The place of another for it, which goes elsewhere: of one that moves anyway, if there is one."""
        free = [place for place in range(self._length) if self._total.at(place)]
        owner = self._items[index].owner
        staying = [place == item.present for place, item in zip(self._places, self._items)]
        for other in sorted(range(len(staying)), key=staying.__getitem__):
            place = self._places[other]
            if place is None or self._items[other].owner == owner or not self._has_room(index, place, rule):
                continue
            rooms = self._of(other, self._rule[other])
            for room in rooms:
                room.give(place)
            elsewhere = next((one for one in free if all(room.at(one) for room in rooms)), None)
            for room in rooms:
                room.take(place if elsewhere is None else elsewhere)
            if elsewhere is not None:
                self._total.give(place)
                self._total.take(elsewhere)
                self._places[other] = elsewhere
                self._put(index, place, rule)
                return True
        return False
