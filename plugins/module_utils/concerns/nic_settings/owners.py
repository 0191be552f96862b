# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else says what the MTU of an interface is: the daemon or the scripts that bring it up.

Each says so itself: systemd-networkd and NetworkManager by a file in /run for every interface that they manage, with
the configuration that they took for it. What netplan is told is in the files that it makes for either.

Where their configuration says nothing, the DHCP server may: with every new lease its interface MTU (option 26 of
RFC 2132) goes to the interface, in NetworkManager and dhclient always, in systemd-networkd with UseMTU=, which netplan
writes by default. dhcpcd gives it to routes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Iterator, Optional, Tuple

from ..._core.errors import OwnedByAnother
from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux import systemd
from ..._linux.dropins import walk_files
from . import links

if TYPE_CHECKING:
    from ..._core.protocols import Files

NETWORKD, NETWORK_MANAGER, IFUPDOWN, WICKED = "systemd-networkd", "NetworkManager", "ifupdown", "wicked"
DHCLIENT = "dhclient"
KEEP_OUT_DHCLIENT = "remove interface-mtu from the request in /etc/dhcp/dhclient.conf"
NETWORKD_LINKS = "/run/systemd/netif/links"
NETWORKD_FOLDERS = tuple(f"{top}/systemd/network" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"))
NETWORKD_LEASES = "/run/systemd/netif/leases"
MANAGER_DEVICES = "/run/NetworkManager/devices"
MANAGER_PROFILES = tuple(f"{top}/NetworkManager/system-connections" for top in ("/etc", "/run", "/usr/lib"))
# NetworkManager.conf(5); what is read later counts.
MANAGER_MAIN = "/etc/NetworkManager/NetworkManager.conf"
MANAGER_FOLDERS = tuple(f"{top}/NetworkManager/conf.d" for top in ("/etc", "/run", "/usr/lib"))
MANAGER_IFCFG = "/etc/sysconfig/network-scripts"
IFUPDOWN_STATE = "/run/network/ifstate"
IFUPDOWN_FILES, IFUPDOWN_FOLDER = "/etc/network/interfaces", "/etc/network/interfaces.d"
DHCLIENT_LEASES = "/var/lib/dhcp"
WICKED_FOLDER = "/etc/sysconfig/network"
# The names of what netplan makes, which it makes anew from /etc/netplan.
OF_NETPLAN = ("/run/systemd/network/10-netplan-", "/run/NetworkManager/system-connections/netplan-")
# Where an MTU stands, as section and key; scripts, and what systemd-networkd keeps of a lease, have no sections.
_OF_SCRIPT = (("", "MTU"),)
# nm-settings-keyfile(5); a profile may be such a script too.
_OF_PROFILE = (("ethernet", "mtu"), ("802-3-ethernet", "mtu"), ("infiniband", "mtu"), *_OF_SCRIPT)
_BY_DEFAULT = (("connection", "ethernet.mtu"),)
_OF_MANAGER_LEASE = (("dhcp4", "dhcp4.interface_mtu"),)
# systemd.network(5).
_DHCP_SECTIONS = ("DHCP", "DHCPv4")
_BYTES = regex(r"([0-9]{1,9})([KMG]?)")
# dhclient.leases(5).
_LEASED_MTU = regex(r"\s*option interface-mtu ([0-9]{1,9});\s*")
_ASSIGNMENT = regex(r"\s*([A-Za-z0-9_.-]+)\s*=\s*[\"']?([^\"']*?)[\"']?\s*")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


@frozen
class StatedMtu:
    """A line that gives an interface its MTU whenever ``owner`` brings it up.

    ``keep_out`` is how to keep ``owner`` from what the DHCP server says; empty where the line is the owner's own.
    """

    owner: str
    path: str
    line: int
    mtu: int
    keep_out: str = ""


def stated_mtu(files: Files, name: str) -> Optional[StatedMtu]:
    """The MTU that whoever brings up this interface gives it; None where nobody states one."""
    index = (files.read_optional(f"{links.FOLDER}/{name}/ifindex") or "").strip()
    for found in (_of_networkd(files, index), _of_manager(files, index), _of_scripts(files, name)):
        stated = tuple(found)
        # A line of the owner's own counts, whatever the DHCP server says.
        if stated:
            return next((one for one in reversed(stated) if not one.keep_out), stated[-1])
    return None


def refuse_other(name: str, wanted: int, stated: StatedMtu) -> None:
    """Raise ``OwnedByAnother`` where another MTU than ours is stated."""
    if stated.mtu == wanted:
        return
    if stated.keep_out:
        cause = f"{stated.owner} sets it to what the DHCP server says, recorded at {stated.path}:{stated.line}"
        hint = f"set mtu {wanted} on the DHCP server, or {stated.keep_out}, or set permanent: false"
    else:
        cause = f"{stated.owner} sets it whenever it brings the interface up, at {stated.path}:{stated.line}"
        made = stated.path.startswith(OF_NETPLAN)
        there = "in /etc/netplan, from which netplan made this file" if made else "there"
        hint = f"set mtu {wanted} {there}, or remove it, or set permanent: false"
    raise OwnedByAnother("set mtu", object=name, cause=cause, found=stated.mtu, wanted=wanted, hint=hint)


def _of_networkd(files: Files, index: str) -> Iterator[StatedMtu]:
    said = dict(_assignments(files.read_optional(f"{NETWORKD_LINKS}/{index}") or "")) if index else {}
    path = said.get("NETWORK_FILE", "")
    if not path or said.get("ADMIN_STATE") == "unmanaged":
        return
    folders = tuple(f"{folder}/{path.rpartition('/')[2]}.d" for folder in NETWORKD_FOLDERS)
    takes_leased = ""
    for place in (path, *walk_files(files, folders, ".conf")):
        for number, section, key, value in _sections(files, place):
            size = _BYTES.fullmatch(value)
            if (section, key) == ("Link", "MTUBytes") and size:
                yield StatedMtu(NETWORKD, place, number, int(size[1]) * _UNITS[size[2]])
            elif section in _DHCP_SECTIONS and key == "UseMTU":
                takes_leased = value.lower()
    if takes_leased in systemd.TRUE:
        here = "use-mtu: false in /etc/netplan" if path.startswith(OF_NETPLAN) else f"UseMTU=no in {path}"
        yield from _stated(files, f"{NETWORKD_LEASES}/{index}", _OF_SCRIPT, NETWORKD, f"set {here}")


def _of_manager(files: Files, index: str) -> Iterator[StatedMtu]:
    device = f"{MANAGER_DEVICES}/{index}"
    text = files.read_optional(device) if index else None
    uuid = dict(_assignments(text or "")).get("connection-uuid", "")
    if not uuid:
        return
    keep_out = f"give the connection {uuid} an mtu of its own by nmcli"
    yield from _stated(files, device, _OF_MANAGER_LEASE, NETWORK_MANAGER, keep_out)
    yield from _of_manager_by_default(files)
    for path in _profiles(files):
        if uuid in (files.read_optional(path) or ""):
            yield from _stated(files, path, _OF_PROFILE, NETWORK_MANAGER)


def _of_manager_by_default(files: Files) -> Iterator[StatedMtu]:
    """What profiles without an MTU get, as far as it is for all devices."""
    for path in (MANAGER_MAIN, *walk_files(files, MANAGER_FOLDERS, ".conf")):
        places = {(section, key) for _number, section, key, _value in _sections(files, path)}
        if ("connection", "match-device") not in places:
            yield from _stated(files, path, _BY_DEFAULT, NETWORK_MANAGER)


def _profiles(files: Files) -> Iterator[str]:
    for folder in MANAGER_PROFILES:
        yield from (f"{folder}/{name}" for name in files.names(folder))
    yield from (f"{MANAGER_IFCFG}/{name}" for name in files.names(MANAGER_IFCFG) if name.startswith("ifcfg-"))


def _of_scripts(files: Files, name: str) -> Iterator[StatedMtu]:
    up = (line.partition("=")[0] for line in (files.read_optional(IFUPDOWN_STATE) or "").splitlines())
    if name in up:
        yield from _of_ifupdown(files, name)
    yield from _stated(files, f"{WICKED_FOLDER}/ifcfg-{name}", _OF_SCRIPT, WICKED)


def _of_ifupdown(files: Files, name: str) -> Iterator[StatedMtu]:
    for path in (IFUPDOWN_FILES, *(f"{IFUPDOWN_FOLDER}/{entry}" for entry in files.names(IFUPDOWN_FOLDER))):
        of_ours = False
        for number, line in enumerate((files.read_optional(path) or "").splitlines(), 1):
            words = line.split()
            if words[:1] in (["iface"], ["auto"], ["mapping"], ["source"]) or line.startswith("allow-"):
                of_ours = words[:2] == ["iface", name]
                if of_ours and words[2:] == ["inet", "dhcp"]:
                    yield from _of_dhclient(files, name)
            elif of_ours and len(words) == 2 and words[0] == "mtu" and words[1].isdecimal():
                yield StatedMtu(IFUPDOWN, path, number, int(words[1]))


def _of_dhclient(files: Files, name: str) -> Iterator[StatedMtu]:
    """What the last lease says; dhclient appends them."""
    path = f"{DHCLIENT_LEASES}/dhclient.{name}.leases"
    found = None
    for number, line in enumerate((files.read_optional(path) or "").splitlines(), 1):
        leased = _LEASED_MTU.fullmatch(line)
        if line.startswith("lease"):
            found = None
        elif leased:
            found = StatedMtu(DHCLIENT, path, number, int(leased[1]), KEEP_OUT_DHCLIENT)
    if found is not None:
        yield found


def _stated(
    files: Files, path: str, places: Collection[Tuple[str, str]], owner: str, keep_out: str = ""
) -> Iterator[StatedMtu]:
    """The lines of a file that give an MTU at one of these places; 0 leaves it to the network."""
    for number, section, key, value in _sections(files, path):
        if (section, key) in places and value.isdecimal() and int(value):
            yield StatedMtu(owner, path, number, int(value), keep_out)


def _assignments(text: str) -> Iterator[Tuple[str, str]]:
    for line in text.splitlines():
        found = _ASSIGNMENT.fullmatch(line)
        if found:
            yield found[1], found[2]


def _sections(files: Files, path: str) -> Iterator[Tuple[int, str, str, str]]:
    """The assignments of a file by line: number, section, key and value."""
    section = ""
    for number, line in enumerate((files.read_optional(path) or "").splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and bare.endswith("]"):
            section = bare[1:-1]
            continue
        found = None if bare.startswith(("#", ";")) else _ASSIGNMENT.fullmatch(bare)
        if found:
            yield number, section, found[1], found[2]
