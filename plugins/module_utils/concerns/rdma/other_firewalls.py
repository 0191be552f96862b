# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chains through which connections come and that neither firewalld nor ufw has made, and whether they let jobs in.

They are read from nft(8), and those of iptables from iptables(8), since nft does not show what its extensions match.
Only what stands in the chain itself is understood: rules for addresses, ports, TCP, and connections that are new. A
chain that jumps elsewhere, or asks a named set, and drops what comes back is said to be closed.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Mapping, Sequence, Tuple

from ..._core.errors import CannotLook
from .job_ports import Rule, bounds_of, is_within
from .places import FIREWALLD, UFW

if TYPE_CHECKING:
    from ..._core.protocols import Host

NFT = "nft"
FILTER, INPUT = "filter", "INPUT"
# What nft shows of an extension of iptables is its name.
EXTENSION = "xt"
SECONDS = 30.0
LOCK_SECONDS = "5"
# By the family of a rule: the program of iptables, and where the kernel lists the tables that are not of nftables.
PROGRAMS = {False: ("iptables", "/proc/net/ip_tables_names"), True: ("ip6tables", "/proc/net/ip6_tables_names")}
ENDS = ("drop", "reject")
# What a rule may say beside the match without any effect on who is let in.
BESIDE = ("counter", "comment", "log")
# Where it uses iptables, its own chain is one that INPUT jumps to.
OF_FIREWALLD = "INPUT_ZONES"
REASON = "it drops these connections, and neither firewalld nor ufw has made it; {}"
Closed = Tuple[str, Rule, str]


def read(host: Host, rules: Sequence[Rule], managed: Sequence[str]) -> List[Closed]:
    """The name of each chain that lets a rule's connections not in, the rule, and what helps.

    ``managed`` are the firewalls that run and answer for their own chains. Raises ``CannotLook`` where a program fails.
    """
    has_nft = host.commands.find(NFT) is not None
    found = list(_closed_by_nft(host, rules, managed)) if has_nft else []
    for is_ipv6, (program, tables) in PROGRAMS.items():
        # With nft a chain of iptables was found already, unless the kernel has its tables apart.
        is_apart = FILTER in (host.files.read_optional(tables) or "").split()
        if UFW in managed or (has_nft and not is_apart):
            continue
        apart = f"{program}-legacy"
        name = apart if is_apart and host.commands.find(apart) is not None else program
        found += _closed_by_iptables(host, name, [rule for rule in rules if rule.is_ipv6 == is_ipv6], managed)
    return found


def _said(host: Host, argv: Tuple[str, ...]) -> str:
    completed = host.commands.run(argv, timeout=SECONDS)
    if completed.status != 0:
        cause = (completed.errors or completed.output).strip() or f"exit status {completed.status}"
        raise CannotLook("read the firewall with {}", object=" ".join(argv), cause=cause)
    return completed.output


# --- nftables ---------------------------------------------------------------------------------------------------------


def _listed(host: Host, *words: str) -> Iterator[Mapping[str, Any]]:
    argv = (NFT, "-j", "list", *words)
    try:
        yield from json.loads(_said(host, argv))["nftables"]
    except (ValueError, KeyError, TypeError) as error:
        raise CannotLook("read the firewall with {}", object=" ".join(argv), cause="it did not print JSON") from error


def _closed_by_nft(host: Host, rules: Sequence[Rule], managed: Sequence[str]) -> Iterator[Closed]:
    for entry in _listed(host, "chains"):
        chain = entry.get("chain", {})
        if chain.get("hook") != "input" or chain.get("type") != FILTER or _is_managed(chain, managed):
            continue
        family, table, name = chain["family"], chain["table"], chain["name"]
        asked = [rule for rule in rules if family in ("inet", "ip6" if rule.is_ipv6 else "ip")]
        there = [one["rule"]["expr"] for one in _listed(host, "chain", family, table, name) if "rule" in one]
        if any(EXTENSION in expression for expressions in there for expression in expressions):
            yield from _closed_by_iptables(host, PROGRAMS[family == "ip6"][0], asked, managed)
            continue
        for rule in asked:
            if _drops(chain.get("policy"), rule, there):
                put = f"add to it: {'ip6' if rule.is_ipv6 else 'ip'} saddr {rule.network} tcp dport {rule.ports} accept"
                yield f"chain {family} {table} {name}", rule, REASON.format(put)


def _is_managed(chain: Mapping[str, Any], managed: Sequence[str]) -> bool:
    if chain["table"] == FIREWALLD:
        return FIREWALLD in managed
    return UFW in managed and (chain["table"], chain["name"]) == (FILTER, INPUT) and chain["family"] in ("ip", "ip6")


def _drops(policy: object, rule: Rule, there: Iterable[Sequence[Mapping[str, Any]]]) -> bool:
    for expressions in there:
        said = [one for one in expressions if not any(word in one for word in BESIDE)]
        if any("accept" in one for one in said) and all(_meets(one, rule) for one in said):
            return False
        if len(said) == 1 and any(word in said[0] for word in ENDS):
            return True
    return policy == "drop"


def _meets(expression: Mapping[str, Any], rule: Rule) -> bool:
    """Whether all connections of a rule meet it; what is not understood is not met."""
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


def _closed_by_iptables(host: Host, program: str, rules: Sequence[Rule], managed: Sequence[str]) -> Iterator[Closed]:
    if not rules or host.commands.find(program) is None:
        return
    lines = _said(host, (program, "-w", LOCK_SECONDS, "-S", INPUT)).splitlines()
    if FIREWALLD in managed and any(OF_FIREWALLD in line for line in lines):
        return
    for rule in rules:
        if _iptables_drops(lines, rule):
            ports = rule.ports.replace("-", ":")
            put = f"run {program} -I {INPUT} -s {rule.network} -p tcp --dport {ports} -j ACCEPT, and save it"
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
            if target == "ACCEPT" and _all_met(said, rule):
                return False
            if target in ("DROP", "REJECT") and not said:
                return True
    return policy == "DROP"


def _all_met(words: Sequence[str], rule: Rule) -> bool:
    """Whether all connections of a rule meet these words of iptables-save(8)."""
    if len(words) % 2:
        return False
    return all(_is_met(option, value, rule) for option, value in zip(words[::2], words[1::2]))


def _is_met(option: str, value: str, rule: Rule) -> bool:
    if option == "-s":
        return _contains(value, rule)
    if option in ("--dport", "--dports"):
        ranges = (part.replace(":", "-") for part in value.split(","))
        return any(is_within(rule.bounds, *bounds_of(ports)) for ports in ranges)
    if option in ("--state", "--ctstate"):
        return "NEW" in value.split(",")
    return option in ("-m", "--comment") or (option == "-p" and value == "tcp")
