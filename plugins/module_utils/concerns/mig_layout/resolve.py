# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a declaration means on one GPU: names become the profiles that this GPU has with this driver."""

from __future__ import annotations

import re
from typing import Collection, Dict, Iterable, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.nearest import QUESTION, did_you_mean
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen
from .model import PLAIN, Geometry, Profile, WantedCompute, WantedInstance
from .spec import InstanceItem, ItemCompute, MigEntry, Name
from .text import profile_of

# 1g, 1g+me, 2g-me: a minus is part of the attribute, a plus is not.
SHORTHAND = regex(r"(\d)g(?:\+(me|me\.all|gfx)|(-me))?", re.ASCII)


@frozen
class GpuModel:
    name: str
    model: str
    device_id: int
    geometry: Geometry


def resolve(
    entry: MigEntry, geometry: Geometry, *, model: str, device_id: int, gpu: str
) -> Optional[Tuple[WantedInstance, ...]]:
    """The instances that ``entry`` declares for a GPU; None where it leaves them alone.

    ``model`` and ``gpu`` are for messages; ``device_id`` is the PCI device, such as 0x2330, without the vendor. Whether
    they fit together is the solver's matter. Raises ``DeclarationError`` on what this GPU does not have.
    """
    if entry.layout:
        known = layouts(geometry)
        if entry.layout not in known:
            cause = f"this {model} has no layout {entry.layout}, but {', '.join(known) or 'none'}"
            raise refused(entry.entry.where, gpu, cause, hint=layout_hint(entry.layout, known))
        return known[entry.layout]
    if entry.instances is None:
        return None
    target = GpuModel(gpu, model, device_id, geometry)
    return tuple(wanted for item in entry.instances for wanted in _wanted(item, target))


def plain(geometry: Geometry, slices: int, attribute: str = PLAIN) -> Optional[Profile]:
    """The profile with these compute slices and this attribute that has the least memory; None where there is none."""
    fitting = (one for one in geometry.profiles if (one.slices, one.attribute) == (slices, attribute))
    return min(fitting, key=lambda one: (one.size, one.memory_mib, one.number), default=None)


def whole(profile: Profile, start: Optional[int] = None) -> WantedInstance:
    """An instance with one compute instance of all its slices."""
    return WantedInstance(profile.number, start, (WantedCompute(profile.slices),))


def _wanted(item: InstanceItem, gpu: GpuModel) -> Tuple[WantedInstance, ...]:
    profile = _profile(item.profile, gpu)
    if profile is None:
        has = ", ".join(f"{one.name} ({one.number})" for one in gpu.geometry.profiles)
        cause = f"this {gpu.model} has no profile {item.profile}; it has {has or 'none'}"
        raise refused(item.where, gpu.name, cause, hint=profile_hint(item.profile, gpu.geometry))
    if item.placement is not None and item.placement not in profile.starts:
        cause = f"a {profile.name} of this {gpu.model} begins at memory slice {_words(profile.starts)}"
        raise refused(item.where, gpu.name, cause, wanted=item.placement)
    if item.compute is None:
        return (whole(profile, item.placement),) * item.count
    compute = tuple(_compute(one, profile, gpu) for one in item.compute)
    together = sum(one.slices for one in compute)
    if together > profile.slices:
        cause = f"a {profile.name} has {_slices(profile.slices)}, and its compute instances take {together}"
        raise refused(item.where, gpu.name, cause)
    # What a name such as 1c.3g.40gb tells is told where the element is, what compute_instances tells below it.
    by_name = any(one.where == item.where for one in item.compute)
    if by_name and item.count > 1 and 2 * compute[0].slices <= profile.slices:
        return several_parts(item, compute[0], profile, gpu)
    return (WantedInstance(profile.number, item.placement, compute),) * item.count


def _profile(name: Name, gpu: GpuModel) -> Optional[Profile]:
    """A name as this driver has it, or a number, before a shorthand, before what another driver calls it."""
    short = SHORTHAND.fullmatch(str(name))
    if short:
        return plain(gpu.geometry, int(short[1]), short[2] or short[3] or PLAIN)
    return profile_of(str(name), gpu.geometry, device_id=gpu.device_id)


def _compute(declared: ItemCompute, profile: Profile, gpu: GpuModel) -> WantedCompute:
    from .solver import compute_starts

    starts = compute_starts(profile.slices, declared.slices)
    cause, wanted = "", declared.slices
    if declared.profile is not None and _profile(declared.profile, gpu) != profile:
        cause = f"{declared.slices}c.{declared.profile} cannot be in a {profile.name}"
        raise refused(declared.where, gpu.name, cause)
    if declared.slices > profile.slices:
        cause = f"a {profile.name} has {_slices(profile.slices)}"
    elif not starts:
        sizes = (slices for slices in range(1, profile.slices + 1) if compute_starts(profile.slices, slices))
        cause = f"a compute instance in a {profile.name} takes {_words(sizes)} slices"
    elif declared.placement is not None and declared.placement not in starts:
        cause = f"a compute instance of {_slices(declared.slices)} in a {profile.name} begins at {_words(starts)}"
        wanted = declared.placement
    if cause:
        raise refused(declared.where, gpu.name, cause, wanted=wanted)
    return WantedCompute(declared.slices, declared.placement)


def _words(numbers: Iterable[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last


def _slices(number: int) -> str:
    return f"{number} compute slice{'' if number == 1 else 's'}"


def refused(where: str, gpu: str, cause: str, *, wanted: Scalar = None, hint: str = "") -> DeclarationError:
    return DeclarationError(f"create {where}", object=gpu, cause=cause, wanted=wanted, hint=hint)


# By the compute slices of the GPU: how many instances of how many slices.
BALANCED = {7: ((3, 1), (2, 1), (1, 2)), 4: ((2, 1), (1, 2))}


def layouts(geometry: Geometry) -> Dict[str, Tuple[WantedInstance, ...]]:
    """What every name means on this GPU, those alone that it can have. One name serves a mixed fleet.

    - ``all-1g``, ``all-2g``, ...: as many as there can be of the plain profile of so many compute slices with the least
      memory. Where a GPU has none of this size there is no such layout: an A30 has all-1g, all-2g and all-4g.
    - ``whole``: one instance that is the whole GPU (7g, or 4g on a GPU of four slices).
    - ``balanced``: a GPU of seven slices becomes one 3g, one 2g and two 1g; one of four becomes one 2g and two 1g.
    """
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
        # Here, as in `nearest`: only what is wrong has a use for it.
        from difflib import SequenceMatcher

        alike = [one for one in names if one.startswith(slices[0])]
        near = sorted(alike, key=lambda one: -SequenceMatcher(None, str(name), one).ratio())
        return f"{QUESTION} {near[0]}" if near else ""
    return "" if isinstance(name, int) else did_you_mean(name, names)


def layout_hint(name: str, known: Collection[str]) -> str:
    # all-3g is no mistake for all-1g: it is what this GPU cannot have.
    return did_you_mean(name, known, cutoff=0.85)


def several_parts(
    item: InstanceItem, part: WantedCompute, profile: Profile, gpu: GpuModel
) -> Tuple[WantedInstance, ...]:
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
        return (WantedInstance(profile.number, None, (part,)),) * item.count
    sizes = [room] * full + [rest] * bool(rest)
    return tuple(WantedInstance(profile.number, None, (part,) * size) for size in sizes)


def most_of(profile: Profile, geometry: Geometry) -> int:
    """How many there can be of a profile alone. Some drivers count more than have a place."""
    places, free_from = 0, 0
    for start in sorted(profile.starts):
        if start >= free_from:
            places, free_from = places + 1, start + profile.size
    return min(profile.most, places, geometry.slices // profile.slices)
