# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PCI tree, from the resolved paths of sysfs: every bridge on the way to a device is a folder of its path."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from .._core.regex import regex

_ADDRESS = regex(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = regex(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")

Chain = Tuple[str, ...]


def chain(path: str) -> Chain:
    """The host bridge (``pci0000:15``), the bridges below it and the device, of a path below /sys/devices."""
    parts = path.split("/")
    return tuple(part for part in parts if _ADDRESS.fullmatch(part) or _HOST_BRIDGE.fullmatch(part))


def distance(one: Chain, other: Chain, *, same_node: Optional[bool]) -> Optional[str]:
    """How two devices reach each other, in the words of ``nvidia-smi topo -m``, nearest first.

    ``PIX``: through at most one switch. ``PXB``: through several. ``PHB``: through a host bridge. ``NODE``: between
    host bridges of one NUMA node. ``SYS``: between NUMA nodes. None where that depends on the node, and ``same_node``
    is None for "not known".
    """
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    if not shared:
        return None if same_node is None else "NODE" if same_node else "SYS"
    if shared == 1:
        return "PHB"
    # Below the last bridge they share, a device of the same switch has only the port that it is plugged into.
    return "PIX" if max(len(one), len(other)) - shared <= 2 else "PXB"


def gigatransfers(text: str) -> Optional[float]:
    """The speed of a lane in GT/s, from ``16.0 GT/s PCIe``; None where the device does not tell."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(match[1]) if match else None


def lanes(text: str) -> Optional[int]:
    """The width of a link, None where the device does not tell (0 or 255)."""
    number = int(text) if text.strip().isdecimal() else 0
    return number if 0 < number < 255 else None
