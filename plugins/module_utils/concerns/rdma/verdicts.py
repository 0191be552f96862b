# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a match of a firewall reaches the connections of a rule, and where a chain sends them.

What is not understood reaches some of them, so that a chain may be said to be closed that is open, and never the other
way round. Of two matches the lower holds for both (``min``), the higher for either (``max``).
"""

from __future__ import annotations

import ipaddress
from typing import Callable, Dict, FrozenSet, Iterable, Sequence, Tuple, Union

from ..._core.value import frozen
from .job_ports import Rule

NONE, SOME, ALL = 0, 1, 2
ACCEPT, DROP, RETURN, JUMP, GOTO = "accept", "drop", "return", "jump", "goto"
OPEN, CLOSED, PASSES = "open", "closed", "passes"
NEW, ESTABLISHED = "new", "established"
# How far a rule of a chain reaches, what it does then, and the chain to which it sends.
Branch = Tuple[int, str, str]
Bounds = Tuple[int, int]
# The flags of TCP that packets of a connection have: the first one with and without ECN, and all later ones.
FLAGS = {
    NEW: ({"syn"}, {"syn", "ece", "cwr"}),
    ESTABLISHED: ({"ack"}, {"ack", "psh"}, {"ack", "fin"}, {"ack", "psh", "fin"}, {"rst"}, {"rst", "ack"}),
}
# Nothing that another node sends by TCP goes there.
NO_DESTINATIONS = ("127.0.0.0/8", "224.0.0.0/4", "255.255.255.255/32", "::1/128", "ff00::/8")


@frozen
class Packets:
    """Those of the connections of a rule, the first ones or all that follow: both have to come in."""

    rule: Rule
    state: str

    @property
    def protocol(self) -> str:
        return "ip6" if self.rule.is_ipv6 else "ip"


def drops(rule: Rule, policy: str, chain: str, branches: Callable[[Packets, str], Iterable[Branch]]) -> bool:
    """Whether a chain with this policy may drop any packet of a connection of the rule."""
    for state in (NEW, ESTABLISHED):
        packets = Packets(rule, state)
        found = _follow(chain, lambda name, of=packets: branches(of, name), {})  # type: ignore[misc]
        if found == CLOSED or (found == PASSES and policy == DROP):
            return True
    return False


def _follow(chain: str, branches: Callable[[str], Iterable[Branch]], known: Dict[str, str]) -> str:
    """``OPEN`` where all is accepted, ``CLOSED`` where some may be dropped, ``PASSES`` where it comes out at the end.

    To many a chain others send more than once, so that what is ``known`` of it is kept.
    """
    if chain not in known:
        known[chain] = _found(chain, branches, known)
    return known[chain]


def _found(chain: str, branches: Callable[[str], Iterable[Branch]], known: Dict[str, str]) -> str:
    some_returned = False
    for reach, verdict, target in branches(chain):
        does = _after(verdict, target, branches, known) if reach != NONE else ""
        if does == DROP:
            return CLOSED
        if does and reach == ALL:
            return OPEN if does == ACCEPT and not some_returned else PASSES
        some_returned = some_returned or does == RETURN
    return PASSES


def _after(verdict: str, target: str, branches: Callable[[str], Iterable[Branch]], known: Dict[str, str]) -> str:
    if verdict not in (JUMP, GOTO):
        return verdict
    there = _follow(target, branches, known)
    return {OPEN: ACCEPT, CLOSED: DROP}.get(there, RETURN if verdict == GOTO else "")


def opposite(reach: int) -> int:
    return ALL - reach


def equal(value: object, to: object) -> int:
    return ALL if value == to else NONE


def of_bounds(inner: Bounds, outer: Bounds) -> int:
    if outer[0] <= inner[0] and inner[1] <= outer[1]:
        return ALL
    return NONE if inner[1] < outer[0] or outer[1] < inner[0] else SOME


def of_source(value: object, rule: Rule) -> int:
    """Of an address, a network, or addresses such as ``10.20.0.1-10.20.0.9``."""
    return _of_addresses(value, rule.network)


def of_destination(value: object) -> int:
    return NONE if any(_of_addresses(outer, value) == ALL for outer in NO_DESTINATIONS) else SOME


def _of_addresses(outer: object, inner: object) -> int:
    try:
        version, wide = _addresses(outer)
        other, narrow = _addresses(inner)
    except ValueError:
        return SOME
    return of_bounds(narrow, wide) if version == other else NONE


def _addresses(value: object) -> Tuple[int, Bounds]:
    """The version of IP, and the first and the last address as numbers. Raises ``ValueError``."""
    text = str(value)
    first, dash, last = text.partition("-")
    if dash:
        ends = ipaddress.ip_address(first), ipaddress.ip_address(last)
        return ends[0].version, (int(ends[0]), int(ends[1]))
    network: Union[ipaddress.IPv4Network, ipaddress.IPv6Network] = ipaddress.ip_network(text)
    return network.version, (int(network.network_address), int(network.broadcast_address))


def of_flags(meets: Callable[[FrozenSet[str]], bool], state: str) -> int:
    """Of what is asked of the flags of TCP."""
    return of_all([meets(frozenset(flags)) for flags in FLAGS[state]])


def of_all(met: Sequence[bool]) -> int:
    return ALL if all(met) else SOME if any(met) else NONE
