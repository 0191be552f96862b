# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules for job ports in ufw: in its files, and in the chains of iptables that it makes from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Sequence

from ..._core.change import RunCommand
from ..._core.errors import CannotLook
from ..._core.regex import regex
from .job_ports import Rule
from .rulesets import SECONDS, UFW, Ruleset, list_chain

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

FOLDER = "/etc/ufw"
CONFIGURATION, DEFAULTS = f"{FOLDER}/ufw.conf", "/etc/default/ufw"
# For IPv4 and IPv6: the file with the rules, the program that lists the chain made from it, and the chain.
STORES = {
    False: ("/etc/ufw/user.rules", "iptables", "ufw-user-input"),
    True: ("/etc/ufw/user6.rules", "ip6tables", "ufw6-user-input"),
}
# For IPv4 and IPv6: what the file has for every address of this node, and the prefix length that it leaves out.
ANYWHERE = {False: ("0.0.0.0/0", "/32"), True: ("::/0", "/128")}
COMMENT = "gpufleet"
NO_IPV6 = f"ufw has no rules for IPv6 while IPV6=no; set IPV6=yes in {DEFAULTS}, and run ufw reload"
# As iptables says it: that of the legacy kernel interface, and that of nftables since 1.8.
_MISSING = regex(r"No chain/target/match by that name|is incompatible, use 'nft' tool")
_ENABLED = regex(r"^\s*ENABLED\s*=\s*[\"']?yes\b", re.IGNORECASE | re.MULTILINE)
_WITHOUT_IPV6 = regex(r"^\s*IPV6\s*=\s*[\"']?no\b", re.IGNORECASE | re.MULTILINE)


def read(host: Host, rules: Sequence[Rule], *, had_rules: bool) -> List[Ruleset]:
    """The ruleset of ufw; none where it is neither enabled nor has rules of ours."""
    enabled = _ENABLED.search(host.files.read_optional(CONFIGURATION) or "") is not None
    if not (enabled or had_rules) or host.commands.find(UFW) is None:
        return []
    effective: List[str] = []
    boot: List[str] = []
    for is_ipv6, (path, program, chain) in STORES.items():
        asked = [rule for rule in rules if rule.is_ipv6 == is_ipv6]
        if not asked:
            continue
        stored = _stored(host.files, path)
        boot += [rule.setting for rule in asked if _file_line(rule) in stored]
        shown = _chain(host, program, chain) if enabled else []
        effective += [rule.setting for rule in asked if _chain_line(rule, chain) in shown]
    lacks = NO_IPV6 if _WITHOUT_IPV6.search(host.files.read_optional(DEFAULTS) or "") else ""
    return [Ruleset(UFW, tuple(effective), tuple(boot), running=enabled, active=enabled, lacks_ipv6=lacks)]


def _chain(host: Host, program: str, chain: str) -> List[str]:
    """The lines of a chain; empty where it is missing, because the rules of ufw were flushed.

    Raises ``CannotLook`` where the program is missing, or says neither.
    """
    argv = list_chain(program, chain)
    goal, command = "read the firewall with {}", " ".join(argv)
    if host.commands.find(program) is None:
        raise CannotLook(
            goal, object=command, cause=f"{program} is not installed", hint=f"install {program}, then run again"
        )
    completed = host.commands.run(argv, timeout=SECONDS)
    if completed.status == 1 and _MISSING.search(completed.errors):
        return []
    lines = completed.output.splitlines()
    # A chain that exists begins with its own line.
    if completed.status != 0 or f"-N {chain}" not in lines:
        cause = completed.errors.strip() or f"it does not show the chain {chain}"
        raise CannotLook(goal, object=command, cause=cause)
    return lines


def keeping(files: Files, rule: Rule) -> str:
    """The file with a rule, with or without ufw; empty where none has it."""
    path = STORES[rule.is_ipv6][0]
    return path if _file_line(rule) in _stored(files, path) else ""


def _stored(files: Files, path: str) -> List[str]:
    """The lines of a file with rules, without the comments."""
    return [line.split(" comment=")[0] for line in (files.read_optional(path) or "").splitlines()]


def _file_line(rule: Rule) -> str:
    """The rule as it stands in the file, without the comment."""
    anywhere, single = ANYWHERE[rule.is_ipv6]
    network = rule.network[: -len(single)] if rule.network.endswith(single) else rule.network
    return f"### tuple ### allow tcp {rule.colon_ports} {anywhere} any {network} in"


def _chain_line(rule: Rule, chain: str) -> str:
    """The rule as iptables lists it."""
    ports = f"multiport --dports {rule.colon_ports}" if "-" in rule.ports else f"tcp --dport {rule.ports}"
    return f"-A {chain} -s {rule.network} -p tcp -m {ports} -j ACCEPT"


def change(rule: Rule, *, add: bool) -> RunCommand:
    """Changes the files of ufw, and the chain where it is enabled. The rule comes before those that deny."""
    words = ("allow", "proto", "tcp", "from", rule.network, "to", "any", "port", rule.colon_ports)
    if add:
        return RunCommand(
            (UFW, "prepend", *words, "comment", COMMENT), f"add the rule that accepts {rule.setting}", SECONDS
        )
    return RunCommand((UFW, "delete", *words), f"remove the rule that accepts {rule.setting}", SECONDS)


def reload() -> RunCommand:
    """Makes the chains from the files again."""
    return RunCommand((UFW, "reload"), "put the rules of ufw into effect", SECONDS)
