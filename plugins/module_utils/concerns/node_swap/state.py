# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Swap as it is, as the next boot brings it, and as it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._linux.fstab import FstabLine

if TYPE_CHECKING:
    from ..._core.change import Conflict, Unmanaged
    from ..._kinds.units import UnitFile
    from ..._linux.swaps import Area
    from .sources import BootUnit

NAME = "node_swap"
SWAP_FILE = "/swapfile_gpufleet"
UNIT = "swapfile_gpufleet.swap"
MARK = "# gpufleet.node.node_swap: "
NODE = "node"
SWAP = "swap"
AT_BOOT = "swap at boot"
GENERATED = "generated unit"
SIZE = "size"
ON, OFF = "on", "off"


@frozen
class NodeSwapState:
    """What was seen. ``fstab`` are its lines of swap that count at boot, and those that we switched off.

    ``identities`` are those of the areas by path. ``masks`` are the files of ``state: absent`` that mask a unit,
    ``gone`` the devices that it would have to switch on and that are not there, and ``statuses`` the units that it may
    enable. ``generated`` are units that systemd has made of fstab and partitions, ``reload_blocker`` why it may not
    read that again now. ``root_kind`` is the type of the file system for our file.
    """

    areas: Tuple[Area, ...]
    identities: Mapping[str, str]
    fstab_text: str
    fstab: Tuple[FstabLine, ...]
    units: Tuple[BootUnit, ...]
    unit_file: UnitFile
    unit_status: str
    file_size: Optional[int]
    generated: Tuple[str, ...] = ()
    reload_blocker: str = ""
    systemd_runs: bool = False
    obstacle: str = ""
    root_kind: str = ""
    free: int = 0
    zswap: str = ""
    conflicts: Tuple[Conflict, ...] = ()
    masks: Tuple[str, ...] = ()
    gone: Tuple[str, ...] = ()
    statuses: Mapping[str, str] = field(default_factory=dict)

    @property
    def specs(self) -> Mapping[str, str]:
        """What fstab brings at boot, by the device as it is written there."""
        found = {line.spec: OFF for line in self.fstab}
        found.update({line.spec: ON for line in self.fstab if not line.marked})
        return found

    def area(self, path: str) -> Optional[Area]:
        return next((area for area in self.areas if area.path == path and not area.deleted), None)


@frozen
class NodeSwapDesired:
    """What is wanted of this machine. ``size`` is that of our file in bytes, None for no such file.

    ``off`` switches everything else off. For ``state: absent``, ``restored`` are the areas that are on again, by
    identity with path and value, ``unmasked`` and ``enabled`` the units that come at boot again.
    """

    off: bool = False
    restoring: bool = False
    size: Optional[int] = None
    restored: Mapping[str, Tuple[str, str]] = field(default_factory=dict)
    unmasked: Tuple[str, ...] = ()
    enabled: Tuple[str, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()


def in_words(area: Area) -> str:
    """An area that is on; a priority below zero is none that somebody chose."""
    return f"{ON}, priority {area.priority}" if area.priority >= 0 else ON
