# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of this host towards targets, the controllers that it has over a network, and who uses what they give.

Documentation: drivers/nvme/host/sysfs.c of the kernel. What of ``address`` the target does not decide, such as
``src_addr``, is left out of account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import frozen, replace
from ..._linux import mounts, swaps
from ..._machine import processes
from .spec import DISCOVERY, LOOP, NUMBERS, PLACE, Key, is_nqn, one_form

if TYPE_CHECKING:
    from ..._core.protocols import Files

CONTROLLERS = "/sys/class/nvme"
SUBSYSTEMS = "/sys/class/nvme-subsystem"
HOST_NQN, HOST_ID = "/etc/nvme/hostnqn", "/etc/nvme/hostid"
MACHINE_UUID = "/sys/class/dmi/id/product_uuid"
# NVM Express Base Specification, 4.7: the form of a name that is made of a UUID.
PREFIX = "nqn.2014-08.org.nvmexpress:uuid:"
LIVE = "live"
DISK = regex(r"nvme[0-9]+n[0-9]+")
# How much of a damaged file is repeated.
SHOWN = 100
_UUID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What firmware says that has no number.
NO_UUIDS = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "03000200-0400-0500-0006-000700080009")  # fmt: skip


@frozen
class Controller:
    """A connection that the kernel has. ``numbers`` are by option, None for what it does not show.

    ``disks`` are the block devices that it alone leads to, as all are without multipath.
    """

    name: str
    key: Key
    state: str
    numbers: Mapping[str, Optional[int]]
    disks: Tuple[str, ...]


@frozen
class Subsystem:
    """What is reached over one or several controllers. ``policy`` is empty where the kernel does not choose a path.

    ``disks`` are the block devices to which all its controllers lead, ``controllers`` their names.
    """

    nqn: str
    folder: str
    policy: str
    disks: Tuple[str, ...]
    controllers: Tuple[str, ...]


@frozen
class Identity:
    """The name and the number by which targets know this host."""

    nqn: str
    number: str


def read_identity_files(files: Files) -> Dict[str, Optional[str]]:
    """What the files say that all tools read, None for nothing. Those read the first line and no more."""
    texts = {path: files.read_optional(path) or "" for path in (HOST_NQN, HOST_ID)}
    return {path: text.partition("\n")[0].strip() or None for path, text in texts.items()}


def identity_of_host(files: Files, found: Mapping[str, Optional[str]]) -> Identity:
    """What is in the files; what is not is made of the UUID of the machine, which is the same after a reinstall.

    Raises ``DeclarationError`` where the machine has none, and for a file that holds something else: the kernel would
    not take it, and it stands in a line of our unit.
    """
    nqn, number = found[HOST_NQN], found[HOST_ID]
    if nqn is not None and not is_nqn(nqn):
        _refuse_identity(HOST_NQN, nqn, "the name of a host, such as nqn.2014-08.org.nvmexpress:uuid:UUID")
    if number is not None and not _UUID.fullmatch(number.lower()):
        _refuse_identity(HOST_ID, number, "a UUID")
    if nqn is None or number is None:
        of_name = nqn[len(PREFIX) :] if nqn is not None and nqn.startswith(PREFIX) else ""
        uuid = number or (of_name if _UUID.fullmatch(of_name.lower()) else "") or _machine_uuid(files)
        nqn, number = nqn or f"{PREFIX}{uuid}", number or uuid
    return Identity(nqn, number)


def _refuse_identity(path: str, found: str, form: str) -> NoReturn:
    shown = found if len(found) <= SHOWN and found.isprintable() else f"{len(found)} characters"
    raise DeclarationError(
        "name this host to NVMe targets",
        cause=f"{path} does not hold {form}",
        found=shown,
        hint="correct the file, or remove it to have it made of the UUID of the machine; nothing was changed",
    )


def _machine_uuid(files: Files) -> str:
    uuid = (files.read_optional(MACHINE_UUID) or "").strip().lower()
    if not _UUID.fullmatch(uuid) or uuid in NO_UUIDS:
        raise DeclarationError(
            "name this host to NVMe targets",
            cause=f"there is neither {HOST_NQN} nor {HOST_ID}, and the machine has no UUID to make them of",
            hint=f"run nvme gen-hostnqn > {HOST_NQN}",
        )
    return uuid


def read_controllers(files: Files, identities: Sequence[Identity] = ()) -> Dict[Key, Controller]:
    """The controllers reached over a network or a loop; with ``identities``, only those with one of them."""
    found: Dict[Key, Controller] = {}
    for name in files.names(CONTROLLERS):
        folder = f"{CONTROLLERS}/{name}"
        transport = _text(files, f"{folder}/transport")
        if transport in ("", "pcie") or not _is_of(files, folder, identities):
            continue
        address = dict(part.strip().partition("=")[::2] for part in _text(files, f"{folder}/address").split(","))
        numbers = {option: _number(files, f"{folder}/{known.file}", known.added) for option, known in NUMBERS.items()}
        key = (_nqn(files, folder), transport, *_way(transport, address))
        controller = Controller(name, key, _text(files, f"{folder}/state"), numbers, _disks_in(files, folder))
        # Others may have a second one to the same place, and to a discovery controller there may be any number.
        if key not in found or found[key].state != LIVE:
            found[key] = controller
    return found


def _is_of(files: Files, folder: str, identities: Sequence[Identity]) -> bool:
    """Whether a target knows this connection by one of these, as far as the kernel shows name and number."""
    if not identities:
        return True
    name, number = (_text(files, f"{folder}/{file}").lower() for file in ("hostnqn", "hostid"))
    return any(name in ("", one.nqn.lower()) and number in ("", one.number.lower()) for one in identities)


def _nqn(files: Files, folder: str) -> str:
    """A discovery controller may have a name of its own, and its subsystem one that is unique to the target."""
    nqn = _text(files, f"{folder}/subsysnqn")
    return DISCOVERY if nqn != DISCOVERY and _text(files, f"{folder}/cntrltype") == "discovery" else nqn


def _way(transport: str, address: Mapping[str, str]) -> Tuple[str, str, str, str]:
    if transport == LOOP:
        return "", "", "", ""
    target, here = (address.get(name, "") for name in ("traddr", "host_traddr"))
    return one_form(target) or target, address.get("trsvcid", ""), one_form(here) or here, address.get("host_iface", "")


def adopt(controllers: Dict[Key, Controller], keys: Iterable[Key]) -> None:
    """Call a connection to a place as it is declared, where that leaves open from where this host connects."""
    known = set(keys)
    for key in known - controllers.keys():
        ways = [other for other in controllers if other[PLACE] == key[PLACE] and other not in known]
        if ways and not any(key[PLACE.stop :]):
            way = next((other for other in ways if controllers[other].state == LIVE), ways[0])
            controllers[key] = replace(controllers.pop(way), key=key)


def read_subsystems(files: Files) -> Dict[str, Subsystem]:
    """By their names."""
    found = {}
    for name in files.names(SUBSYSTEMS):
        folder = f"{SUBSYSTEMS}/{name}"
        nqn = _text(files, f"{folder}/subsysnqn")
        controllers = tuple(one for one in files.names(folder) if files.exists(f"{CONTROLLERS}/{one}"))
        policy = _text(files, f"{folder}/iopolicy")
        found[nqn] = Subsystem(nqn, folder, policy, _disks_in(files, folder), controllers)
    return found


def _disks_in(files: Files, folder: str) -> Tuple[str, ...]:
    """A controller is in its subsystem too, and is a character device; a path that is hidden has no number."""
    return tuple(one for one in files.names(folder) if DISK.fullmatch(one) and files.exists(f"{folder}/{one}/dev"))


def users_of(files: Files, disks: Sequence[str]) -> Tuple[str, ...]:
    """What would lose its disk: mounts, swap, what is made of the disk, and processes that have it open."""
    table = mounts.read(files)
    areas = [files.resolve(area.path) for area in swaps.read_areas(files)]
    users: List[str] = []
    nodes: Set[str] = set()
    for disk in disks:
        folder = f"/sys/class/block/{disk}"
        parts = [disk, *(name for name in files.names(folder) if files.exists(f"{folder}/{name}/partition"))]
        for part in parts:
            nodes.add(f"/dev/{part}")
            place = f"/sys/class/block/{part}"
            number = _text(files, f"{place}/dev")
            users += [f"{mount.path} ({part})" for mount in table if number and mount.number == number]
            users += [f"swap ({part})" for area in areas if area == f"/dev/{part}"]
            users += [f"{holder} ({part})" for holder in files.names(f"{place}/holders")]
    # Only where nothing else is found: all processes are gone through for it.
    users += [] if users or not nodes else _openers(files, nodes)
    return tuple(dict.fromkeys(users))


def _openers(files: Files, nodes: Set[str]) -> List[str]:
    found = []
    for pid in processes.ids(files):
        try:
            opened = nodes.intersection(processes.opened(files, pid))
        except OSError:
            # It has ended.
            continue
        name = processes.name_of(files, pid) or "process"
        found += [f"{name} ({node.rpartition('/')[2]}, pid {pid})" for node in sorted(opened)]
    return found


def _text(files: Files, path: str) -> str:
    return (files.read_optional(path) or "").strip()


def _number(files: Files, path: str, added: int) -> Optional[int]:
    text = _text(files, path)
    # Without a limit the kernel writes "off", which is -1 where it takes it.
    if text == "off":
        return -1
    return int(text) - added if text.lstrip("-").isdecimal() else None
