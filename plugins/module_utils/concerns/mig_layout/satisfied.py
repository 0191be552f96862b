# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a GPU is divided as declared: what a look asks when nothing is to be done, so it needs no search."""

from __future__ import annotations

from typing import List, Tuple

from .model import Compute, Layout, WantedCompute, WantedInstance

# What tells one GPU instance from another where any placement will do.
Kind = Tuple[int, Tuple[Compute, ...]]


def satisfied(layout: Layout, wanted: Tuple[WantedInstance, ...]) -> bool:
    """Whether the instances are exactly these, neither more nor fewer, with their compute instances."""
    if len(layout) != len(wanted):
        return False
    left = {instance.start: (instance.profile, instance.compute) for instance in layout}
    for one in wanted:
        if one.start is not None:
            found = left.pop(one.start, None)
            if found is None or not _is(one, found):
                return False
    return _assigned(list(left.values()), [one for one in wanted if one.start is None])


def _assigned(kinds: List[Kind], wanted: List[WantedInstance]) -> bool:
    """Whether each wanted one can have one of as many instances. What one may have, another may need."""
    if not wanted:
        return True
    for kind in {kind for kind in kinds if _is(wanted[0], kind)}:
        others = list(kinds)
        others.remove(kind)
        if _assigned(others, wanted[1:]):
            return True
    return False


def _is(wanted: WantedInstance, kind: Kind) -> bool:
    profile, compute = kind
    return wanted.profile == profile and _holds(compute, wanted.compute)


def _holds(compute: Tuple[Compute, ...], wanted: Tuple[WantedCompute, ...]) -> bool:
    left = list(compute)
    for one in wanted:
        if one.start is not None:
            place = Compute(one.start, one.slices)
            if place not in left:
                return False
            left.remove(place)
    return sorted(place.slices for place in left) == sorted(one.slices for one in wanted if one.start is None)
