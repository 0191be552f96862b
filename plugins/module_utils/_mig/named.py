# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Named layouts, the hints for a name that is none, and what a name means that is declared several times.

One line serves a mixed fleet: a name stands for what each GPU has of it.

- ``all-1g``, ``all-2g``, ...: as many as there can be of the plain profile of so many compute slices with the least
  memory. Where a GPU has none of this size there is no such layout: an A30 has all-1g, all-2g and all-4g.
- ``whole``: one instance that is the whole GPU (7g, or 4g on a GPU of four slices).
- ``balanced``: a GPU of seven slices becomes one 3g, one 2g and two 1g; one of four becomes one 2g and two 1g.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher, get_close_matches
from typing import Collection, Dict, Tuple

from .model import Geometry, Profile, Wanted, WantedCompute
from .resolve import Target, plain, refused, whole
from .spec import Item, Name

# By the compute slices of the GPU: how many instances of how many slices.
BALANCED = {7: ((3, 1), (2, 1), (1, 2)), 4: ((2, 1), (1, 2))}


def layouts(geometry: Geometry) -> Dict[str, Tuple[Wanted, ...]]:
    """What every name means on this GPU, those alone that it can have."""
    sizes = {slices: plain(geometry, slices) for slices in sorted({one.slices for one in geometry.profiles})}
    profiles = {slices: profile for slices, profile in sizes.items() if profile}
    found = {f"all-{slices}g": (whole(one),) * most_of(one, geometry) for slices, one in profiles.items()}
    if geometry.slices in profiles:
        found["whole"] = (whole(profiles[geometry.slices]),)
    parts = BALANCED.get(geometry.slices, ())
    if parts and all(slices in profiles for slices, _count in parts):
        found["balanced"] = tuple(whole(profiles[slices]) for slices, count in parts for _index in range(count))
    return found


def profile_hint(name: Name, geometry: Geometry) -> str:
    """The nearest name among those with as many compute slices; with another number of slices none is near."""
    slices = re.match(r"\d+g", str(name))
    names = [one.name for one in geometry.profiles]
    if slices:
        alike = [one for one in names if one.startswith(slices[0])]
        near = sorted(alike, key=lambda one: -SequenceMatcher(None, str(name), one).ratio())
    else:
        near = [] if isinstance(name, int) else get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}" if near else ""


def layout_hint(name: str, known: Collection[str]) -> str:
    # all-3g is no mistake for all-1g: it is what this GPU cannot have.
    near = get_close_matches(name, known, n=1, cutoff=0.85)
    return f"did you mean {near[0]}" if near else ""


def several_parts(item: Item, part: WantedCompute, profile: Profile, gpu: Target) -> Tuple[Wanted, ...]:
    """Several of a name such as 1c.3g.40gb: to mig-parted these are compute instances that share GPU instances.

    Taken so where the GPU cannot have a GPU instance for each. Where it can, nobody knows what is meant.
    """
    room, most = profile.slices // part.slices, most_of(profile, gpu.geometry)
    if item.count <= most:
        name = f"{part.slices}c"
        shared = ", ".join([name] * min(item.count, room))
        cause = (
            f"{item.count} x {name}.{profile.name} can be {item.count} GPU instances with one {name} each, or compute "
            f"instances that share a {profile.name}, as in mig-parted"
        )
        hint = (
            f"list {name}.{profile.name} once for each of the former, or {{profile: {profile.name}, "
            f"compute_instances: [{shared}]}}"
        )
        raise refused(item.where, gpu.name, cause, hint=hint)
    full, rest = divmod(item.count, room)
    if full + bool(rest) > most:
        return (Wanted(profile.number, None, (part,)),) * item.count
    sizes = [room] * full + [rest] * bool(rest)
    return tuple(Wanted(profile.number, None, (part,) * size) for size in sizes)


def most_of(profile: Profile, geometry: Geometry) -> int:
    """How many there can be of a profile alone. Some drivers count more than have a place."""
    places, free_from = 0, 0
    for start in sorted(profile.starts):
        if start >= free_from:
            places, free_from = places + 1, start + profile.size
    return min(profile.most, places, geometry.slices // profile.slices)
