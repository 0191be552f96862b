# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network interfaces as sysfs has them: Documentation/ABI/testing/sysfs-class-net."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Set, Tuple

from ..._core.match import Candidate
from ..._core.value import frozen
from ..._linux.pci import chain
from ..._machine.numbers import read_number
from .spec import LINK_LAYERS

if TYPE_CHECKING:
    from ..._core.protocols import Files

FOLDER = "/sys/class/net"
BOND, VLAN, MACVLAN = "bond", "vlan", "macvlan"
# Those whose MTU the kernel keeps within that of the interface below.
WITHIN_LOWER = (VLAN, MACVLAN)


@frozen
class Link:
    """One interface. ``identity`` is its PCI address where it has one, with the port of a card that has several.

    ``kind`` is the DEVTYPE of the kernel, such as ``bond`` or ``vlan``; empty for a plain one. ``lowers`` and
    ``uppers`` are the interfaces right below and above it, ``bond`` the one that it is a port of.
    """

    name: str
    identity: str
    kind: str
    mtu: int
    lowers: Tuple[str, ...] = ()
    uppers: Tuple[str, ...] = ()
    bond: str = ""

    @property
    def mtu_path(self) -> str:
        return mtu_path(self.name)

    @property
    def functions_path(self) -> str:
        return f"{FOLDER}/{self.name}/device/sriov_numvfs"


def mtu_path(name: str) -> str:
    return f"{FOLDER}/{name}/mtu"


def names(files: Files) -> Tuple[str, ...]:
    return tuple(name for name in files.names(FOLDER) if files.is_folder(f"{FOLDER}/{name}"))


def candidate(files: Files, name: str) -> Candidate:
    """What an interface can be matched by. One that software made must be named: there may be one for each pod.

    So must a part of a card, which stands for a virtual function in its switch, or for a partition of InfiniBand.
    """
    path = files.resolve(f"{FOLDER}/{name}")
    if "/virtual/" in path or _is_part(files, path):
        return Candidate(name, {"name": (name,)}, named_by="name")
    driver = files.link(f"{path}/device/driver").rpartition("/")[2]
    found = {
        "name": name,
        "driver": driver,
        "pci_address": _pci_address(path),
        "mac_address": (files.read_optional(f"{path}/address") or "").strip().lower(),
        "link_layer": LINK_LAYERS.get((files.read_optional(f"{path}/type") or "").strip(), ""),
    }
    return Candidate(name, {key: (value,) for key, value in found.items() if value})


def is_card(files: Files, name: str) -> bool:
    """Whether a device makes it, and not software."""
    return files.exists(f"{FOLDER}/{name}") and "/virtual/" not in files.resolve(f"{FOLDER}/{name}")


def read(files: Files, name: str) -> Optional[Link]:
    """The interface of this name; None where it is gone."""
    path = files.resolve(f"{FOLDER}/{name}")
    mtu = read_number(files, f"{path}/mtu")
    if mtu is None:
        return None
    around = files.names(path)
    master = files.link(f"{path}/master").rpartition("/")[2]
    return Link(
        name=name,
        identity=_identity(files, path, name),
        kind=_kind(files, path),
        mtu=mtu,
        lowers=(*(entry[len("lower_") :] for entry in around if entry.startswith("lower_")), *_parents(files, path)),
        uppers=tuple(entry[len("upper_") :] for entry in around if entry.startswith("upper_")),
        bond=master if master and _kind(files, f"{FOLDER}/{master}") == BOND else "",
    )


def below(files: Files, found: Set[str]) -> Set[str]:
    """These interfaces and all below them."""
    waiting, all_of_them = list(found), set(found)
    while waiting:
        link = read(files, waiting.pop())
        for lower in link.lowers if link is not None else ():
            if lower not in all_of_them:
                all_of_them.add(lower)
                waiting.append(lower)
    return all_of_them


def neighbours(files: Files, known: Mapping[str, Link]) -> Dict[str, Link]:
    """The interfaces right above and below those that are known, and not among them."""
    around = {name for link in known.values() for name in (*link.lowers, *link.uppers)}
    found = {name: read(files, name) for name in sorted(around - known.keys())}
    return {name: link for name, link in found.items() if link is not None}


def _identity(files: Files, path: str, name: str) -> str:
    address = _pci_address(path)
    # Those on USB have the address of what the bus belongs to.
    if not address or "/usb" in path or _is_part(files, path):
        return name
    port = (files.read_optional(f"{path}/dev_port") or "0").strip()
    return address if port == "0" else f"{address}/{port}"


def _parents(files: Files, path: str) -> Tuple[str, ...]:
    """The interface that a partition of InfiniBand lies on: the kernel makes no link for it."""
    return tuple((files.read_optional(f"{path}/parent") or "").split())


def _is_part(files: Files, path: str) -> bool:
    """Whether it has the PCI address of a card and is none itself."""
    try:
        port = files.read_optional(f"{path}/phys_port_name") or ""
    except OSError:
        # The driver names no ports.
        port = ""
    # p0 is the port itself; pf0vf1 and c1pf0sf88 stand for functions in the switch of the card. IPoIB names a parent.
    return "vf" in port or "sf" in port or files.exists(f"{path}/parent")


def _pci_address(path: str) -> str:
    # Of a card that is plugged into a bus of its own, such as virtio, the function that this bus belongs to.
    return "".join(chain(path)[-1:])


def _kind(files: Files, path: str) -> str:
    lines = (files.read_optional(f"{path}/uevent") or "").splitlines()
    return next((line.partition("=")[2] for line in lines if line.startswith("DEVTYPE=")), "")
