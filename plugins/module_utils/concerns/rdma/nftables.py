# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chains, sets and maps of a table of nftables as nft(8) prints them in JSON, see libnftables-json(5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Tuple

from ..._core.errors import CannotLook
from . import verdicts
from .iptables import GOES_ON
from .rulesets import output_of
from .verdicts import ALL, NONE, SOME, Branch, Packets

if TYPE_CHECKING:
    from ..._core.protocols import Host

NFT = "nft"
# What nft shows of an extension of iptables is its name.
EXTENSION = "xt"
# What a rule may say beside its matches without any effect on who is let in.
BESIDE = ("counter", "comment", "log", "last", "continue")
# What waits for a program to decide is as good as dropped.
VERDICTS = {
    "accept": verdicts.ACCEPT,
    "drop": verdicts.DROP,
    "reject": verdicts.DROP,
    "queue": verdicts.DROP,
    "return": verdicts.RETURN,
    "jump": verdicts.JUMP,
    "goto": verdicts.GOTO,
}
TCP = ("tcp", 6)
LOOPBACK = "lo"


class Table:
    """Reads what is asked of a table, once."""

    def __init__(self, host: Host, family: str, table: str) -> None:
        self.has_extension = False
        self._host = host
        self._name = (family, table)
        self._chains: Dict[str, List[List[Mapping[str, Any]]]] = {}
        self._elements: Dict[str, List[Any]] = {}

    def branches(self, packets: Packets, chain: str) -> Iterator[Branch]:
        for expressions in self._rules(chain):
            yield from self._of_rule(expressions, packets)

    def _rules(self, chain: str) -> List[List[Mapping[str, Any]]]:
        if chain not in self._chains:
            there = listed(self._host, "chain", *self._name, chain)
            self._chains[chain] = [one["rule"]["expr"] for one in there if "rule" in one]
        return self._chains[chain]

    def _of_rule(self, expressions: Iterable[Mapping[str, Any]], packets: Packets) -> Iterator[Branch]:
        reach = ALL
        for expression in expressions:
            ((word, said),) = expression.items()
            if word in VERDICTS:
                yield reach, *_verdict(expression)
            elif word == "vmap":
                for value, verdict in self._each(said["data"], "map"):
                    yield min(reach, _of_value(said["key"], value, packets)), *_verdict(verdict)
            elif word == EXTENSION:
                self.has_extension = True
                reach = min(reach, SOME)
                if said.get("type") == "target" and said.get("name") not in GOES_ON:
                    yield reach, verdicts.DROP, ""
            elif word not in BESIDE:
                reach = min(reach, self._of_match(said, packets) if word == "match" else SOME)
            if reach == NONE:
                return

    def _of_match(self, match: Mapping[str, Any], packets: Packets) -> int:
        left, right, op = (match[part] for part in ("left", "right", "op"))
        if _is_of_others(left, packets):
            return NONE
        if op not in ("==", "in", "!="):
            return SOME
        if _asks_flags(left):
            reach = _of_flags(left, right, op, packets)
        else:
            reach = max((_of_value(left, one, packets) for one in self._each(right)), default=NONE)
        return verdicts.opposite(reach) if op == "!=" else reach

    def _each(self, right: Any, kind: str = "set") -> List[Any]:
        if isinstance(right, str) and right.startswith("@"):
            return self._named(kind, right[1:])
        found = right["set"] if isinstance(right, dict) and "set" in right else right
        return [_plain(one) for one in (found if isinstance(found, list) else [found])]

    def _named(self, kind: str, name: str) -> List[Any]:
        if name not in self._elements:
            there = [one[kind] for one in listed(self._host, kind, *self._name, name) if kind in one]
            self._elements[name] = [_plain(element) for one in there for element in one.get("elem", ())]
        return self._elements[name]


def listed(host: Host, *words: str) -> Iterator[Mapping[str, Any]]:
    """What nft lists. Raises ``CannotLook`` where it fails."""
    argv = (NFT, "-j", "list", *words)
    try:
        yield from json.loads(output_of(host, argv))["nftables"]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotLook("read the firewall with {}", object=" ".join(argv), cause="it did not print JSON") from error


def _verdict(expression: Mapping[str, Any]) -> Tuple[str, str]:
    ((word, said),) = expression.items()
    return VERDICTS.get(word, ""), said["target"] if isinstance(said, dict) and "target" in said else ""


def _plain(element: Any) -> Any:
    """An element of a set without its timeout and counter; one of a map is a pair."""
    if isinstance(element, list) and element:
        return [_plain(element[0]), *element[1:]]
    return element["elem"]["val"] if isinstance(element, dict) and "elem" in element else element


def _is_of_others(left: Any, packets: Packets) -> bool:
    """A match of a header that these packets do not have is never met, whatever it asks."""
    payload = left.get("payload", {}) if isinstance(left, dict) else {}
    protocol = payload.get("protocol", "tcp")
    return protocol not in ("tcp", "th", "ether", "vlan", packets.protocol) and "base" not in payload


def _of_value(left: Any, value: Any, packets: Packets) -> int:
    if not isinstance(left, dict) or len(left) != 1:
        return SOME
    ((kind, what),) = left.items()
    read = {"payload": _of_payload, "meta": _of_meta, "ct": _of_ct, "fib": _of_fib}.get(kind)
    return read(what, value, packets) if read is not None and isinstance(what, dict) else SOME


def _of_payload(what: Mapping[str, Any], value: Any, packets: Packets) -> int:
    protocol, field = what.get("protocol"), what.get("field")
    if protocol in ("tcp", "th") and field == "dport":
        bounds = value["range"] if isinstance(value, dict) and "range" in value else (value, value)
        numbers = all(isinstance(one, int) for one in bounds)
        return verdicts.of_bounds(packets.rule.bounds, (bounds[0], bounds[1])) if numbers else SOME
    if protocol == packets.protocol and field == "saddr":
        return verdicts.of_source(_addresses(value), packets.rule)
    if protocol == packets.protocol and field == "daddr":
        return verdicts.of_destination(_addresses(value))
    return _of_protocol(value) if field in ("protocol", "nexthdr") and protocol == packets.protocol else SOME


def _addresses(value: Any) -> object:
    if isinstance(value, dict) and "prefix" in value:
        return f"{value['prefix']['addr']}/{value['prefix']['len']}"
    if isinstance(value, dict) and "range" in value:
        return "-".join(map(str, value["range"]))
    return value


def _of_protocol(value: Any) -> int:
    return SOME if isinstance(value, dict) else ALL if value in TCP else NONE


def _of_meta(what: Mapping[str, Any], value: Any, packets: Packets) -> int:
    key = what.get("key")
    if key == "l4proto":
        return _of_protocol(value)
    if key == "nfproto":
        return verdicts.equal(value, "ipv6" if packets.rule.is_ipv6 else "ipv4")
    if key == "protocol" and isinstance(value, str):
        return verdicts.equal(value, packets.protocol)
    # What other nodes send does not come through the loopback device.
    is_loopback = key in ("iif", "iifname") and value == LOOPBACK
    return NONE if is_loopback or (key == "pkttype" and value in ("broadcast", "multicast")) else SOME


def _of_ct(what: Mapping[str, Any], value: Any, packets: Packets) -> int:
    return verdicts.equal(value, packets.state) if what.get("key") == "state" and isinstance(value, str) else SOME


def _of_fib(what: Mapping[str, Any], value: Any, _packets: Packets) -> int:
    is_destination = what.get("result") == "type" and what.get("flags") in ("daddr", ["daddr"])
    return verdicts.equal(value, "local") if is_destination and isinstance(value, str) else SOME


def _asks_flags(left: Any) -> bool:
    masked = left["&"][0] if isinstance(left, dict) and "&" in left else left
    return isinstance(masked, dict) and masked.get("payload") == {"protocol": "tcp", "field": "flags"}


def _of_flags(left: Mapping[str, Any], right: Any, op: str, packets: Packets) -> int:
    """Without a mask ``in`` is any of the flags, and the others exactly these."""
    try:
        wanted = _flags(right)
        mask = _flags(left["&"][1]) if "&" in left else None
    except (TypeError, KeyError):
        return SOME
    if op == "in" and mask is None:
        return verdicts.of_flags(lambda flags: bool(flags & wanted), packets.state)
    return verdicts.of_flags(lambda flags: (flags if mask is None else flags & mask) == wanted, packets.state)


def _flags(value: Any) -> FrozenSet[str]:
    """Raises ``TypeError`` or ``KeyError`` for what is no combination of names."""
    if value == 0:
        return frozenset()
    if isinstance(value, str):
        return frozenset([value])
    return frozenset(name for one in (value["|"] if isinstance(value, dict) else value) for name in _flags(one))
