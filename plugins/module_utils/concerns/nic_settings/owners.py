# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else says what the MTU of an interface is: the daemon or the scripts that bring it up.

Their own lines are those of ``network_writers``. Where their configuration says nothing, the DHCP server may: with
every new lease its interface MTU (option 26 of RFC 2132) goes to the interface, in NetworkManager and dhclient always,
in systemd-networkd with UseMTU=, which netplan writes by default. dhcpcd gives it to routes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Optional, Tuple

from ..._core.errors import OwnedByAnother
from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux import boot_writers, systemd
from ..._linux.dropins import walk_files
from ..._linux.foreign_files import foreign
from ..._linux.network_writers import (
    IFUPDOWN_FILES,
    IFUPDOWN_FOLDER,
    IFUPDOWN_STATE,
    IP,
    LASTING,
    MANAGER_DEVICES,
    NETWORK_MANAGER,
    NETWORKD,
    NETWORKD_LINKS,
    TUNED,
    assignments,
    sections,
)
from . import links

if TYPE_CHECKING:
    from ..._core.protocols import Files

DHCLIENT = "dhclient"
KEEP_OUT_DHCLIENT = "remove interface-mtu from the request in /etc/dhcp/dhclient.conf"
NETWORKD_LEASES = "/run/systemd/netif/leases"
DHCLIENT_LEASES = "/var/lib/dhcp"
# The names of what netplan makes, which it makes again from /etc/netplan.
OF_NETPLAN = ("/run/systemd/network/10-netplan-", "/run/NetworkManager/system-connections/netplan-")
# systemd.network(5).
_DHCP_SECTIONS = ("DHCP", "DHCPv4")
# As ip-link(8) and the leases have it.
_MTU = regex(r"[0-9]{1,9}")
# dhclient.leases(5).
_LEASED_MTU = regex(r"\s*option interface-mtu ([0-9]{1,9});\s*")


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
    """The MTU that whoever brings up this interface gives it; None where it is left to the interface."""
    index = (files.read_optional(f"{links.FOLDER}/{name}/ifindex") or "").strip()
    own = tuple(_own_lines(files, name))
    leased = (
        *(_of_networkd_lease(files, index) if index else ()),
        *(_of_manager_lease(files, index) if index else ()),
        *_of_dhclient(files, name),
    )
    # A line of the owner's own counts, whatever the DHCP server says.
    return own[-1] if own else next(iter(leased), None)


def refusal(name: str, wanted: int, stated: StatedMtu) -> OwnedByAnother:
    """The error for an interface of which another MTU than ours is stated."""
    if stated.keep_out:
        cause = f"{stated.owner} sets it to what the DHCP server says, recorded at {stated.path}:{stated.line}"
        hint = f"set mtu {wanted} on the DHCP server, or {stated.keep_out}, or set permanent: false"
    else:
        cause = f"{stated.owner} sets it whenever it brings the interface up, at {stated.path}:{stated.line}"
        made = stated.path.startswith(OF_NETPLAN)
        there = "in /etc/netplan, from which netplan made this file" if made else "there"
        hint = f"set mtu {wanted} {there}, or remove it, or set permanent: false"
    return OwnedByAnother("set mtu", object=name, cause=cause, found=stated.mtu, wanted=wanted, hint=hint)


def _own_lines(files: Files, name: str) -> Iterator[StatedMtu]:
    for one in boot_writers.commands(files, IP):
        if one.owner not in LASTING or one.owner == TUNED or one.in_doubt or one.arguments[3:5] != (name, "mtu"):
            continue
        # A script may give ip(8) what that refuses.
        if _MTU.fullmatch("".join(one.arguments[5:6])):
            yield StatedMtu(one.owner, one.path, one.line or 0, int(one.arguments[5]))


def _of_networkd_lease(files: Files, index: str) -> Iterator[StatedMtu]:
    said = dict(assignments(files.read_optional(f"{NETWORKD_LINKS}/{index}") or ""))
    path = said.get("NETWORK_FILE", "")
    if not path or said.get("ADMIN_STATE") == "unmanaged":
        return
    folders = tuple(f"{folder}/{path.rpartition('/')[2]}.d" for folder in systemd.NETWORK_FOLDERS)
    takes_leased = ""
    for place in (path, *walk_files(files, folders, ".conf")):
        for _number, section, key, value in sections(foreign(files).read(place)):
            if section in _DHCP_SECTIONS and key == "UseMTU":
                takes_leased = value.lower()
    if takes_leased in systemd.TRUE:
        here = "use-mtu: false in /etc/netplan" if path.startswith(OF_NETPLAN) else f"UseMTU=no in {path}"
        yield from _leased(files, f"{NETWORKD_LEASES}/{index}", ("", "MTU"), NETWORKD, f"set {here}")


def _of_manager_lease(files: Files, index: str) -> Iterator[StatedMtu]:
    device = f"{MANAGER_DEVICES}/{index}"
    uuid = dict(assignments(files.read_optional(device) or "")).get("connection-uuid", "")
    if uuid:
        keep_out = f"give the connection {uuid} an mtu of its own by nmcli"
        yield from _leased(files, device, ("dhcp4", "dhcp4.interface_mtu"), NETWORK_MANAGER, keep_out)


def _leased(files: Files, path: str, place: Tuple[str, str], owner: str, keep_out: str) -> Iterator[StatedMtu]:
    for number, section, key, value in sections(files.read_optional(path) or ""):
        if (section, key) == place and _MTU.fullmatch(value) and int(value):
            yield StatedMtu(owner, path, number, int(value), keep_out)


def _of_dhclient(files: Files, name: str) -> Iterator[StatedMtu]:
    """What the last lease says; dhclient appends them."""
    if not _is_dhcp_of_ifupdown(files, name):
        return
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


def _is_dhcp_of_ifupdown(files: Files, name: str) -> bool:
    up = (line.partition("=")[0] for line in (files.read_optional(IFUPDOWN_STATE) or "").splitlines())
    if name not in up:
        return False
    paths = (IFUPDOWN_FILES, *(f"{IFUPDOWN_FOLDER}/{entry}" for entry in files.names(IFUPDOWN_FOLDER)))
    lines = (line.split() for path in paths for line in foreign(files).read(path).splitlines())
    return any(words == ["iface", name, "inet", "dhcp"] for words in lines)
