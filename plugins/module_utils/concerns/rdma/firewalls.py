# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which rules for job ports firewalls have, and the steps that add or remove them.

Rules go into firewalld or ufw, whichever is there, now and for the next boot, by their own programs. Chains that
neither of them made are read and left alone: only their owner knows where in them a rule has to stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core import baseline
from ..._core.change import Change, Step, Unmanaged
from ..._core.errors import CannotLook
from ..._core.planning import boot_change, effective_change, unread
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import field, frozen
from .job_ports import ACCEPT, OPTION, Rule, rule_of
from .rulesets import UFW, Ruleset, is_ruleset, zone_of
from .spec import NAME, RdmaDeclaration

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue, Key
    from ..._core.contract import Scope
    from ..._core.protocols import Host

GONE = "it no longer exists, and neither do its rules"
AT_ONCE = "ufw changes the running system and the next boot together; set both immediate and permanent"


@frozen
class Firewalls:
    """What was seen: ``ports`` are the ephemeral ones, ``rules`` those that are declared.

    ``before`` is what the baseline has of rules that were changed. ``blocking`` are chains of others that drop the
    connections of a rule: the name of the chain, the rule, and the reason with what to add. ``unread`` says why
    rules that were changed could not be read.
    """

    ports: str = ""
    rules: Tuple[Rule, ...] = ()
    before: Mapping[Key, BaselineValue] = field(default_factory=dict)
    rulesets: Tuple[Ruleset, ...] = ()
    blocking: Tuple[Tuple[str, Rule, str], ...] = ()
    unread: Mapping[Key, str] = field(default_factory=dict)


def observe(host: Host, declaration: RdmaDeclaration, scope: Scope) -> Firewalls:
    """Raises ``CannotLook`` where a firewall that runs does not show its rules."""
    before = _before(host, scope)
    declared = None if scope.restoring else declaration.job_ports
    if declared is None and not before:
        return Firewalls()
    from . import firewalld, job_ports, other_firewalls, ufw

    try:
        former = [rule_of(setting) for _identity, setting in before]
    except ValueError as error:
        raise baseline.damaged(NAME, str(error)) from error
    ports = job_ports.ephemeral_ports(host.files)
    rules = job_ports.rules_of(declared, ports) if declared is not None else []
    asked = tuple(dict.fromkeys((*rules, *former)))
    changed = dict.fromkeys(identity for identity, _setting in before)
    zones = [zone_of(identity) for identity in changed if identity != UFW]
    rulesets = firewalld.read(host, asked, zones, stored=scope.permanent)
    rulesets += ufw.read(host, asked, had_rules=UFW in changed)
    there = {one.name for one in rulesets}
    not_read = {key: _why_unread(host, key[0], rule_of(key[1])) for key in before if key[0] not in there}
    managed = {ruleset.firewall for ruleset in rulesets if ruleset.running}
    blocking = other_firewalls.read(host, rules, managed) if rules else []
    return Firewalls(ports, tuple(rules), before, tuple(rulesets), tuple(blocking), not_read)


def _why_unread(host: Host, name: str, rule: Rule) -> str:
    """Why it is not known whether a rule is in effect, although it is kept; empty where it is gone with its ruleset."""
    from . import firewalld, ufw

    program = UFW if name == UFW else firewalld.PROGRAM
    path = ufw.keeping(host.files, rule) if name == UFW else firewalld.keeping(host.files, zone_of(name), rule)
    if host.commands.find(program) is not None or not path:
        return ""
    return f"{program} is not installed, but its rules are still in {path}; remove them there, or install it"


def _before(host: Host, scope: Scope) -> Mapping[Key, BaselineValue]:
    """What the baseline has of firewalls. A declaration goes without, so a damaged one stops only a restore."""
    try:
        known = baseline.load(host.files, NAME).values
    except (OSError, CannotLook):
        if scope.restoring:
            raise
        known = {}
    return {key: value for key, value in known.items() if is_ruleset(key[0])}


def rows(firewalls: Firewalls, scope: Scope) -> Tuple[Tuple[Setting, ...], Tuple[Unmanaged, ...]]:
    """The rules that are wanted or no longer wanted, and those that cannot be managed with the reason."""
    found: List[Setting] = []
    unmanaged = [Unmanaged(chain, rule.setting, reason) for chain, rule, reason in firewalls.blocking]
    there = {ruleset.name: ruleset for ruleset in firewalls.rulesets}
    for ruleset in firewalls.rulesets:
        for setting, wanted in _wanted(ruleset, firewalls).items():
            row = _row(ruleset, setting, wanted, firewalls.before.get((ruleset.name, setting)), scope)
            reason = _reason(ruleset, row, scope)
            if reason:
                unmanaged.append(Unmanaged(ruleset.name, setting, reason))
            else:
                found.append(row)
    if scope.restoring:
        for (name, setting), value in firewalls.before.items():
            reason = firewalls.unread.get((name, setting), "")
            if reason:
                row = unread(name, setting, value.boot, identity=name, reason=reason, immediate=scope.immediate)
                found.append(row)
            elif name not in there:
                unmanaged.append(Unmanaged(name, setting, GONE))
    return tuple(found), tuple(unmanaged)


def _wanted(ruleset: Ruleset, firewalls: Firewalls) -> Dict[str, Scalar]:
    """A zone that is no longer active keeps the declared rules that it has, as an interface may come back to it."""
    declared = [rule.setting for rule in firewalls.rules]
    wanted: Dict[str, Scalar] = {
        setting: ACCEPT for setting in declared if ruleset.active or (ruleset.name, setting) in firewalls.before
    }
    for (name, setting), value in firewalls.before.items():
        if name == ruleset.name and setting not in wanted:
            wanted[setting] = value.boot
    return wanted


def _row(ruleset: Ruleset, setting: str, wanted: Scalar, before: Optional[BaselineValue], scope: Scope) -> Setting:
    # A rule that somebody had added at runtime only, without --permanent, stays in effect.
    stays = wanted is None and before is not None and before.effective == ACCEPT
    return Setting(
        object=ruleset.name,
        setting=setting,
        wanted=wanted,
        effective=ACCEPT if setting in ruleset.effective else None,
        boot=ACCEPT if setting in ruleset.boot else None,
        identity=ruleset.name,
        effective_matters=scope.immediate and ruleset.running and not stays,
        boot_matters=scope.permanent,
    )


def _reason(ruleset: Ruleset, row: Setting, scope: Scope) -> str:
    """Why a rule cannot be set there, or not with this scope; empty where it can."""
    if row.wanted is not None and ruleset.lacks_ipv6 and rule_of(row.setting).is_ipv6:
        return ruleset.lacks_ipv6
    if ruleset.name == UFW and row.boot != row.wanted and not (scope.immediate and scope.permanent):
        return AT_ONCE
    return ""


def steps(firewalls: Firewalls, settings: Sequence[Setting]) -> List[Step]:
    """The next boot comes first: if a run is killed in between, the next run or the next boot completes it."""
    from . import firewalld, ufw

    found: List[Step] = []
    there = {ruleset.name: ruleset for ruleset in firewalls.rulesets}
    reloads: List[Change] = []
    for row in settings:
        if row.status == IN_SYNC or row.pending:
            continue
        rule, is_added = rule_of(row.setting), row.wanted == ACCEPT
        boot = [boot_change(row)] if row.boot_matters and row.boot != row.wanted else []
        now = [effective_change(row)] if row.effective_matters and row.effective != row.wanted else []
        if row.object != UFW:
            zone, running = zone_of(row.object), there[row.object].running
            if boot:
                found.append(Step(firewalld.permanent(zone, rule, add=is_added, running=running), tuple(boot)))
            if now:
                found.append(Step(firewalld.immediate(zone, rule, add=is_added), tuple(now)))
        elif boot:
            found.append(Step(ufw.change(rule, add=is_added), (*boot, *now)))
        else:
            reloads += now
    if reloads:
        found.append(Step(ufw.reload(), tuple(reloads)))
    return found


def shown(firewalls: Firewalls) -> Dict[str, object]:
    """What ``effective`` has of it; nothing where it is not declared."""
    if not firewalls.rules:
        return {}
    accepted = {
        ruleset.name: [rule.setting for rule in firewalls.rules if rule.setting in ruleset.effective]
        for ruleset in firewalls.rulesets
        if ruleset.running
    }
    return {OPTION: {"range": firewalls.ports, "accepted": accepted}}


def check(before: Mapping[Key, BaselineValue]) -> None:
    """Raises ``ValueError`` for a value that no rule can have."""
    for (_identity, setting), value in before.items():
        rule_of(setting)
        if not {value.effective, value.boot} <= {None, ACCEPT}:
            raise ValueError(f"{value.effective!r} is not a value of {setting}")
