# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual functions of a card, and who uses them: Documentation/PCI/pci-iov-howto.rst."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ..._machine.numbers import read_number
from . import links

if TYPE_CHECKING:
    from ..._core.protocols import Files

SHOWN = 3
# What hands a function to a virtual machine, or past the kernel to a program. Drivers of vfio end in its name, such as
# mlx5_vfio_pci, which can move a machine to another host.
TO_OTHERS = ("vfio_pci", "xen_pciback", "pci_stub", "igb_uio", "uio_pci_generic")


def most(files: Files, name: str) -> Optional[int]:
    """How many the card has; None where it has none to give."""
    return read_number(files, f"{links.FOLDER}/{name}/device/sriov_totalvfs") or None


def in_use(files: Files, name: str) -> str:
    """Who uses functions of this card, in words; empty where nobody does.

    One whose interface is not among ours has been given to a container, and one that is up is at work here.
    """
    device = f"{links.FOLDER}/{name}/device"
    users = []
    for entry in files.names(device):
        if not entry.startswith("virtfn"):
            continue
        address = files.link(f"{device}/{entry}").rpartition("/")[2]
        driver = files.link(f"{device}/{entry}/driver").rpartition("/")[2]
        interfaces = files.names(f"{device}/{entry}/net")
        up = [one for one in interfaces if _is_up(files, one)]
        if driver.replace("-", "_").endswith(TO_OTHERS):
            users.append(f"{address} is given to a virtual machine or a program ({driver})")
        elif up:
            users.append(f"{up[0]} ({address}) is up")
        elif driver and not interfaces and files.is_folder(f"{device}/{entry}/net"):
            users.append(f"{address} is in the network of a container")
    more = [f"{len(users) - SHOWN} more"] if len(users) > SHOWN else []
    return ", ".join((*users[:SHOWN], *more))


def _is_up(files: Files, name: str) -> bool:
    # IFF_UP of the flags: an interface without a cable is up too.
    return bool(int((files.read_optional(f"{links.FOLDER}/{name}/flags") or "0").strip(), 16) & 1)
