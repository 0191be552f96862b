# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether packets of the size of an MTU reach a peer and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.regex import regex

if TYPE_CHECKING:
    from ..._core.protocols import Completed, Host

PROGRAM = "ping"
NO_ANSWER = "no answer"
# The headers of IPv4 or IPv6, and of ICMP.
HEADERS = {4: 28, 6: 48}
USUAL = 1500
SECONDS = 10.0
_TOO_LONG = regex(r"(?:mtu|mtu ?=) ?([0-9]+)")


def answered(host: Host, interface: str, peer: str, mtu: int) -> str:
    """The largest packets that the peer answers over this interface, ``9000 bytes``, or ``no answer``.

    Packets are not divided on the way. Raises ``FileNotFoundError`` where there is no ping.
    """
    # One packet may be lost: the first to a peer often is, while its address is being resolved.
    said = ""
    for _attempt in range(2):
        completed = _ask(host, interface, peer, mtu)
        if completed.status == 0:
            return size(mtu)
        said += completed.output + completed.errors
    limit = _TOO_LONG.search(said)
    if limit:
        return size(int(limit[1]))
    if mtu > USUAL and _ask(host, interface, peer, USUAL).status == 0:
        return size(USUAL)
    return NO_ANSWER


def size(mtu: int) -> str:
    return f"{mtu} bytes"


def _ask(host: Host, interface: str, peer: str, mtu: int) -> Completed:
    version = 6 if ":" in peer else 4
    payload = str(mtu - HEADERS[version])
    # With -q it would not say which size the network takes.
    argv = (PROGRAM, f"-{version}", "-n", "-c1", "-W1", "-Mdo", f"-s{payload}", "-I", interface, peer)
    return host.commands.run(argv, timeout=SECONDS)
