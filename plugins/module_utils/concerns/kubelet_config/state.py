# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kubelet as it is, as its next start has it, and what is wanted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, FrozenSet, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from .places import Place
from .spec import KubeletDeclaration

if TYPE_CHECKING:
    from ..._core.change import Unmanaged
    from ..._linux.cpu_claims import Claim
    from .checkpoints import Node

KUBELET = "kubelet"
# The files as they were when the kubelet was last well, until it is again.
NOTE = "/run/gpufleet/kubelet_config.json"
CAPACITY, STATE, FILE, SERVICE = "capacity", "state", "configuration", "service"
FITS = "of this configuration"
HEALTHY, STOPPED, UNHEALTHY = "healthy", "stopped", "not healthy"


@frozen
class Machine:
    """What a kubelet is judged by: the CPUs that are online, the NUMA nodes, the bytes of memory of all together, the
    swap that is on, how many sockets there are, and whether control groups are of version 2."""

    online: FrozenSet[int] = frozenset()
    nodes: Tuple[Node, ...] = ()
    memory: int = 0
    swaps: Tuple[str, ...] = ()
    sockets: int = 1
    cgroup2: bool = True


@frozen
class Delay:
    """The longest delay of a shutdown: ``text`` as the file ``path`` sets it, and in seconds; infinite if not set."""

    path: str = ""
    text: str = ""
    seconds: float = float("inf")


@frozen
class KubeletState:
    """What was seen.

    ``unit`` is empty where there is no kubelet. ``values`` are those that the running one says or has read, None
    where nobody knows, and ``computed`` why it was not asked. ``service`` is None where systemd does not run.
    ``starts`` says that a boot starts it, and ``interrupted`` that a run of ours did not come to its end.
    ``delay`` is how long logind lets it delay a shutdown, read where a grace period is declared.
    ``checkpoints`` are path and text of the state files by kind. ``hugepages`` are the bytes by size that it knew
    when it started, and ``pods`` those that may have CPUs of their own.

    The others are read where something is to change: ``release`` is the minor number of its version, ``gates`` are its
    feature gates, ``cgroups`` fields of others that reserved CPUs cannot stand beside, ``by_priority`` whether they
    have the one that grace periods cannot, and ``system`` and ``isolated`` the CPUs that other concerns have.
    """

    declaration: KubeletDeclaration = KubeletDeclaration({})
    unit: str = ""
    place: Place = Place("", "", None)
    service: Optional[str] = None
    starts: bool = True
    interrupted: bool = False
    values: Optional[Mapping[str, Any]] = None
    computed: str = ""
    gates: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Mapping[str, Tuple[str, str]] = field(default_factory=dict)
    hugepages: Mapping[str, int] = field(default_factory=dict)
    pods: Tuple[str, ...] = ()
    machine: Machine = Machine()
    release: int = 0
    system: Tuple[Claim, ...] = ()
    isolated: Tuple[Claim, ...] = ()
    cgroups: Tuple[str, ...] = ()
    by_priority: bool = False
    delay: Delay = Delay()

    @property
    def found(self) -> Mapping[str, Any]:
        """What the next start brings."""
        return self.place.found()


@frozen
class KubeletDesired:
    """``ours`` are the values that our part of the files has, and ``values`` those that the kubelet has then."""

    ours: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()
