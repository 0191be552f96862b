# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Input chains that neither firewalld nor ufw has made, and which of them may drop the connections of jobs.

They are read with nft(8), and those of iptables with iptables(8), because nft does not show what its extensions match.
Chains, sets and maps to which they lead are read too. A match that is not understood, such as of an interface, a mark
or a limit, may drop them, unless a rule before it accepts all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Container, Iterator, List, Mapping, Sequence, Tuple

from ..._core.errors import CannotLook
from . import iptables, nftables, verdicts
from .job_ports import Rule
from .rulesets import FIREWALLD, SECONDS, UFW, list_chain, output_of

if TYPE_CHECKING:
    from ..._core.protocols import Host

FILTER, INPUT = "filter", "INPUT"
# For IPv4 and IPv6: the program of iptables, and where the kernel lists the tables of the legacy one.
PROGRAMS = {False: ("iptables", "/proc/net/ip_tables_names"), True: ("ip6tables", "/proc/net/ip6_tables_names")}
# With its backend for iptables, firewalld has a chain of its own to which INPUT jumps.
CHAIN_OF_FIREWALLD = "INPUT_ZONES"
REASON = "it may drop these connections, and neither firewalld nor ufw manages it; {}"
Blocking = Tuple[str, Rule, str]


def read(host: Host, rules: Sequence[Rule], managed: Container[str]) -> List[Blocking]:
    """The name of each chain that may drop the connections of a rule, that rule, and the reason with what to add.

    ``managed`` are the firewalls that run, whose own chains are not read. Raises ``CannotLook`` where a program fails.
    """
    has_nft = host.commands.find(nftables.NFT) is not None
    found = list(_blocking_in_nft(host, rules, managed)) if has_nft else []
    for is_ipv6, (program, tables) in PROGRAMS.items():
        # nft lists the chains of iptables as well, but not those of the legacy one.
        is_legacy = FILTER in (host.files.read_optional(tables) or "").split()
        if UFW in managed or (has_nft and not is_legacy):
            continue
        legacy = f"{program}-legacy"
        name = legacy if is_legacy and host.commands.find(legacy) is not None else program
        asked = [rule for rule in rules if rule.is_ipv6 == is_ipv6]
        if asked and host.commands.find(name) is not None:
            found += _blocking_in_iptables(host, name, asked, managed)
    return found


def _blocking_in_nft(host: Host, rules: Sequence[Rule], managed: Container[str]) -> Iterator[Blocking]:
    for entry in nftables.listed(host, "chains"):
        chain = entry.get("chain", {})
        if chain.get("hook") == "input" and chain.get("type") == FILTER and not _is_managed(chain, managed):
            family = chain["family"]
            asked = [rule for rule in rules if family in ("inet", "ip6" if rule.is_ipv6 else "ip")]
            yield from _blocking_in_chain(host, chain, asked, managed)


def _blocking_in_chain(
    host: Host, chain: Mapping[str, Any], rules: Sequence[Rule], managed: Container[str]
) -> Iterator[Blocking]:
    family, table, name = chain["family"], chain["table"], chain["name"]
    read = nftables.Table(host, family, table)
    blocking = [rule for rule in rules if verdicts.drops(rule, chain.get("policy", ""), name, read.branches)]
    program = PROGRAMS[family == "ip6"][0]
    if read.has_extension and host.commands.find(program) is not None:
        try:
            yield from _blocking_in_iptables(host, program, rules, managed, table)
            return
        except CannotLook:
            # It does not print a chain into which nft(8) has put a rule, so that what nft shows has to do.
            pass
    for rule in blocking:
        put = f"put at its top: {'ip6' if rule.is_ipv6 else 'ip'} saddr {rule.network} tcp dport {rule.ports} accept"
        yield f"chain {family} {table} {name}", rule, REASON.format(put)


def _is_managed(chain: Mapping[str, Any], managed: Container[str]) -> bool:
    if chain["table"] == FIREWALLD:
        return FIREWALLD in managed
    return UFW in managed and (chain["table"], chain["name"]) == (FILTER, INPUT) and chain["family"] in ("ip", "ip6")


def _blocking_in_iptables(
    host: Host, program: str, rules: Sequence[Rule], managed: Container[str], table: str = FILTER
) -> List[Blocking]:
    of_table = () if table == FILTER else ("-t", table)

    def lines_of(chain: str) -> Sequence[str]:
        """A target that is no chain is one of an extension, of which nobody here knows whether it drops."""
        argv = list_chain(program, chain, *of_table)
        if chain == INPUT:
            return output_of(host, argv).splitlines()
        return host.commands.run(argv, timeout=SECONDS).output.splitlines()

    read = iptables.Table(lines_of)
    policy = read.policy(INPUT)
    if FIREWALLD in managed and read.is_sent_to(INPUT, CHAIN_OF_FIREWALLD):
        return []
    words = " ".join((program, *of_table))
    found: List[Blocking] = []
    for rule in rules:
        if verdicts.drops(rule, policy, INPUT, read.branches):
            ports = rule.ports.replace("-", ":")
            put = f"run {words} -I {INPUT} -s {rule.network} -p tcp --dport {ports} -j ACCEPT, and save the rules"
            found.append((f"chain {INPUT} of {words}", rule, REASON.format(put)))
    return found
