# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the configuration space of a PCI device says, as sysfs shows it to root (PCI Express Base Specification)."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from .._core.protocols import Files

# 7.5.1: whether there is a list of capabilities, and where it begins.
STATUS, HAS_LIST, LIST = 0x06, 1 << 4, 0x34
# 7.5.3: the capability of PCI Express, and in it what a device may do of its own accord.
EXPRESS, DEVICE_CONTROL, RELAXED_ORDERING = 0x10, 8, 1 << 4
# 7.7.11: the extended capabilities, and in that of ACS what redirects peers.
FIRST_EXTENDED, ACS, CONTROL = 0x100, 0x000D, 6
REDIRECTS = {"request_redirect": 1 << 2, "completion_redirect": 1 << 3, "upstream_forwarding": 1 << 4}


def read_config(files: Files, path: str) -> bytes:
    """The configuration space of the device at a path of sysfs: 64 bytes for others than root. Raises ``OSError``."""
    return files.read(f"{path}/config").encode("utf-8", "surrogateescape")


def relaxed_ordering(config: bytes) -> Optional[bool]:
    """Whether the device may have its writes overtake each other; None where that is not shown or it has no say."""
    if len(config) < FIRST_EXTENDED or not config[STATUS] & HAS_LIST:
        return None
    place = config[LIST] & ~3
    # A device that has gone answers with ones, and a list may be a circle.
    for _count in range((FIRST_EXTENDED - LIST) // 4):
        if place < LIST or place + DEVICE_CONTROL + 2 > FIRST_EXTENDED:
            break
        if config[place] == EXPRESS:
            control = int.from_bytes(config[place + DEVICE_CONTROL : place + DEVICE_CONTROL + 2], "little")
            return bool(control & RELAXED_ORDERING)
        place = config[place + 1] & ~3
    return None


def redirects_of(config: bytes) -> Optional[List[str]]:
    """What of ACS is on in the configuration space of a bridge; None where we were not shown all of it."""
    if len(config) <= FIRST_EXTENDED:
        return None
    place = FIRST_EXTENDED
    # A device that has gone answers with ones, and a list may be a circle.
    for _count in range((len(config) - FIRST_EXTENDED) // 8):
        header = int.from_bytes(config[place : place + 4], "little")
        if header & 0xFFFF == ACS:
            control = int.from_bytes(config[place + CONTROL : place + CONTROL + 2], "little")
            return [name for name, bit in REDIRECTS.items() if control & bit]
        place = header >> 20
        if header in (0, 0xFFFFFFFF) or place < FIRST_EXTENDED:
            break
    return []
