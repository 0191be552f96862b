# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connection that a run comes by, and the interfaces that it passes on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, FrozenSet, Iterator, Optional

from ..._core.value import frozen
from . import links

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

VARIABLE = "SSH_CONNECTION="
SECONDS = 10.0
# How a socket of IPv6 calls an address of IPv4.
MAPPED = "::ffff:"
# sudo, su and shells lie between us and the process that sshd started; far fewer than this.
MOST_PARENTS = 64


@frozen
class Login:
    """``connection`` is what sshd says of it: the client's address and port, and ours. ``interfaces`` are those that
    its packets pass, with the ports of a bond or a bridge; None where that cannot be told.
    """

    connection: str
    interfaces: Optional[FrozenSet[str]] = None

    def passes(self, interface: str) -> bool:
        """Whether it passes this interface. What cannot be told may cut the node off, so then it does."""
        return self.interfaces is None or interface in self.interfaces


def read_connection(files: Files) -> str:
    """The connection over which this run came; empty where it came by none, as from the boot service.

    sudo takes the variable from the environment, so that of the processes above us is read.
    """
    return next((text for text in _of_parents(files) if text), "")


def _of_parents(files: Files) -> Iterator[str]:
    process = "self"
    for _generation in range(MOST_PARENTS):
        try:
            variables = (files.read_optional(f"/proc/{process}/environ") or "").split("\0")
            status = files.read_optional(f"/proc/{process}/status") or ""
        except OSError:
            # One that has ended meanwhile, or that we may not read because we are not root.
            return
        found = next((text[len(VARIABLE) :] for text in variables if text.startswith(VARIABLE)), "")
        yield found if len(found.split()) == 4 else ""
        parent = next((line.split()[1] for line in status.splitlines() if line.startswith("PPid:")), "0")
        if parent == "0":
            return
        process = parent


def locate(host: Host, connection: str) -> Optional[Login]:
    """The interfaces of this connection: that with our address, that of the way back, and all below them.

    None where there is no connection.
    """
    if not connection:
        return None
    client, server = (_plain(address) for address in connection.split()[::2])
    found = set()
    for entry in _ask(host, "addr", "show"):
        if any(address.get("local") == server for address in entry.get("addr_info", ())):
            found.add(str(entry["ifname"]))
    for entry in _ask(host, "route", "get", client):
        if entry.get("dev"):
            found.add(str(entry["dev"]))
    if not found:
        return Login(connection)
    # A login from the machine itself passes no card.
    return Login(connection, frozenset(links.below(host.files, found - {"lo"})))


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
