# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Input chains that neither firewalld nor ufw has made, and which of them drop the connections of jobs.

They are read with nft(8), and those of iptables with iptables(8), because nft does not show what its extensions match.
Only rules in the chain itself are understood, for addresses, ports, TCP and new connections. A chain that accepts in
another chain, or by a named set, and drops the rest counts as blocking.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
from typing import TYPE_CHECKING, Any, Container, Iterable, Iterator, List, Mapping, Sequence, Tuple

from ..._core.errors import CannotLook
from .job_ports import Rule, bounds_of, is_within
from .rulesets import FIREWALLD, UFW, list_chain, output_of

if TYPE_CHECKING:
    from ..._core.protocols import Host

NFT = "nft"
FILTER, INPUT = "filter", "INPUT"
# nft shows the name of an extension of iptables, and not what it matches.
EXTENSION = "xt"
# For IPv4 and IPv6: the program of iptables, and where the kernel lists the tables of the legacy one.
PROGRAMS = {False: ("iptables", "/proc/net/ip_tables_names"), True: ("ip6tables", "/proc/net/ip6_tables_names")}
DROPS = ("drop", "reject")
# Statements of a rule that do not decide what is accepted.
NEUTRAL = ("counter", "comment", "log")
# With its backend for iptables, firewalld has a chain of its own to which INPUT jumps.
CHAIN_OF_FIREWALLD = "INPUT_ZONES"
REASON = "it drops these connections, and neither firewalld nor ufw manages it; {}"
Blocking = Tuple[str, Rule, str]


def read(host: Host, rules: Sequence[Rule], managed: Container[str]) -> List[Blocking]:
    """The name of each chain that drops the connections of a rule, that rule, and the reason with what to add.

    ``managed`` are the firewalls that run, whose own chains are not read. Raises ``CannotLook`` where a program fails.
    """
    has_nft = host.commands.find(NFT) is not None
    found = list(_blocking_in_nft(host, rules, managed)) if has_nft else []
    for is_ipv6, (program, tables) in PROGRAMS.items():
        # nft lists the chains of iptables as well, but not those of the legacy one.
        is_legacy = FILTER in (host.files.read_optional(tables) or "").split()
        if UFW in managed or (has_nft and not is_legacy):
            continue
        legacy = f"{program}-legacy"
        name = legacy if is_legacy and host.commands.find(legacy) is not None else program
        found += _blocking_in_iptables(host, name, [rule for rule in rules if rule.is_ipv6 == is_ipv6], managed)
    return found


# --- nftables ---------------------------------------------------------------------------------------------------------


def _listed(host: Host, *words: str) -> Iterator[Mapping[str, Any]]:
    argv = (NFT, "-j", "list", *words)
    try:
        yield from json.loads(output_of(host, argv))["nftables"]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotLook("read the firewall with {}", object=" ".join(argv), cause="it did not print JSON") from error


def _blocking_in_nft(host: Host, rules: Sequence[Rule], managed: Container[str]) -> Iterator[Blocking]:
    for entry in _listed(host, "chains"):
        chain = entry.get("chain", {})
        if chain.get("hook") != "input" or chain.get("type") != FILTER or _is_managed(chain, managed):
            continue
        family, table, name = chain["family"], chain["table"], chain["name"]
        asked = [rule for rule in rules if family in ("inet", "ip6" if rule.is_ipv6 else "ip")]
        there = [one["rule"]["expr"] for one in _listed(host, "chain", family, table, name) if "rule" in one]
        if any(EXTENSION in expression for expressions in there for expression in expressions):
            yield from _blocking_in_iptables(host, PROGRAMS[family == "ip6"][0], asked, managed)
            continue
        for rule in asked:
            if _drops(chain.get("policy"), rule, there):
                put = f"add to it: {'ip6' if rule.is_ipv6 else 'ip'} saddr {rule.network} tcp dport {rule.ports} accept"
                yield f"chain {family} {table} {name}", rule, REASON.format(put)


def _is_managed(chain: Mapping[str, Any], managed: Container[str]) -> bool:
    if chain["table"] == FIREWALLD:
        return FIREWALLD in managed
    return UFW in managed and (chain["table"], chain["name"]) == (FILTER, INPUT) and chain["family"] in ("ip", "ip6")


def _drops(policy: object, rule: Rule, there: Iterable[Sequence[Mapping[str, Any]]]) -> bool:
    for expressions in there:
        said = [one for one in expressions if not any(word in one for word in NEUTRAL)]
        if any("accept" in one for one in said) and all(_matches(one, rule) for one in said):
            return False
        if len(said) == 1 and any(word in said[0] for word in DROPS):
            return True
    return policy == "drop"


def _matches(expression: Mapping[str, Any], rule: Rule) -> bool:
    """Whether all connections of a rule match an expression; one that is not understood does not match."""
    if "accept" in expression:
        return True
    match = expression.get("match", {})
    left, right = match.get("left", {}), match.get("right")
    if match.get("op") not in ("==", "in") or not isinstance(left, dict):
        return False
    if left.get("ct", {}).get("key") == "state":
        return "new" in _each(right)
    payload, meta = left.get("payload", {}), left.get("meta", {})
    field = payload.get("field") or meta.get("key")
    return any(_has(field, one, rule) for one in _each(right))


def _each(right: object) -> Iterator[object]:
    if isinstance(right, dict) and "set" in right:
        yield from right["set"]
    elif isinstance(right, list):
        yield from right
    else:
        yield right


def _has(field: object, value: Any, rule: Rule) -> bool:
    if field == "dport":
        low, high = value["range"] if isinstance(value, dict) and "range" in value else (value, value)
        return isinstance(low, int) and isinstance(high, int) and is_within(rule.bounds, low, high)
    if field == "saddr":
        prefix = value.get("prefix") if isinstance(value, dict) else None
        return _contains(f"{prefix['addr']}/{prefix['len']}" if prefix else value, rule)
    if field in ("protocol", "nexthdr", "l4proto"):
        return bool(value == "tcp")
    return field == "nfproto" and bool(value == ("ipv6" if rule.is_ipv6 else "ipv4"))


def _contains(network: object, rule: Rule) -> bool:
    inner = ipaddress.ip_network(rule.network)
    try:
        outer = ipaddress.ip_network(network) if isinstance(network, str) else None
    except ValueError:
        return False
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


# --- iptables ---------------------------------------------------------------------------------------------------------


def _blocking_in_iptables(
    host: Host, program: str, rules: Sequence[Rule], managed: Container[str]
) -> Iterator[Blocking]:
    if not rules or host.commands.find(program) is None:
        return
    lines = output_of(host, list_chain(program, INPUT)).splitlines()
    if FIREWALLD in managed and any(CHAIN_OF_FIREWALLD in line for line in lines):
        return
    for rule in rules:
        if _iptables_drops(lines, rule):
            match = f"-s {rule.network} -p tcp --dport {rule.colon_ports}"
            put = f"run {program} -I {INPUT} {match} -j ACCEPT, and save the rules"
            yield f"chain {INPUT} of {program}", rule, REASON.format(put)


def _iptables_drops(lines: Sequence[str], rule: Rule) -> bool:
    policy = ""
    for line in lines:
        words = shlex.split(line)
        if words[:1] == ["-P"]:
            policy = words[-1]
        elif words[:2] == ["-A", INPUT] and "-j" in words:
            at = words.index("-j")
            target, said = words[at + 1], words[2:at]
            if target == "ACCEPT" and _all_match(said, rule):
                return False
            if target in ("DROP", "REJECT") and not said:
                return True
    return policy == "DROP"


def _all_match(words: Sequence[str], rule: Rule) -> bool:
    """Whether all connections of a rule match these options of iptables(8)."""
    if len(words) % 2:
        return False
    return all(_option_matches(option, value, rule) for option, value in zip(words[::2], words[1::2]))


def _option_matches(option: str, value: str, rule: Rule) -> bool:
    if option == "-s":
        return _contains(value, rule)
    if option in ("--dport", "--dports"):
        ranges = (part.replace(":", "-") for part in value.split(","))
        return any(is_within(rule.bounds, *bounds_of(ports)) for ports in ranges)
    if option in ("--state", "--ctstate"):
        return "NEW" in value.split(",")
    return option in ("-m", "--comment") or (option == "-p" and value == "tcp")
