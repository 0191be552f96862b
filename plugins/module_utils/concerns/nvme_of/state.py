# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is seen of connections to NVMe subsystems, and what is wanted of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.value import field, frozen
from ..._kinds.units import UnitFile
from .lines import Line
from .spec import DELAY, LOSS, Connection, Key, NvmeOfDeclaration, shown_loss
from .targets import Controller, Identity, Subsystem

if TYPE_CHECKING:
    from ..._kinds.foreign_values import ForeignValue
    from ..._kinds.hotplug import Hotplug

# How many a message names of those who need a disk, and of what is lacking.
SHOWN = 3


@frozen
class Entry:
    """What a discovery controller tells of. The texts are as the target wrote them, and may be anything."""

    kind: int
    transport: str
    address: str
    port: str
    nqn: str
    secure: bool = False
    duplicate: bool = False


@frozen
class Log:
    """What a discovery controller tells of; ``error`` says why that is not known, and is empty where it is."""

    entries: Tuple[Entry, ...] = ()
    error: str = ""


@frozen
class Told:
    """``connections`` are to be there beside the declared ones, ``policies`` are those of their subsystems.

    ``unknown`` are the discovery controllers of which nobody knows what they would tell of.
    """

    connections: Tuple[Connection, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()
    unknown: Tuple[Key, ...] = ()


@frozen
class Discovered:
    """What discovery controllers tell of, and what of it is to be connected.

    ``missing`` says why nobody asks them at boot and later, and ``later`` is who does. All is empty where nothing is
    discovered.
    """

    logs: Mapping[Key, Log] = field(default_factory=dict)
    told: Told = Told()
    missing: str = ""
    later: Optional[Hotplug] = None


@frozen
class NvmeOfState:
    """What was seen.

    ``ours`` are connections that this module made and that are not declared any more, ``users`` who would lose the
    disks of a subsystem, or of one controller, of which connections may end, by its name. ``lacking`` are modules that
    this kernel does not have, and ``no_interfaces`` interfaces that this machine does not have. ``authentication`` is
    what the connections have that are declared with secrets.

    ``left`` are connections that no discovery controller tells of any more, with who needs them all the same.
    ``foreign`` is what other software does with the connections at boot.
    """

    declaration: NvmeOfDeclaration
    identity_files: Mapping[str, Optional[str]]
    identity: Optional[Identity]
    controllers: Mapping[Key, Controller]
    subsystems: Mapping[str, Subsystem]
    unit: UnitFile
    status: str
    ours: Tuple[Key, ...] = ()
    users: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    lacking: Tuple[str, ...] = ()
    no_interfaces: Tuple[str, ...] = ()
    authentication: Mapping[Key, Optional[str]] = field(default_factory=dict)
    left: Mapping[Key, Tuple[str, ...]] = field(default_factory=dict)
    discovered: Discovered = Discovered()
    foreign: Tuple[ForeignValue, ...] = ()


@frozen
class NvmeOfDesired:
    """What is wanted of this machine: connections, those that are to ``end``, and what stands in files.

    ``numbers`` and ``policies`` are those of connections and subsystems that there are or that are to be. ``identity``
    is by path, None for no such file. ``discovery`` are those of the connections that tell of more, and ``later`` the
    unit and the rules that see to what they tell of later.
    """

    connections: Tuple[Connection, ...] = ()
    end: Tuple[Key, ...] = ()
    numbers: Mapping[Key, Mapping[str, int]] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, Optional[str]] = field(default_factory=dict)
    lines: Tuple[Line, ...] = ()
    unit_text: Optional[str] = None
    later: Tuple[Optional[str], Optional[str]] = (None, None)
    start: Optional[str] = None
    unmanaged: Tuple[Unmanaged, ...] = ()


def with_loss(
    numbers: Mapping[Key, Mapping[str, int]], controllers: Mapping[Key, Controller]
) -> Dict[Key, Mapping[str, int]]:
    """These numbers, and LOSS as it is where it is not among them and another DELAY would change it."""
    found: Dict[Key, Mapping[str, int]] = {}
    for key, wanted in numbers.items():
        loss = controllers[key].numbers[LOSS] if key in controllers else None
        if loss is not None and LOSS not in wanted and wanted.get(DELAY) not in (None, controllers[key].numbers[DELAY]):
            wanted = {**wanted, LOSS: shown_loss(loss, wanted[DELAY])}
        found[key] = wanted
    return found
