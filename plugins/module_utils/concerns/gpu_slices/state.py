# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slices as they are in effect, as their files have them, and as they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from .spec import FAIL
from .topology import NumaTopology, SliceGpu

if TYPE_CHECKING:
    from ..._core.change import Unmanaged
    from ..._kinds.own_files import OwnFile
    from ..._kinds.units import UnitFile
    from ..._linux.cpu_affinity import Affinity

CPUS, MEMORY, SWAP, WEIGHT = "CPUs", "memory nodes", "swap limit", "I/O weight"
# The slice above all of ours, which systemd makes by itself, and whether a slice is loaded.
PARENT = "gpu.slice"
LOADED = "slice"
ACTIVE, INACTIVE = "active", "inactive"
SCORE, PREFERENCE = "OOM score", "preference of systemd-oomd"
AVOID = "avoid"

Values = Mapping[str, str]
"""What is set, by the name of the setting, in the form in which we write it."""


@frozen
class SliceState:
    """A slice that is ours, or could be.

    ``boot`` is what all files make of it, and ``others`` are the texts of drop-ins, which are read after our file.
    ``effective`` is what its cgroup has, or what systemd would give it where it is not ``active``. ``users`` are those
    who run in it. ``foreign`` is the file of a unit of this name that is not ours.
    """

    name: str
    file: UnitFile
    boot: Values
    effective: Values
    active: bool = False
    users: Tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    foreign: str = ""


@frozen
class ServiceState:
    """A protected service: its drop-in, its score and preference by other files, and what is in effect.

    ``process`` is its main one, 0 where none runs. ``there``: the machine has the unit.
    """

    unit: str
    file: UnitFile
    others: Values
    later: Mapping[str, str]
    effective: Values
    process: int = 0
    there: bool = True


@frozen
class GpuSlicesState:
    """What was seen.

    ``scheduler`` is the unit that places jobs here, ``no_cgroup`` says why nothing can be confined, ``counts_swap``
    whether the kernel counts swap by cgroup. Of ``disks``, ``weighted`` are those that heed a weight. ``devices`` are
    those of the limits by path, with their numbers. ``group_fault`` is why the group cannot use the launcher, and
    ``parent_idle`` says that the slice above ours is there, and has no other below it. ``bound`` are the services in
    slices that are to change which bind themselves to CPUs; only where there are such is it known which are ``online``.
    """

    gpus: Tuple[SliceGpu, ...]
    winners: Tuple[Optional[int], ...]
    topology: NumaTopology
    slices: Mapping[str, SliceState]
    services: Mapping[str, ServiceState]
    rule: OwnFile
    systemd_runs: bool
    scheduler: str = ""
    no_cgroup: str = ""
    counts_swap: bool = True
    disks: Tuple[str, ...] = ()
    weighted: FrozenSet[str] = frozenset()
    devices: Mapping[str, str] = field(default_factory=dict)
    oomd: bool = False
    group_fault: str = ""
    parent_idle: bool = False
    unserved: Tuple[Unmanaged, ...] = ()
    when_busy: str = FAIL
    busy_timeout: float = 0.0
    bound: Tuple[Affinity, ...] = ()
    online: FrozenSet[int] = frozenset()


@frozen
class WantedSlice:
    """A slice with its values; ``about`` is what it is for, in words."""

    name: str
    about: str
    values: Values


@frozen
class GpuSlicesDesired:
    """What is wanted of this machine.

    ``keep`` are slices that stay as they are: those of GPUs that are lost. For ``state: absent``, ``restored`` are the
    scores that processes had.
    """

    slices: Tuple[WantedSlice, ...] = ()
    services: Mapping[str, Values] = field(default_factory=dict)
    rule: Optional[str] = None
    keep: Tuple[str, ...] = ()
    unresponsive: Tuple[str, ...] = ()
    restored: Mapping[str, str] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()
