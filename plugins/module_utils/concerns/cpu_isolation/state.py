# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slices and services as they are, as the next boot has them, and what is wanted of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._linux import cpulist

if TYPE_CHECKING:
    from ..._core.change import Unmanaged
    from ..._kinds.units import UnitFile
    from ..._linux.cpu_affinity import Affinity
    from ..._linux.cpu_claims import Claim
    from ..._linux.cpu_topology import CpuTopology

NAME = "cpu_isolation"
# The settings of a slice and of a service.
CPUS, SLICE = "CPUs", "slice"


@frozen
class ConfinedSlice:
    """A slice as it was found. CPUs are none where it is not limited.

    ``allowed`` are those that the files give it, ``others`` the same without our file, by what ``theirs`` say, and
    ``later`` the first of those that has a say after ours. ``effective`` are those that it has; ``there`` says whether
    it is in use at all.
    """

    name: str
    file: UnitFile
    allowed: FrozenSet[int]
    others: FrozenSet[int]
    theirs: Tuple[Tuple[str, str], ...]
    later: Tuple[str, str]
    effective: FrozenSet[int]
    there: bool


@frozen
class Daemon:
    """A service as it was found: the slice of its files, the one without our file, and where it runs, if it does.

    ``later`` is a file that has a say after ours. ``delegated`` says that it divides its control group itself.
    """

    name: str
    file: UnitFile
    boot: str
    others: str
    later: str
    runs_in: str
    delegated: bool


@frozen
class CpuIsolationState:
    """What was seen. ``lacking`` are daemons that are not there. ``unavailable`` says why no slice can be confined.

    ``topology`` is read where something is to change, and so is what is in the way then: ``launchers`` are what starts
    jobs or containers below a slice, and ``busy`` what is at work there, both by slice, the latter as pairs of a name
    and what it does. ``affinities`` are the services below a slice that bind themselves to CPUs, by slice too, and read
    only where the CPUs of a slice or the slice of a service are to change. ``isolated`` are CPUs that are kept from the
    system.
    """

    slices: Mapping[str, ConfinedSlice]
    daemons: Mapping[str, Daemon]
    lacking: Tuple[str, ...] = ()
    unavailable: str = ""
    systemd_runs: bool = True
    reload_blocker: str = ""
    online: FrozenSet[int] = frozenset()
    possible: FrozenSet[int] = frozenset()
    isolated: Tuple[Claim, ...] = ()
    topology: Optional[CpuTopology] = None
    launchers: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    busy: Mapping[str, Tuple[Tuple[str, str], ...]] = field(default_factory=dict)
    affinities: Mapping[str, Tuple[Affinity, ...]] = field(default_factory=dict)


@frozen
class CpuIsolationDesired:
    """What is wanted of this machine: the CPUs of slices, and the services that are in the slice for daemons.

    Slices and services that are not among them are to be as others have them.
    """

    slices: Mapping[str, FrozenSet[int]] = field(default_factory=dict)
    daemons: Tuple[str, ...] = ()
    when_busy: str = ""
    busy_timeout: int = 0
    unmanaged: Tuple[Unmanaged, ...] = ()


def shown(cpus: FrozenSet[int]) -> Optional[str]:
    """CPUs as a value: None for a slice that is not limited."""
    return cpulist.render(cpus) or None
