# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts as texts, in settings, messages and records: ``1g.10gb@0-1 2g.20gb@2 3g.40gb@4[1c@0 2c@1]``.

Instances of one profile stand together, in the order of the first start, with their starts in the kernel's list format.
In brackets are compute instances that are not one of all slices; with nothing in them there is none. A profile that
this driver does not have is written as its number. An empty GPU is ``none``.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Optional, Tuple

from ..._core.regex import regex
from ..._linux import cpulist
from .boards import alias
from .model import Compute, Geometry, Instance, Layout, Profile

NONE = "none"
# No GPU has a hundred slices, and a range in a record that was edited must not fill the memory.
STARTS = r"@(\d{1,2}(?:[,-]\d{1,2})*)"
GROUP = regex(rf"([^\s@\[\]]+){STARTS}(?:\[([^\[\]]*)\])?", re.ASCII)
COMPUTE_GROUP = regex(rf"(\d{{1,2}})c{STARTS}", re.ASCII)
BETWEEN_GROUPS = regex(r"\s+(?![^\[]*\])")


def layout_text(layout: Layout, geometry: Geometry) -> str:
    """The text of a layout, ``none`` where it is empty."""
    texts = _grouped((f"{_name(one.profile, geometry)}@", _brackets(one, geometry), one.start) for one in layout)
    return " ".join(texts) or NONE


def instance_text(instance: Instance, geometry: Geometry) -> str:
    """One GPU instance without its compute instances, such as ``3g.40gb@4``."""
    return layout_text((instance,), geometry).partition("[")[0]


def parse_layout(text: str, geometry: Geometry, *, device_id: int = 0) -> Layout:
    """The layout of a text. With a PCI device id, names that another driver has for this board are known too.

    Raises ``ValueError`` on what is no layout, and on a name that this GPU does not have.
    """
    if text.strip() == NONE:
        return ()
    found: List[Instance] = []
    for part in BETWEEN_GROUPS.split(text.strip()):
        group = GROUP.fullmatch(part)
        if not group:
            raise ValueError(f"{part!r} is not a group of instances")
        profile = profile_of(group[1], geometry, device_id=device_id)
        if profile is None and not group[1].isdecimal():
            raise ValueError(f"this GPU has no profile {group[1]}")
        if group[3] is not None:
            compute = _parse_compute(group[3])
        elif profile is not None:
            compute = (Compute(0, profile.slices),)
        else:
            raise ValueError(f"{part!r} does not name its compute instances")
        number = int(group[1]) if profile is None else profile.number
        found.extend(Instance(start, number, compute) for start in cpulist.parse(group[2]))
    return tuple(sorted(found))


def profile_of(name: str, geometry: Geometry, *, device_id: int = 0) -> Optional[Profile]:
    """The profile with this name or number, or with this name under another driver of the same board; None if none."""
    for profile in geometry.profiles:
        if name.lower() in (profile.name.lower(), str(profile.number)):
            return profile
    if name.isdecimal() or not device_id:
        return None
    number = alias(device_id, name.lower())
    return None if number is None else geometry.profile(number)


def _name(number: int, geometry: Geometry) -> str:
    profile = geometry.profile(number)
    return profile.name if profile else str(number)


def _brackets(instance: Instance, geometry: Geometry) -> str:
    profile = geometry.profile(instance.profile)
    if profile and instance.compute == (Compute(0, profile.slices),):
        return ""
    return f"[{' '.join(_grouped((f'{one.slices}c@', '', one.start) for one in instance.compute))}]"


def _grouped(parts: Iterable[Tuple[str, str, int]]) -> List[str]:
    """What comes before and after the starts, and a start: one text for all starts of what is otherwise the same."""
    starts: Dict[Tuple[str, str], List[int]] = {}
    for before, after, start in sorted(parts, key=lambda part: part[2]):
        starts.setdefault((before, after), []).append(start)
    return [f"{before}{cpulist.render(numbers)}{after}" for (before, after), numbers in starts.items()]


def _parse_compute(text: str) -> Tuple[Compute, ...]:
    found: List[Compute] = []
    for part in text.split():
        group = COMPUTE_GROUP.fullmatch(part)
        if not group:
            raise ValueError(f"{part!r} is not a group of compute instances")
        found.extend(Compute(start, int(group[1])) for start in cpulist.parse(group[2]))
    return tuple(sorted(found))
