# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a declaration means on one GPU: names become the profiles that this GPU has with this driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Optional, Tuple

from .._core.errors import DeclarationError, Scalar
from .model import PLAIN, Geometry, Profile, Wanted, WantedCompute
from .spec import GpuEntry, Item, ItemCompute, Name
from .text import profile_of

# 1g, 1g+me, 2g-me: a minus is part of the attribute, a plus is not.
SHORTHAND = re.compile(r"(\d)g(?:\+(me|me\.all|gfx)|(-me))?", re.ASCII)


@dataclass(frozen=True)
class Target:
    name: str
    model: str
    device_id: int
    geometry: Geometry


def resolve(
    entry: GpuEntry, geometry: Geometry, *, model: str, device_id: int, gpu: str
) -> Optional[Tuple[Wanted, ...]]:
    """The instances that ``entry`` declares for a GPU; None where it leaves them alone.

    ``model`` and ``gpu`` are for messages; ``device_id`` is the PCI device, such as 0x2330, without the vendor. Whether
    they fit together is the solver's matter. Raises ``DeclarationError`` on what this GPU does not have.
    """
    if entry.layout:
        from .named import layout_hint, layouts

        known = layouts(geometry)
        if entry.layout not in known:
            cause = f"this {model} has no layout {entry.layout}, but {', '.join(known) or 'none'}"
            raise refused(entry.entry.where, gpu, cause, hint=layout_hint(entry.layout, known))
        return known[entry.layout]
    if entry.instances is None:
        return None
    target = Target(gpu, model, device_id, geometry)
    return tuple(wanted for item in entry.instances for wanted in _wanted(item, target))


def plain(geometry: Geometry, slices: int, attribute: str = PLAIN) -> Optional[Profile]:
    """The profile with these compute slices and this attribute that has the least memory; None where there is none."""
    fitting = (one for one in geometry.profiles if (one.slices, one.attribute) == (slices, attribute))
    return min(fitting, key=lambda one: (one.size, one.memory_mib, one.number), default=None)


def whole(profile: Profile, start: Optional[int] = None) -> Wanted:
    """An instance with one compute instance of all its slices."""
    return Wanted(profile.number, start, (WantedCompute(profile.slices),))


def _wanted(item: Item, gpu: Target) -> Tuple[Wanted, ...]:
    profile = _profile(item.profile, gpu)
    if profile is None:
        from .named import profile_hint

        has = ", ".join(f"{one.name} ({one.number})" for one in gpu.geometry.profiles)
        cause = f"this {gpu.model} has no profile {item.profile}, but {has or 'none'}"
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
        from .named import several_parts

        return several_parts(item, compute[0], profile, gpu)
    return (Wanted(profile.number, item.placement, compute),) * item.count


def _profile(name: Name, gpu: Target) -> Optional[Profile]:
    """A name as this driver has it, or a number, before a shorthand, before what another driver calls it."""
    short = SHORTHAND.fullmatch(str(name))
    if short:
        return plain(gpu.geometry, int(short[1]), short[2] or short[3] or PLAIN)
    return profile_of(str(name), gpu.geometry, device_id=gpu.device_id)


def _compute(declared: ItemCompute, profile: Profile, gpu: Target) -> WantedCompute:
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
    return DeclarationError(f"make {where}", object=gpu, cause=cause, wanted=wanted, hint=hint)
