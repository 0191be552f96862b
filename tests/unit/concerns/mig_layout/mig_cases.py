# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cases of the MIG solver, and every division of a GPU by the tables of the driver."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import combinations, product
from typing import Dict, FrozenSet, Iterator, List, Sequence, Set, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Busy,
    Compute,
    Geometry,
    Instance,
    Layout,
    WantedCompute,
    WantedInstance,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.solver import solve
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import compute_placements

Places = Tuple[Tuple[int, int], ...]


def allowed(geometry: Geometry, places: Sequence[Tuple[int, int]]) -> bool:
    """Whether these starts and profiles can be there together."""
    found = {profile.number: profile for profile in geometry.profiles}
    taken = [start + offset for start, number in places for offset in range(found[number].size)]
    counts = Counter(number for _start, number in places)
    attributes = [found[number].attribute for _start, number in places]
    slices = [found[number].slices for _start, number in places]
    return (
        len(taken) == len(set(taken))
        and all(start in found[number].starts for start, number in places)
        and all(count <= found[number].most for number, count in counts.items())
        and sum(slices) <= max(profile.slices for profile in geometry.profiles)
        and attributes.count("me") <= 1
        and attributes.count("me.all") <= 1
        and ("me.all" not in attributes or set(attributes) <= {"me.all", "-me"})
        and (geometry.three_beside_four or not {3, 4} <= set(slices))
    )


@cache
def every_division(geometry: Geometry) -> Dict[Tuple[int, ...], List[Places]]:
    """All ways to divide the GPU, by the sorted profiles that they hold."""
    found: Dict[Tuple[int, ...], List[Places]] = {}
    choices = sorted((start, profile.number) for profile in geometry.profiles for start in profile.starts)
    ways: List[Places] = [()]
    while ways:
        for way in ways:
            found.setdefault(tuple(sorted(number for _start, number in way)), []).append(way)
        ways = [(*way, one) for way in ways for one in choices if way[-1:] < (one,) and allowed(geometry, (*way, one))]
    return found


@cache
def every_compute(of: int) -> List[Tuple[Compute, ...]]:
    """All ways to have compute instances in a GPU instance of so many slices."""
    table = [Compute(start, slices) for slices, start in compute_placements()[of]]
    found = []
    for count in range(of + 1):
        for way in combinations(sorted(table), count):
            taken = [one.start + offset for one in way for offset in range(one.slices)]
            if len(taken) == len(set(taken)):
                found.append(way)
    return found


def matching(of: int, wanted: Sequence[WantedCompute]) -> List[Tuple[Compute, ...]]:
    """Those with exactly the compute instances that are wanted."""
    return [
        way
        for way in every_compute(of)
        if sorted(one.slices for one in way) == sorted(one.slices for one in wanted)
        and {Compute(one.start, one.slices) for one in wanted if one.start is not None} <= set(way)
    ]


def every_target(geometry: Geometry, wanted: Sequence[WantedInstance]) -> Set[Layout]:
    found: Set[Layout] = set()
    for places in every_division(geometry).get(tuple(sorted(one.profile for one in wanted)), ()):
        for assigned in every_assignment(places, wanted):
            slices = [next(p.slices for p in geometry.profiles if p.number == one.profile) for one in assigned]
            ways = [matching(of, one.compute) for of, one in zip(slices, assigned)]
            for way in product(*ways):
                found.add(tuple(Instance(start, number, one) for (start, number), one in zip(places, way)))
    return found


def every_assignment(places: Places, wanted: Sequence[WantedInstance]) -> Iterator[Tuple[WantedInstance, ...]]:
    if not places:
        yield ()
        return
    start, number = places[0]
    for one in set(wanted):
        if one.profile == number and one.start in (None, start):
            others = list(wanted)
            others.remove(one)
            for rest in every_assignment(places[1:], others):
                yield (one, *rest)


def merit(geometry: Geometry, present: Layout, target: Layout, busy: Busy, preferred: Layout) -> Tuple[object, ...]:
    """What ``solve`` makes as small as it can."""
    now, then, before = held(present), held(target), held(preferred)
    gone = {instance.start for instance in present if (instance.start, instance.profile) not in then[0]}
    lost = now[1] - then[1]
    in_use = {(start, one) for start, ones in busy.items() for one in ones}
    by_number = {profile.number: profile for profile in geometry.profiles}
    size = {number: (-profile.size, -profile.slices) for number, profile in by_number.items()}
    return (
        len(gone & set(busy)),
        len(gone),
        len({(start, first) for start, _number, first, _slices in lost} & in_use),
        len(lost),
        -len(then[0] & before[0]),
        -len(then[1] & before[1]),
        sorted((*size[number], number, start) for start, number in then[0]),
        [*sorted((-slices, start, first) for start, _number, first, slices in then[1]), (1,)],
    )


def held(layout: Layout) -> Tuple[Set[Tuple[int, int]], Set[Tuple[int, int, int, int]]]:
    """The instances and the compute instances of a layout, as what identifies them."""
    return (
        {(instance.start, instance.profile) for instance in layout},
        {(i.start, i.profile, one.start, one.slices) for i in layout for one in i.compute},
    )


class Case:
    """A GPU as it is, what is wanted of it, what is in use, and where instances were last."""

    def __init__(self, geometry: Geometry, seed: int) -> None:
        self.geometry = geometry
        self.random = random.Random(seed)
        self.present = self.layout()
        self.preferred = self.layout() if self.random.random() < 0.5 else ()
        self.busy: Dict[int, FrozenSet[int]] = {
            instance.start: frozenset(one.start for one in instance.compute if self.random.random() < 0.6)
            for instance in self.present
            if self.random.random() < 0.4
        }

    def slices(self, number: int) -> int:
        return next(profile.slices for profile in self.geometry.profiles if profile.number == number)

    def layout(self) -> Layout:
        divisions = every_division(self.geometry)
        places = self.random.choice(divisions[self.random.choice(list(divisions))])
        return tuple(Instance(start, number, self.compute(number)) for start, number in places)

    def compute(self, number: int) -> Tuple[Compute, ...]:
        of = self.slices(number)
        return self.random.choice(every_compute(of)) if self.random.random() < 0.4 else (Compute(0, of),)

    def declaration(self, instance: Instance) -> WantedInstance:
        """One that this instance satisfies."""
        start = instance.start if self.random.random() < 0.3 else None
        compute = tuple(
            WantedCompute(one.slices, one.start if self.random.random() < 0.3 else None)
            for one in self.random.sample(instance.compute, len(instance.compute))
        )
        return WantedInstance(instance.profile, start, compute)

    def wanted(self) -> Tuple[WantedInstance, ...]:
        """What some layout satisfies; half of the time one that is near to what is there."""
        layout = self.layout()
        if self.random.random() < 0.5:
            near = [i for i in self.present if self.random.random() < 0.7]
            layout = tuple(sorted(near, key=lambda instance: instance.start))
        found = [self.declaration(instance) for instance in layout]
        self.random.shuffle(found)
        return tuple(found)

    def too_much(self) -> Tuple[WantedInstance, ...]:
        """Up to five that may or may not have a place."""
        found = [self.declaration(instance) for instance in (*self.layout(), *self.layout())]
        self.random.shuffle(found)
        return tuple(found[:5])

    def merit(self, target: Layout) -> Tuple[object, ...]:
        return merit(self.geometry, self.present, target, self.busy, self.preferred)

    def solve(self, wanted: Tuple[WantedInstance, ...]) -> Layout:
        return solve(self.geometry, self.present, wanted, busy=self.busy, preferred=self.preferred)


def instance(start: int, number: int, *compute: Tuple[int, int]) -> Instance:
    """One with these compute instances, each its start and its slices."""
    return Instance(start, number, tuple(Compute(first, slices) for first, slices in compute))
