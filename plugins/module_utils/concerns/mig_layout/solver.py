# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the wanted instances lie, so that what is there already stays as far as it can. The search is exact.

What a layout is worth is one number, whose digits are, the most important first: wanted instances that have a place,
busy instances kept, instances kept, busy compute instances kept, compute instances kept, instances where they were
last, compute instances where they were last, and low starts, those of big profiles first. It adds up over the
instances, so for every set of memory slices that the first instances may take only their best layout is followed.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.value import frozen
from .model import ALL_ME, ME, NO_ME, Busy, Compute, Geometry, Instance, Layout, Profile, WantedCompute, WantedInstance

# A GPU has far fewer instances, and compute instances, than a digit of a number can count.
COUNT_BITS = 8


class Impossible(Exception):
    """Not all wanted instances have a place.

    ``nearest`` is the best layout of as many of them as there can be, ``missing`` are the others as they were declared,
    ``reason`` is the rule that no placement can keep, or says that there is no placement.
    """

    def __init__(self, reason: str, *, nearest: Layout, missing: Tuple[WantedInstance, ...]) -> None:
        self.reason = reason
        self.nearest = nearest
        self.missing = missing
        super().__init__(reason)


@frozen
class Moves:
    """From one layout to another: instances that go, instances that come, and those that stay while their compute
    instances change: each as it is now, with what goes from it and what comes.
    """

    destroy: Layout
    create: Layout
    compute: Tuple[Tuple[Instance, Tuple[Compute, ...], Tuple[Compute, ...]], ...]


# --- what the hardware allows -----------------------------------------------------------------------------------------


def left(geometry: Geometry, layout: Layout) -> Tuple[Tuple[Profile, int], ...]:
    """What still fits beside a layout: each profile with how many of it, if no other comes."""
    held = _profiles(geometry, (instance.profile for instance in layout))
    taken = sum(_bits(instance.start, profile.size) for instance, profile in zip(layout, held))
    found = ((profile, _more(geometry, profile, held, taken)) for profile in geometry.profiles)
    return tuple((profile, count) for profile, count in found if count)


def compute_starts(of: int, slices: int) -> Tuple[int, ...]:
    """Where a compute instance of so many slices may begin in a GPU instance of ``of`` compute slices.

    One that has more than half of them has all; the others begin at a multiple of the next power of two.
    """
    if slices < 1 or (slices != of and 2 * slices > of + 1):
        return ()
    return tuple(range(0, of - slices + 1, 1 << (slices - 1).bit_length()))


def _conflict(geometry: Geometry, profiles: Sequence[Profile]) -> str:
    """Why a GPU cannot have these at once, wherever they lie. Empty where it can."""
    slices = sum(profile.slices for profile in profiles)
    if slices > geometry.slices:
        counts = ", ".join(f"{profiles.count(one)} x {one.name}" for one in dict.fromkeys(profiles))
        return f"{counts} take {slices} compute slices, and the GPU has {geometry.slices}"
    for profile in profiles:
        count = profiles.count(profile)
        if count > profile.most:
            return f"{count} x {profile.name} are declared, and the GPU has room for {profile.most}"
    for index, one in enumerate(profiles):
        for other in profiles[index + 1 :]:
            if _want_same_media(one, other):
                return f"{one.name} and {other.name} need the same media engines"
            if not geometry.three_beside_four and {one.slices, other.slices} == {3, 4}:
                return f"this driver does not create {one.name} beside {other.name}"
    return ""


def _want_same_media(one: Profile, other: Profile) -> bool:
    """There is one set of extensions; who has all engines leaves the others none."""
    attributes = (one.attribute, other.attribute)
    if ALL_ME in attributes:
        return NO_ME not in attributes
    return attributes == (ME, ME)


def _compute_layouts(profile: Profile, wanted: Iterable[WantedCompute]) -> Set[Tuple[Compute, ...]]:
    """Every way to have these compute instances in an instance of the profile."""
    found: Set[Tuple[Compute, ...]] = {()}
    for one in wanted:
        starts = compute_starts(profile.slices, one.slices)
        places = [Compute(start, one.slices) for start in starts if one.start in (None, start)]
        found = {
            tuple(sorted((*layout, place)))
            for layout in found
            for place in places
            if not any(_overlap(place, other) for other in layout)
        }
    return found


def _overlap(one: Compute, other: Compute) -> bool:
    return one.start < other.start + other.slices and other.start < one.start + one.slices


def _more(geometry: Geometry, profile: Profile, held: List[Profile], taken: int) -> int:
    count = 0
    for start in sorted(profile.starts):
        bits = _bits(start, profile.size)
        if not bits & taken and not _conflict(geometry, [*held, *[profile] * (count + 1)]):
            taken |= bits
            count += 1
    return count


def _bits(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


def _profiles(geometry: Geometry, numbers: Iterable[int]) -> List[Profile]:
    by_number = {profile.number: profile for profile in geometry.profiles}
    return [by_number[number] for number in numbers]


# --- the search -------------------------------------------------------------------------------------------------------


def solve(
    geometry: Geometry,
    present: Layout,
    wanted: Tuple[WantedInstance, ...],
    *,
    busy: Optional[Busy] = None,
    preferred: Layout = (),
) -> Layout:
    """The layout of all that is wanted which keeps the most of ``present``, by the order of merit above.

    An instance is kept when one of its profile lies at its start in the target, whatever compute instances it has.
    Every profile of ``wanted`` is one of ``geometry``. Raises ``Impossible``.
    """
    judge = _Judge(geometry, present, busy or {}, preferred)
    places = {one: judge.places(one) for one in set(wanted)}
    order = sorted(places, key=judge.rank)
    every = [one for one in order for _copy in range(wanted.count(one))]
    chain = _best(geometry, every, places, skipping=False)
    if len(chain) < len(wanted):
        bounded = [one for one in order for _copy in range(min(wanted.count(one), len(places[one])))]
        chain = _best(geometry, bounded, places, skipping=True)
        missing = list(wanted)
        for place in chain:
            missing.remove(place.wanted)
        raise Impossible(_reason(geometry, every, places), nearest=_layout(chain), missing=tuple(missing))
    return _layout(chain)


@frozen
class _Place:
    """One way to have a wanted instance, the memory slices it takes, and what that is worth."""

    wanted: WantedInstance
    instance: Instance
    bits: int
    merit: int


_Chain = Tuple[_Place, ...]


def _best(
    geometry: Geometry,
    items: Sequence[WantedInstance],
    places: Mapping[WantedInstance, Sequence[_Place]],
    *,
    skipping: bool,
) -> _Chain:
    """The best choice of a place for each item, or when skipping for as many as can be; empty where there is none."""
    # By the memory slices that are taken and the profiles that took them: all that a next item has to know.
    best: Dict[Tuple[int, Tuple[int, ...]], Tuple[int, _Chain]] = {(0, ()): (0, ())}
    for item in items:
        found = dict(best) if skipping else {}
        room: Dict[Tuple[int, ...], bool] = {}
        for (taken, held), (merit, chain) in best.items():
            now_held = (*held, item.profile)
            if now_held not in room:
                room[now_held] = not _conflict(geometry, _profiles(geometry, now_held))
            if not room[now_held]:
                continue
            for place in places[item]:
                if place.bits & taken:
                    continue
                state = (taken | place.bits, now_held)
                if state not in found or merit + place.merit > found[state][0]:
                    found[state] = (merit + place.merit, (*chain, place))
        best = found
    return max(best.values(), key=lambda value: value[0])[1] if best else ()


def _layout(chain: _Chain) -> Layout:
    return tuple(sorted(place.instance for place in chain))


class _Judge:
    """Says where an instance can lie, and what that is worth."""

    def __init__(self, geometry: Geometry, present: Layout, busy: Busy, preferred: Layout) -> None:
        self._present = _by_place(present)
        self._busy = busy
        self._preferred = _by_place(preferred)
        self._profiles = {profile.number: profile for profile in geometry.profiles}
        big_first = sorted(geometry.profiles, key=lambda profile: (-profile.size, -profile.slices, profile.number))
        self._order = {profile.number: index for index, profile in enumerate(big_first)}
        # No start lies beyond it, be it one of memory slices or one of compute slices.
        self._width = max([geometry.slices, *(start + one.size for one in big_first for start in one.starts)])
        self._compute_bits = geometry.slices * self._width**2

    def rank(self, wanted: WantedInstance) -> Tuple[int, int, Tuple[Tuple[int, int], ...]]:
        """An order of what is wanted: big profiles first, and no two that differ have the same rank."""
        start = self._width if wanted.start is None else wanted.start
        compute = tuple((-one.slices, self._width if one.start is None else one.start) for one in wanted.compute)
        return self._order[wanted.profile], start, compute

    def places(self, wanted: WantedInstance) -> List[_Place]:
        """Wherever an instance of this kind can lie, each time with the compute instances that are best there."""
        profile = self._profiles[wanted.profile]
        layouts = _compute_layouts(profile, wanted.compute)
        found = []
        for start in profile.starts if layouts else ():
            if wanted.start in (None, start):
                ways = [Instance(start, profile.number, layout) for layout in layouts]
                merit, instance = max((self._merit(way), way) for way in ways)
                found.append(_Place(wanted, instance, _bits(start, profile.size), merit))
        return found

    def _merit(self, instance: Instance) -> int:
        place = (instance.start, instance.profile)
        kept, before = self._present.get(place), self._preferred.get(place)
        stays = [one for one in instance.compute if kept and one in kept.compute]
        busy_compute = self._busy.get(instance.start, ())
        merit = 1
        for count in (
            kept is not None and instance.start in self._busy,
            kept is not None,
            sum(one.start in busy_compute for one in stays),
            len(stays),
            before is not None,
            sum(one in before.compute for one in instance.compute) if before else 0,
        ):
            merit = merit << COUNT_BITS | count
        return self._with_lowness(merit, instance)

    def _with_lowness(self, merit: int, instance: Instance) -> int:
        """Two more digits: a bit for each start, those of big profiles first, and the same for compute instances.

        The lowest start has the highest bit: what lies lower is worth more than all that comes after it.
        """
        last = (len(self._order) - self._order[instance.profile]) * self._width - 1
        merit = merit << len(self._order) * self._width | 1 << last - instance.start
        merit <<= self._compute_bits
        for one in instance.compute:
            merit |= 1 << one.slices * self._width**2 - 1 - instance.start * self._width - one.start
        return merit


def _by_place(layout: Layout) -> Dict[Tuple[int, int], Instance]:
    return {(instance.start, instance.profile): instance for instance in layout}


def _reason(
    geometry: Geometry, wanted: Sequence[WantedInstance], places: Mapping[WantedInstance, Sequence[_Place]]
) -> str:
    profiles = _profiles(geometry, (one.profile for one in wanted))
    for one, profile in zip(wanted, profiles):
        if not _compute_layouts(profile, one.compute):
            return f"the compute instances do not fit into {profile.name}"
        if not places[one]:
            return f"{profile.name} cannot begin at memory slice {one.start}"
    conflict = _conflict(geometry, profiles)
    if conflict:
        return conflict
    placed = [(one.start, profile) for one, profile in zip(wanted, profiles) if one.start is not None]
    for index, (start, profile) in enumerate(placed):
        for other_start, other in placed[index + 1 :]:
            if _bits(start, profile.size) & _bits(other_start, other.size):
                return f"{profile.name} at memory slice {start} and {other.name} at {other_start} overlap"
    return "no placement has room for all of them"


# --- from one layout to another ---------------------------------------------------------------------------------------


def moves(present: Layout, target: Layout) -> Moves:
    """What goes and what comes. An instance stays where one of its profile lies at the same start in the target."""
    now, then = _by_place(present), _by_place(target)
    both = [(instance, then[place]) for place, instance in now.items() if place in then]
    return Moves(
        destroy=tuple(instance for place, instance in now.items() if place not in then),
        create=tuple(instance for place, instance in then.items() if place not in now),
        compute=tuple(
            (old, _without(old.compute, new.compute), _without(new.compute, old.compute))
            for old, new in both
            if old.compute != new.compute
        ),
    )


def _without(compute: Tuple[Compute, ...], others: Tuple[Compute, ...]) -> Tuple[Compute, ...]:
    return tuple(one for one in compute if one not in others)
