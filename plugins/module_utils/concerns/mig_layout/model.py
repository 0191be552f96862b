# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts of MIG as values: what a GPU can be divided into, what it is divided into and what is wanted of it.

GPU instances lie on memory slices (8 on most GPUs, 4 on some), compute instances on the compute slices of their GPU
instance. Instances are known by profile and placement: their numbers differ from one GPU to the next.
"""

from __future__ import annotations

from typing import FrozenSet, Mapping, Optional, Tuple

from ..._core.value import frozen, frozen_ordered

# What a profile has besides its slices, by its nvmlGpuInstanceProfile constant. Of the media engines a GPU has one set
# of extensions: ME takes it, ALL_ME takes all engines, NO_ME none.
PLAIN, ME, ALL_ME, NO_ME, GFX = "", "me", "me.all", "-me", "gfx"


@frozen
class Profile:
    """What a GPU instance can be, as this GPU and this driver have it.

    ``number`` is the profile's id (19 for ``1g.10gb``), ``slices`` its compute slices, ``size`` its memory slices,
    ``starts`` the memory slices at which it may begin, ``most`` how many of it a GPU can have.
    """

    number: int
    name: str
    slices: int
    size: int
    starts: Tuple[int, ...]
    most: int
    attribute: str = PLAIN
    memory_mib: int = 0


@frozen
class Geometry:
    """What a GPU can be divided into. ``three_beside_four``: drivers before R510 refuse a 3g beside a 4g."""

    profiles: Tuple[Profile, ...]
    three_beside_four: bool = True

    @property
    def slices(self) -> int:
        """The compute slices of the whole GPU."""
        return max((profile.slices for profile in self.profiles), default=0)

    def profile(self, number: int) -> Optional[Profile]:
        return next((profile for profile in self.profiles if profile.number == number), None)


@frozen_ordered
class Compute:
    """A compute instance: its first compute slice in the GPU instance, and how many it has."""

    start: int
    slices: int


@frozen_ordered
class Instance:
    """A GPU instance where it lies, in memory slices, with its compute instances by their start."""

    start: int
    profile: int
    compute: Tuple[Compute, ...] = ()


Layout = Tuple[Instance, ...]
"""All instances of a GPU, by their start."""


@frozen
class WantedCompute:
    """A compute instance that is declared; ``start`` is None where any will do."""

    slices: int
    start: Optional[int] = None


@frozen
class WantedInstance:
    """One GPU instance that is declared. ``compute`` is complete: a declaration without any means one of all slices."""

    profile: int
    start: Optional[int]
    compute: Tuple[WantedCompute, ...]


Busy = Mapping[int, FrozenSet[int]]
"""What is in use: the starts of GPU instances, each with the starts of its compute instances that are."""
