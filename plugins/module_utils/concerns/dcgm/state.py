# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM and its exporter as they are, as the next boot has them, and what is wanted of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._kinds.units import RUNNING, STOPPED
from ..._linux import systemd
from .spec import ALL, WATCHES

if TYPE_CHECKING:
    from ..._core.change import Unmanaged
    from ..._kinds.own_files import OwnFile
    from ..._kinds.units import UnitFile
    from ..._linux.packages import DeclaredPackage
    from .metrics import Metric

# Settings of the exporter's file, of one metric, and of the host engine.
COUNTERS, METRIC, HEALTH = "metrics", "metric", "health watches"
# As long as this the exporter may not have a value of everything yet.
SETTLED_SECONDS = 120.0


@frozen
class Service:
    """A unit as it was found: ``status`` is what ``systemd.enabled`` says, ``active`` None where systemd does not run.

    ``pid`` is its main process, 0 where none runs. ``installable``: its file says how to enable it.
    """

    name: str
    status: str
    active: Optional[bool]
    pid: int = 0
    installable: bool = True

    @property
    def there(self) -> bool:
        return self.status != systemd.NOT_FOUND

    @property
    def service(self) -> str:
        return RUNNING if self.active else STOPPED

    @property
    def off(self) -> str:
        """Its status where nothing starts it at boot."""
        return systemd.DISABLED if self.installable else systemd.STATIC


@frozen
class Exporter:
    """The exporter. ``shipped``: its unit is not ours; else ``program`` is what a unit of ours would start, if any.

    ``line`` is its ExecStart without our drop-in, ``later`` a drop-in that sets another one after ours, and
    ``overruled`` are those of others that set one. ``remote`` says that it is told of a host engine. ``address`` is
    where it answers once it is started, ``clashes``: a variable of its line keeps our file of counters out. ``reads``
    is the file that its process was started with, ``age`` how many seconds ago, and ``read``: it has read the file of
    counters as that is now. ``served`` are the metrics on /metrics with their types, None where it does not answer.
    """

    service: Service
    shipped: bool
    program: str
    unit: UnitFile
    drop_in: UnitFile
    line: str = ""
    later: str = ""
    overruled: Tuple[Tuple[str, str], ...] = ()
    remote: bool = False
    address: str = ""
    clashes: bool = False
    reads: str = ""
    age: float = 0.0
    read: bool = False
    served: Optional[Mapping[str, str]] = None

    @property
    def pending(self) -> str:
        """Why it cannot be started with another command line yet."""
        return self.drop_in.pending() or self.unit.pending()


@frozen
class DcgmState:
    """What was seen.

    ``release`` is that of DCGM (generation, minor), (0, 0) where nobody can tell. ``twin`` is another unit of a host
    engine, the deprecated one. ``theirs`` are the metrics of the file that is there without us, ``at_boot`` those of
    the file that the exporter reads at its next start. ``watches`` are words of the health watches that are on, None
    where the host engine does not run, and ``no_watches`` why dcgmi did not tell them. ``others`` are processes and
    containers that stand in the way of a start, in words. ``packages`` are those of the role.
    """

    engine: Service
    twin: Optional[Service]
    exporter: Exporter
    health: UnitFile
    health_service: Service
    counters: OwnFile
    release: Tuple[int, int] = (0, 0)
    engine_address: str = ""
    theirs: Mapping[str, Metric] = field(default_factory=dict)
    at_boot: Mapping[str, Metric] = field(default_factory=dict)
    watches: Optional[str] = None
    no_watches: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    packages: Tuple[DeclaredPackage, ...] = ()


@frozen
class DcgmDesired:
    """What is wanted of this machine.

    ``starts`` and ``services`` are by unit; a unit that is in neither may be as it is. ``counters``, ``unit``,
    ``drop_in`` and ``health`` are the texts of files of ours, None for no such file. ``watches`` is None where they may
    be as they are; ``flags`` are those of dcgmi that bring them without our unit. ``lacking`` are the units that
    the ``packages`` of the role are to bring, with what the machine lacks.
    """

    starts: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    counters: Optional[str] = None
    unit: Optional[str] = None
    drop_in: Optional[str] = None
    health: Optional[str] = None
    watches: Optional[str] = None
    flags: str = ""
    lacking: Mapping[str, str] = field(default_factory=dict)
    packages: Tuple[DeclaredPackage, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()


def worded(watches: object) -> str:
    """Watches as a value."""
    names = sorted(watches) if isinstance(watches, (set, frozenset)) else []
    return ALL if len(names) == len(WATCHES) else ", ".join(names) or "none"


def flags_of(words: str) -> str:
    """The argument of dcgmi health --set for such a value, empty for none. Raises ``KeyError`` on what is no watch."""
    if words == ALL:
        return "a"
    return "" if words == "none" else "".join(WATCHES[name][0] for name in words.split(", "))


def unit_files(state: DcgmState, desired: DcgmDesired) -> Tuple[Tuple[UnitFile, Optional[str]], ...]:
    """Our files of units, each with the text that is wanted."""
    exporter = state.exporter
    return (exporter.unit, desired.unit), (exporter.drop_in, desired.drop_in), (state.health, desired.health)
