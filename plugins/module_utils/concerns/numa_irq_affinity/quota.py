# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many interrupts every CPU of a set may have when they are spread evenly, over the CPUs and then over the cores.

Even means that the sum of the squares of the loads is as small as it can be, that of the CPUs first, then that of the
cores. What every such spread gives to a CPU is *sure*. Some CPUs may have one more, as long as their core has some left
for its threads, or is one of the cores that may still have one of the *rest*.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from ..._core.value import frozen


@frozen
class Quota:
    """The shares of places that are numbered from 0, in cores that are numbered from 0. ``core_of`` is by place.

    ``sure`` is what a place has in any case, ``more`` whether it may have one beyond that. ``core_sure`` is how many
    of these a core has in any case, ``core_more`` whether it may have one beyond that, and ``rest`` how many cores do.
    """

    core_of: Tuple[int, ...]
    sure: Tuple[int, ...]
    more: Tuple[bool, ...]
    core_sure: Tuple[int, ...]
    core_more: Tuple[bool, ...]
    rest: int


def even(core_of: Sequence[int], count: int, *, loads: Sequence[int], beside: Sequence[int]) -> Quota:
    """The shares of ``count`` interrupts, over places that have ``loads`` already.

    ``beside`` is what lies on threads of the cores that are no places, by core.
    """
    sure, takers, rest = _fill(loads, [count] * len(loads), count)
    core_loads, core_room = list(beside), [0] * len(beside)
    for place, core in enumerate(core_of):
        core_loads[core] += loads[place] + sure[place]
    for place in takers:
        core_room[core_of[place]] += 1
    core_sure, core_takers, core_rest = _fill(core_loads, core_room, rest)
    return Quota(
        core_of=tuple(core_of),
        sure=tuple(sure),
        more=_flags(takers, len(loads)),
        core_sure=tuple(core_sure),
        core_more=_flags(core_takers, len(beside)),
        rest=core_rest,
    )


def _fill(loads: Sequence[int], limits: Sequence[int], count: int) -> Tuple[List[int], List[int], int]:
    """Pour ``count`` where the least lies: what each gets in any case, those that may get one more, and how many do."""
    poured = [0] * len(loads)
    level = min(loads)
    while count:
        takers = [
            index for index, load in enumerate(loads) if load + poured[index] == level and poured[index] < limits[index]
        ]
        if count < len(takers):
            return poured, takers, count
        for index in takers:
            poured[index] += 1
        count -= len(takers)
        level += 1
    return poured, [], 0


def _flags(indexes: Sequence[int], length: int) -> Tuple[bool, ...]:
    chosen = set(indexes)
    return tuple(index in chosen for index in range(length))


class RemainingQuota:
    """What is left of shares while they are taken."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._core_of = quota.core_of
        self._sure = list(quota.sure)
        self._more = list(quota.more)
        self._core_sure = list(quota.core_sure)
        self._core_more = list(quota.core_more)
        self._rest = quota.rest

    def at(self, place: int) -> bool:
        """Whether one more can be there."""
        if self._sure[place]:
            return True
        core = self._core_of[place]
        return self._more[place] and bool(self._core_sure[core] or (self._core_more[core] and self._rest))

    def take(self, place: int) -> None:
        """One more is there, and there was room for it. What no other place can use is used first."""
        core = self._core_of[place]
        if self._sure[place]:
            self._sure[place] -= 1
            return
        self._more[place] = False
        if self._core_sure[core]:
            self._core_sure[core] -= 1
        else:
            self._core_more[core] = False
            self._rest -= 1

    def give(self, place: int) -> None:
        """One that was there is not there any more. What was used last is free first."""
        core = self._core_of[place]
        if self._more[place] or not self._quota.more[place]:
            self._sure[place] += 1
            return
        self._more[place] = True
        if self._core_more[core] or not self._quota.core_more[core]:
            self._core_sure[core] += 1
        else:
            self._core_more[core] = True
            self._rest += 1
