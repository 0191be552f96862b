# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MPS daemons as they run, as the next boot starts them, and as they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._nvidia.gpus import NOT_THERE
from .spec import ALL, FAIL

if TYPE_CHECKING:
    from ..._core.change import Conflict, Unmanaged
    from ..._kinds.units import UnitFile
    from .driver import MpsGpu

# The settings of a daemon, and of a GPU.
UNIT_FILE, GPUS, MULTI_USER, MEMORY = "unit", "GPUs", "multi-user", "memory limit"
PERCENTAGE = "active thread percentage"


@frozen
class Values:
    """What a daemon has been given: devices by UUID, and the limits of these in MiB."""

    devices: Tuple[str, ...] = ()
    percentage: str = ALL
    limits: Mapping[str, int] = field(default_factory=dict)
    multi_user: bool = False


@frozen
class Client:
    """A program that computes through MPS. ``job`` is what placed it, such as a job of Slurm, empty where unknown."""

    pid: int
    command: str
    user: str
    job: str

    @property
    def name(self) -> str:
        place = f", {self.job}" if self.job else ""
        return f"{self.command} (pid {self.pid}, user {self.user}{place})"


@frozen
class Server:
    """A server of a daemon. ``percentage`` is empty, and a limit is missing, where it did not say, as while it starts.

    ``limits`` has only the devices that were asked for; None for no limit.
    """

    pid: int
    percentage: str
    limits: Mapping[str, Optional[int]]
    clients: Tuple[Client, ...]


@frozen
class Daemon:
    """One daemon. ``wanted`` is None for one that is to go.

    ``boot`` are the values of its files, ``others`` the drop-ins of others by path. ``effective`` are those of the one
    that runs, None where none does. ``fault`` says why one that runs does not tell.
    """

    unit: str
    file: UnitFile
    status: str
    boot: Optional[Values]
    others: Mapping[str, str]
    effective: Optional[Values]
    servers: Tuple[Server, ...] = ()
    fault: str = ""

    @property
    def runs(self) -> bool:
        """Whether it has a process, be it one that answers or not."""
        return self.effective is not None or bool(self.fault)

    @property
    def clients(self) -> Tuple[Client, ...]:
        return tuple(client for server in self.servers for client in server.clients)


@frozen
class WantedDaemon:
    """A daemon that is wanted. ``about`` names its devices, ``names`` are those by UUID."""

    unit: str
    key: str
    about: str
    names: Mapping[str, str]
    values: Values


@frozen
class MpsState:
    """What was seen. ``gpus`` are all, ``winners`` the entry that wins each. ``program`` is the control program.

    ``modes`` are the compute modes that are declared on this node, by UUID. ``foreign`` are other daemons that serve
    the same GPUs, and ``conflicts`` all other owners.
    """

    gpus: Tuple[MpsGpu, ...] = ()
    winners: Tuple[Optional[int], ...] = ()
    daemons: Mapping[str, Daemon] = field(default_factory=dict)
    program: str = ""
    branch: int = 0
    modes: Mapping[str, str] = field(default_factory=dict)
    conflicts: Tuple[Conflict, ...] = ()
    systemd_runs: bool = True
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE
    when_busy: str = FAIL
    busy_timeout: float = 0.0


@frozen
class MpsDesired:
    """What is wanted of this machine. ``keep`` are daemons that stay as they are: their GPU does not respond."""

    daemons: Tuple[WantedDaemon, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    keep: Tuple[str, ...] = ()
    unresponsive: Tuple[str, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
