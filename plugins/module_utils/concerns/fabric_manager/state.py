# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fabric of a node as it is, and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.value import field, frozen
from .daemons import Daemon, DriverVersions
from .driver import FabricGpu
from .hardware import Hardware
from .holds import Holds
from .imex import Domain
from .notes import Notes

if TYPE_CHECKING:
    from ..._nvidia.holders import Holder


@frozen
class FabricState:
    """What was seen. ``daemons`` are the Fabric Manager and IMEX. ``gpus`` are those with a fabric.

    ``clients`` compute on GPUs, looked for only where a daemon is to be started or stopped. ``addresses`` are those of
    this node. ``channel`` is whether channel 0 is there, now and at boot. ``operator`` is the folder of a driver that a
    container brought. ``lacking`` is what a Fabric Manager that does not run lacks (``hardware.lacking``).
    """

    hardware: Hardware
    notes: Notes
    known: Notes
    daemons: Tuple[Daemon, ...]
    driver: DriverVersions
    holds: Holds = Holds()
    gpus: Tuple[FabricGpu, ...] = ()
    clients: Tuple[Holder, ...] = ()
    addresses: Tuple[str, ...] = ()
    domain: Domain = Domain()
    channel: Tuple[Optional[str], Optional[str]] = (None, None)
    operator: str = ""
    lacking: Tuple[str, ...] = ()


@frozen
class WantedDaemon:
    """What is wanted of one daemon; None where it may be as it is. Of ``values`` None takes a key out of its file.

    ``nodes`` describes the file of IMEX (``imex.describe``), and is looked at only where ``has_nodes``.
    """

    daemon: Daemon
    needed: bool = False
    start: Optional[str] = None
    service: Optional[str] = None
    values: Mapping[str, Optional[str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    nodes: Optional[str] = None
    has_nodes: bool = False


@frozen
class FabricDesired:
    """What is wanted of this machine. ``held`` are packages, and whether they shall be held."""

    daemons: Tuple[WantedDaemon, ...] = ()
    held: Mapping[str, bool] = field(default_factory=dict)
    nodes: Tuple[str, ...] = ()
    channel: bool = False
    unmanaged: Tuple[Unmanaged, ...] = ()
