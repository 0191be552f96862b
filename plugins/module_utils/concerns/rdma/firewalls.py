# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What firewalls say of the ports of jobs, and the steps that make them let the connections in.

Rules go into firewalld or ufw, whichever is there, now and for the next boot, by their own programs. A ruleset that
neither of them made is read and left alone: only who wrote it knows where a rule of it has to stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core import baseline
from ..._core.change import Change, Step, Unmanaged
from ..._core.errors import CannotLook
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import field, frozen
from .job_ports import ACCEPT, OPTION, Rule, rule_of
from .places import UFW, ZONE, Place
from .spec import NAME, RdmaDeclaration

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue, Key
    from ..._core.contract import Scope
    from ..._core.protocols import Host

GONE = "it is not there any more, and its rules with it"
AT_ONCE = "ufw changes what is in effect and the next boot in one, and only one of them is wanted"


@frozen
class Firewalls:
    """What was seen, by ``rules`` that are declared and ``before``, the values of those that were changed.

    ``closed`` are chains of nobody that we know, each with a rule that it does not have.
    """

    ports: str = ""
    rules: Tuple[Rule, ...] = ()
    before: Mapping[Key, BaselineValue] = field(default_factory=dict)
    places: Tuple[Place, ...] = ()
    closed: Tuple[Tuple[str, Rule, str], ...] = ()


def is_place(identity: str) -> bool:
    """Whether a record is about a firewall."""
    return identity == UFW or identity.startswith(ZONE)


def observe(host: Host, declaration: RdmaDeclaration, scope: Scope) -> Firewalls:
    """Raises ``CannotLook`` where a firewall that runs does not say what it has."""
    before = _before(host, scope)
    declared = None if scope.restoring else declaration.job_ports
    if declared is None and not before:
        return Firewalls()
    from . import firewalld, job_ports, other_firewalls, ufw

    try:
        former = [rule_of(setting) for _identity, setting in before]
    except ValueError as error:
        raise baseline.damaged(NAME, str(error)) from error
    ports = job_ports.handed_out(host.files)
    rules = job_ports.rules_of(declared, ports) if declared is not None else []
    asked = tuple(dict.fromkeys((*rules, *former)))
    zones = [identity[len(ZONE) :] for identity, _setting in before if identity.startswith(ZONE)]
    places = firewalld.read(host, asked, zones, stored=scope.permanent)
    places += ufw.read(host, asked, had_rules=any(identity == UFW for identity, _setting in before))
    managed = [place.name.split(" ")[0] for place in places if place.runs]
    closed = other_firewalls.read(host, rules, managed) if rules else []
    return Firewalls(ports, tuple(rules), before, tuple(places), tuple(closed))


def _before(host: Host, scope: Scope) -> Mapping[Key, BaselineValue]:
    """What the record has of firewalls. What is declared needs none, so that a damaged one is in the way of nothing."""
    try:
        known = baseline.load(host.files, NAME).values
    except (OSError, CannotLook):
        if scope.restoring:
            raise
        known = {}
    return {key: value for key, value in known.items() if is_place(key[0])}


def rows(firewalls: Firewalls, scope: Scope) -> Tuple[Tuple[Setting, ...], Tuple[Unmanaged, ...]]:
    """The rules that are wanted, and those that are not any more, where they can be had."""
    found: List[Setting] = []
    unmanaged = [Unmanaged(chain, rule.setting, reason) for chain, rule, reason in firewalls.closed]
    there = {place.name: place for place in firewalls.places}
    for place in firewalls.places:
        for setting, wanted in _wanted(place, firewalls).items():
            row = _row(place, setting, wanted, firewalls.before.get((place.name, setting)), scope)
            reason = _reason(place, row, scope)
            if reason:
                unmanaged.append(Unmanaged(place.name, setting, reason))
            else:
                found.append(row)
    if scope.restoring:
        unmanaged += [Unmanaged(name, setting, GONE) for name, setting in firewalls.before if name not in there]
    return tuple(found), tuple(unmanaged)


def _wanted(place: Place, firewalls: Firewalls) -> Dict[str, Scalar]:
    """A zone through which nothing comes any more keeps the rules that it has, for an interface may come back to it."""
    declared = [rule.setting for rule in firewalls.rules]
    wanted: Dict[str, Scalar] = {
        setting: ACCEPT for setting in declared if place.counts or (place.name, setting) in firewalls.before
    }
    for (name, setting), value in firewalls.before.items():
        if name == place.name and setting not in wanted:
            wanted[setting] = value.boot
    return wanted


def _row(place: Place, setting: str, wanted: Scalar, before: Optional[BaselineValue], scope: Scope) -> Setting:
    # What somebody had put in effect without the next boot stays so.
    stays = wanted is None and before is not None and before.effective == ACCEPT
    return Setting(
        object=place.name,
        setting=setting,
        wanted=wanted,
        effective=ACCEPT if setting in place.effective else None,
        boot=ACCEPT if setting in place.boot else None,
        identity=place.name,
        effective_matters=scope.immediate and place.runs and not stays,
        boot_matters=scope.permanent,
    )


def _reason(place: Place, row: Setting, scope: Scope) -> str:
    """Why a rule cannot be had there, or not with this scope."""
    if row.wanted is not None and place.lacks_ipv6 and rule_of(row.setting).is_ipv6:
        return place.lacks_ipv6
    if place.name == UFW and row.boot != row.wanted and not (scope.immediate and scope.permanent):
        return AT_ONCE
    return ""


def steps(firewalls: Firewalls, settings: Sequence[Setting]) -> List[Step]:
    """The next boot first: a run that is killed in between leaves what the next one, or the next boot, completes."""
    from . import firewalld, ufw

    found: List[Step] = []
    there = {place.name: place for place in firewalls.places}
    reloads: List[Change] = []
    for row in settings:
        if row.status == IN_SYNC:
            continue
        rule, is_added = rule_of(row.setting), row.wanted == ACCEPT
        boot = [boot_change(row)] if row.boot_matters and row.boot != row.wanted else []
        now = [effective_change(row)] if row.effective_matters and row.effective != row.wanted else []
        if row.object != UFW:
            zone, runs = row.object[len(ZONE) :], there[row.object].runs
            if boot:
                found.append(Step(firewalld.permanent(zone, rule, add=is_added, runs=runs), tuple(boot)))
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
    """What is in effect, for people and programs; nothing where it is not declared."""
    if not firewalls.rules:
        return {}
    accepted = {
        place.name: [rule.setting for rule in firewalls.rules if rule.setting in place.effective]
        for place in firewalls.places
        if place.runs
    }
    return {OPTION: {"range": firewalls.ports, "accepted": accepted}}


def check(before: Mapping[Key, BaselineValue]) -> None:
    """Raises ``ValueError`` for a value that a rule never had."""
    for (_identity, setting), value in before.items():
        rule_of(setting)
        if not {value.effective, value.boot} <= {None, ACCEPT}:
            raise ValueError(f"{value.effective!r} is not a value of {setting}")
