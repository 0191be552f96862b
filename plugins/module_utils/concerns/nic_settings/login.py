# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connection that a run comes by, and the interfaces that it passes on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, FrozenSet, Iterator, Optional, Tuple

from ..._core.value import frozen
from . import links

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

VARIABLE = "SSH_CONNECTION="
SECONDS = 10.0
# How a socket of IPv6 calls an address of IPv4.
MAPPED = "::ffff:"
LINK_LOCAL = "fe80:"
# sudo, su and shells lie between us and the process that sshd started; far fewer than this.
MOST_PARENTS = 64


@frozen
class Connection:
    """``text`` is what sshd says of it: the client's address and port, and ours. ``started`` is when it was made, in
    hundredths of a second since the boot; None where that cannot be told.
    """

    text: str
    started: Optional[int] = None


@frozen
class Login:
    """A connection, and the interfaces that its packets pass, with the ports of a bond or a bridge; None where that
    cannot be told.
    """

    connection: Connection
    interfaces: Optional[FrozenSet[str]] = None

    def passes(self, interface: str) -> bool:
        """Whether it passes this interface. What cannot be told may cut the node off, so then it does."""
        return self.interfaces is None or interface in self.interfaces


def read_connection(files: Files) -> Optional[Connection]:
    """The connection over which this run came; None where it came by none, as from the boot service.

    sudo takes the variable from the environment, so that of the processes above us is read. The first above those that
    have it is the sshd of this connection, which began with it, whatever shares the connection since.
    """
    text = ""
    for found, started in _ancestors(files):
        if text and found != text:
            return Connection(text, started)
        text = text or found
    return Connection(text) if text else None


def _ancestors(files: Files) -> Iterator[Tuple[str, Optional[int]]]:
    """Of ourselves and each process above us: the connection in its environment, and when it started."""
    process = "self"
    for _generation in range(MOST_PARENTS):
        # proc(5): the name comes in parentheses, and may have some itself; the third field follows.
        fields = (files.read_optional(f"/proc/{process}/stat") or "").rpartition(")")[2].split()
        started = int(fields[19]) if len(fields) > 19 else None
        try:
            variables = (files.read_optional(f"/proc/{process}/environ") or "").split("\0")
            status = files.read_optional(f"/proc/{process}/status") or ""
        except OSError:
            # One that has ended meanwhile, or that we may not read because we are not root.
            yield "", started
            return
        found = next((text[len(VARIABLE) :] for text in variables if text.startswith(VARIABLE)), "")
        yield found if len(found.split()) == 4 else "", started
        parent = next((line.split()[1] for line in status.splitlines() if line.startswith("PPid:")), "0")
        if parent == "0":
            return
        process = parent


def now(files: Files) -> Optional[int]:
    """In hundredths of a second since the boot, as the kernel has the start of a process."""
    text = (files.read_optional("/proc/uptime") or "").partition(" ")[0].replace(".", "")
    return int(text) if text.isdecimal() else None


def locate(host: Host, connection: Optional[Connection]) -> Optional[Login]:
    """The interfaces of this connection: that with our address, that of the way back, and all below them.

    None where there is no connection.
    """
    if connection is None:
        return None
    client, server = (_plain(address) for address in connection.text.split()[::2])
    ours = {
        str(entry["ifname"])
        for entry in _ask(host, "addr", "show")
        if any(address.get("local") == server for address in entry.get("addr_info", ()))
    }
    back = {str(entry["dev"]) for entry in _ask(host, "route", "get", client) if entry.get("dev")}
    # That of a link-local address goes out where it came in.
    if not ours or not (back or client.startswith(LINK_LOCAL)):
        return Login(connection)
    interfaces = [links.below(host.files, {name}) for name in ours | back]
    # A tunnel, a switch of Open vSwitch or an address of the loopback interface has a card that nothing here names.
    if not all(any(links.is_card(host.files, name) for name in found) for found in interfaces):
        return Login(connection)
    return Login(connection, frozenset().union(*interfaces))


def _plain(address: str) -> str:
    """An address without the interface that belongs to a link-local one, and IPv4 as such."""
    plain = address.partition("%")[0]
    return plain[len(MAPPED) :] if plain.startswith(MAPPED) and "." in plain else plain


def _ask(host: Host, *arguments: str) -> Iterator[dict]:  # type: ignore[type-arg]
    try:
        completed = host.commands.run(("ip", "-json", *arguments), timeout=SECONDS)
        document = json.loads(completed.output) if completed.status == 0 else []
    except (FileNotFoundError, ValueError):
        return
    yield from (entry for entry in document if isinstance(entry, dict))
