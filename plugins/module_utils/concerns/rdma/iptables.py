# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of iptables as ``iptables -S`` prints them, see iptables-extensions(8)."""

from __future__ import annotations

import shlex
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from . import verdicts
from .job_ports import bounds_of
from .verdicts import ALL, NONE, SOME, Branch, Packets

TARGETS = {"ACCEPT": verdicts.ACCEPT, "DROP": verdicts.DROP, "REJECT": verdicts.DROP, "RETURN": verdicts.RETURN}
# After these the next rule comes. Any other target is a chain, or one that ends it.
GOES_ON = (
    "LOG",
    "NFLOG",
    "ULOG",
    "MARK",
    "CONNMARK",
    "SECMARK",
    "CONNSECMARK",
    "SET",
    "AUDIT",
    "TRACE",
    "TCPMSS",
    "CT",
)
# Those that match nothing by themselves, only by options.
MATCHES = ("tcp", "multiport", "comment", "state", "conntrack", "addrtype", "pkttype", "iprange")
Said = Tuple[bool, str, Sequence[str]]


class Table:
    """Reads what is asked of a table, once. ``said`` are the lines of a chain, nothing for one that is not there."""

    def __init__(self, said: Callable[[str], Sequence[str]]) -> None:
        self._said = said
        self._chains: Dict[str, List[List[str]]] = {}

    def policy(self, chain: str) -> str:
        return next((words[2].lower() for words in self._lines(chain) if words[0] == "-P"), "")

    def is_sent_to(self, chain: str, target: str) -> bool:
        return any(words[-2:] == ["-j", target] for words in self._lines(chain))

    def branches(self, packets: Packets, chain: str) -> Iterator[Branch]:
        if not self._lines(chain):
            yield ALL, verdicts.DROP, ""
        for words in self._lines(chain):
            target = next((at for at, word in enumerate(words) if word in ("-j", "-g")), 0)
            if words[0] == "-A" and target and words[target + 1] not in GOES_ON:
                reach = min((_reach(one, packets) for one in _options(words[2:target])), default=ALL)
                sends = verdicts.GOTO if words[target] == "-g" else verdicts.JUMP
                yield reach, TARGETS.get(words[target + 1], sends), words[target + 1]

    def _lines(self, chain: str) -> List[List[str]]:
        if chain not in self._chains:
            self._chains[chain] = [
                words for words in map(shlex.split, self._said(chain)) if words[:1] != ["#"] and words
            ]
        return self._chains[chain]


def _options(words: Sequence[str]) -> Iterator[Said]:
    """Each with whether it is negated and its values. A comment may look like an option."""
    at = 0
    while at < len(words):
        is_negated = words[at] == "!"
        at += is_negated
        option, first = words[at] if at < len(words) else "", at + 1
        at = first + (option == "--comment")
        while at < len(words) and not words[at].startswith("-") and words[at] != "!":
            at += 1
        yield is_negated, option, words[first:at]


def _reach(said: Said, packets: Packets) -> int:
    is_negated, option, values = said
    read = OPTIONS.get(option)
    reach = read(values, packets) if read is not None and values else SOME
    return verdicts.opposite(reach) if is_negated else reach


def _listed(values: Sequence[str]) -> List[str]:
    return values[0].split(",")


def _of_source(values: Sequence[str], packets: Packets) -> int:
    return verdicts.of_source(values[0], packets.rule)


def _of_destination(values: Sequence[str], _packets: Packets) -> int:
    return verdicts.of_destination(values[0])


def _of_ports(values: Sequence[str], packets: Packets) -> int:
    ranges = [bounds_of(part.replace(":", "-")) for part in _listed(values)]
    return max(verdicts.of_bounds(packets.rule.bounds, bounds) for bounds in ranges)


def _of_state(values: Sequence[str], packets: Packets) -> int:
    """Of what is not a state but how an address was translated, nothing is known."""
    known = {"NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED"}
    if packets.state.upper() in _listed(values):
        return ALL
    return NONE if known.issuperset(_listed(values)) else SOME


def _of_protocol(values: Sequence[str], _packets: Packets) -> int:
    return ALL if values[0] in ("tcp", "all") else NONE


def _of_interface(values: Sequence[str], _packets: Packets) -> int:
    """What other nodes send does not come through the loopback device."""
    return NONE if values[0] == "lo" else SOME


def _of_flags(values: Sequence[str], packets: Packets) -> int:
    mask, wanted = (frozenset(value.lower().split(",")) - {"none"} for value in values)
    return verdicts.of_flags(lambda flags: flags & mask == wanted, packets.state)


def _of_type(values: Sequence[str], _packets: Packets) -> int:
    return max(verdicts.equal(one, "LOCAL") for one in _listed(values))


def _of_cast(values: Sequence[str], _packets: Packets) -> int:
    return NONE if values[0] in ("broadcast", "multicast") else SOME


def _of_module(values: Sequence[str], _packets: Packets) -> int:
    return ALL if values[0] in MATCHES else SOME


def _of_comment(_values: Sequence[str], _packets: Packets) -> int:
    return ALL


OPTIONS: Dict[str, Callable[[Sequence[str], Packets], int]] = {
    "-s": _of_source,
    "-d": _of_destination,
    "-p": _of_protocol,
    "-i": _of_interface,
    "-m": _of_module,
    "--comment": _of_comment,
    "--dport": _of_ports,
    "--dports": _of_ports,
    "--state": _of_state,
    "--ctstate": _of_state,
    "--tcp-flags": _of_flags,
    "--dst-type": _of_type,
    "--pkt-type": _of_cast,
    "--src-range": _of_source,
}
