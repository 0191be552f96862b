# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules that ufw has for ports of jobs: in its files, and in the chain of iptables that it makes of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Sequence

from ..._core.change import RunCommand
from ..._core.regex import regex
from .job_ports import Rule
from .places import UFW, Place

if TYPE_CHECKING:
    from ..._core.protocols import Host

CONFIGURATION, DEFAULTS = "/etc/ufw/ufw.conf", "/etc/default/ufw"
# By whether it is of IPv6: the file, the program that shows the chain, and the chain.
KEPT = {
    False: ("/etc/ufw/user.rules", "iptables", "ufw-user-input"),
    True: ("/etc/ufw/user6.rules", "ip6tables", "ufw6-user-input"),
}
# What stands in the file for all addresses of this node, and how a network of one address ends, which it leaves out.
ANYWHERE = {False: ("0.0.0.0/0", "/32"), True: ("::/0", "/128")}
SECONDS = 30.0
# How long iptables waits for another that is at work.
LOCK_SECONDS = "5"
COMMENT = "gpufleet"
NO_IPV6 = f"with IPV6=no ufw lets nothing in by IPv6; set IPV6=yes in {DEFAULTS}"
_ENABLED = regex(r"^\s*ENABLED\s*=\s*[\"']?yes\b", re.IGNORECASE | re.MULTILINE)
_WITHOUT_IPV6 = regex(r"^\s*IPV6\s*=\s*[\"']?no\b", re.IGNORECASE | re.MULTILINE)


def read(host: Host, rules: Sequence[Rule], *, had_rules: bool) -> List[Place]:
    """It, where it is enabled or has rules of ours."""
    enabled = _ENABLED.search(host.files.read_optional(CONFIGURATION) or "") is not None
    if not (enabled or had_rules) or host.commands.find(UFW) is None:
        return []
    effective: List[str] = []
    boot: List[str] = []
    for is_ipv6, (path, program, chain) in KEPT.items():
        asked = [rule for rule in rules if rule.is_ipv6 == is_ipv6]
        if not asked:
            continue
        kept = [line.split(" comment=")[0] for line in (host.files.read_optional(path) or "").splitlines()]
        boot += [rule.setting for rule in asked if _kept(rule) in kept]
        shown = _chain(host, program, chain) if enabled else []
        effective += [rule.setting for rule in asked if _shown(rule, chain) in shown]
    lacks = NO_IPV6 if _WITHOUT_IPV6.search(host.files.read_optional(DEFAULTS) or "") else ""
    return [Place(UFW, tuple(effective), tuple(boot), runs=enabled, counts=enabled, lacks_ipv6=lacks)]


def _chain(host: Host, program: str, chain: str) -> List[str]:
    """Nothing where there is no such chain, because somebody has flushed what ufw had made."""
    if host.commands.find(program) is None:
        return []
    return host.commands.run((program, "-w", LOCK_SECONDS, "-S", chain), timeout=SECONDS).output.splitlines()


def _kept(rule: Rule) -> str:
    """As it stands in the file, without the comment."""
    anywhere, single = ANYWHERE[rule.is_ipv6]
    network = rule.network[: -len(single)] if rule.network.endswith(single) else rule.network
    return f"### tuple ### allow tcp {_ports(rule)} {anywhere} any {network} in"


def _shown(rule: Rule, chain: str) -> str:
    """As iptables shows it."""
    ports = f"multiport --dports {_ports(rule)}" if "-" in rule.ports else f"tcp --dport {rule.ports}"
    return f"-A {chain} -s {rule.network} -p tcp -m {ports} -j ACCEPT"


def _ports(rule: Rule) -> str:
    return rule.ports.replace("-", ":")


def change(rule: Rule, *, add: bool) -> RunCommand:
    """What changes its files, and the chain where it is enabled. The rule comes before those that deny."""
    words = ("allow", "proto", "tcp", "from", rule.network, "to", "any", "port", _ports(rule))
    if add:
        return RunCommand((UFW, "prepend", *words, "comment", COMMENT), f"let {rule.setting} in", SECONDS)
    return RunCommand((UFW, "delete", *words), f"take the rule for {rule.setting} away", SECONDS)


def reload() -> RunCommand:
    """What makes the chain anew of the files."""
    return RunCommand((UFW, "reload"), "put the rules of ufw in effect", SECONDS)
