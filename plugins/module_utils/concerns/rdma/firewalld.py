# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules for job ports in firewalld: rich rules in each zone through which connections may come.

One policy would do for all zones, but a new policy takes effect only with a reload, which drops what others have set
without ``--permanent``. firewalld is asked on the system bus, because firewall-cmd takes half a second to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import RunCommand
from ..._core.errors import CannotLook
from ..._core.protocols import BusCall
from ..._linux import systemd
from .job_ports import Rule
from .rulesets import FIREWALLD, SECONDS, ZONE, Ruleset, output_of

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

PROGRAM, OFFLINE = "firewall-cmd", "firewall-offline-cmd"
FOLDER = "/etc/firewalld"
UNIT = "firewalld.service"
SERVICE = "org.fedoraproject.FirewallD1"
PATH = "/org/fedoraproject/FirewallD1"
CONFIG_PATH = f"{PATH}/config"
CONFIG = f"{SERVICE}.config"
# The target of a zone that accepts everything anyhow, as those of Docker and libvirt do.
ACCEPTS_ALL = "ACCEPT"


def rich_rule(rule: Rule) -> str:
    """The rule as firewalld writes it, so that it can be compared."""
    family = "ipv6" if rule.is_ipv6 else "ipv4"
    return f'rule family="{family}" source address="{rule.network}" port port="{rule.ports}" protocol="tcp" accept'


def read(host: Host, rules: Sequence[Rule], former_zones: Sequence[str], *, stored: bool) -> List[Ruleset]:
    """The active zones, the default zone, and those with rules of ours (``former_zones``).

    While firewalld does not run, there are only the rules of the next boot, which are read if ``stored`` is true.
    """
    if host.commands.find(PROGRAM) is None:
        return []
    answers = _ask(host, [BusCall(PATH, SERVICE, "getDefaultZone"), BusCall(PATH, f"{SERVICE}.zone", "getActiveZones")])
    if answers[0] is None or answers[1] is None:
        if stored and (former_zones or systemd.enabled(host.files, UNIT) == systemd.ENABLED):
            return _read_files(host, rules, former_zones)
        return []
    active = dict.fromkeys((answers[0][0], *(name for name, _users in answers[1][0])))
    return _rulesets(host, rules, active, former_zones)


def _rulesets(
    host: Host, rules: Sequence[Rule], active: Mapping[str, None], former_zones: Sequence[str]
) -> List[Ruleset]:
    zones = tuple(dict.fromkeys((*active, *former_zones)))
    effective = _ask(host, [BusCall(PATH, f"{SERVICE}.zone", "getRichRules", (zone,)) for zone in zones])
    paths = _ask(host, [BusCall(CONFIG_PATH, CONFIG, "getZoneByName", (zone,)) for zone in zones])
    known = [(zone, now[0], path[0]) for zone, now, path in zip(zones, effective, paths) if now and path]
    calls = [
        BusCall(path, f"{CONFIG}.zone", member)
        for _zone, _now, path in known
        for member in ("getTarget", "getRichRules")
    ]
    stored = iter(_ask(host, calls) if calls else ())
    found: List[Ruleset] = []
    for (zone, now, _path), target, boot in zip(known, stored, stored):
        if target is None or boot is None:
            raise CannotLook("ask firewalld for the rules of {}", object=zone, cause="it returned an error")
        filters = target[0] != ACCEPTS_ALL
        if filters or zone in former_zones:
            found.append(_ruleset(zone, rules, now, boot[0], running=True, active=filters and zone in active))
    return found


def _ruleset(
    zone: str, rules: Sequence[Rule], effective: Sequence[str], boot: Sequence[str], *, running: bool, active: bool
) -> Ruleset:
    texts: Dict[str, str] = {rule.setting: rich_rule(rule) for rule in rules}
    return Ruleset(
        f"{ZONE}{zone}",
        tuple(setting for setting, text in texts.items() if text in effective),
        tuple(setting for setting, text in texts.items() if text in boot),
        running,
        active,
    )


def _read_files(host: Host, rules: Sequence[Rule], former_zones: Sequence[str]) -> List[Ruleset]:
    """What firewall-offline-cmd reads from the files of firewalld, while that does not run."""
    default = output_of(host, (OFFLINE, "--get-default-zone")).strip()
    zones = output_of(host, (OFFLINE, "--get-zones")).split() if former_zones else []
    found = []
    for zone in dict.fromkeys((default, *former_zones)):
        if zone == default or zone in zones:
            there = output_of(host, (OFFLINE, f"--zone={zone}", "--list-rich-rules")).splitlines()
            found.append(_ruleset(zone, rules, (), there, running=False, active=zone == default))
    return found


def keeping(files: Files, zone: str, rule: Rule) -> str:
    """The file of a zone that may have a rule, with or without firewalld; empty where it has not.

    Without one the zone may be in another folder of firewalld's.
    """
    path = f"{FOLDER}/zones/{zone}.xml"
    text = files.read_optional(path)
    if text is None:
        return FOLDER if files.is_folder(FOLDER) else ""
    return path if f'"{rule.network}"' in text else ""


def permanent(zone: str, rule: Rule, *, add: bool, running: bool) -> RunCommand:
    """Adds or removes a rule for the next boot."""
    program = (PROGRAM, "--permanent") if running else (OFFLINE,)
    return _command((*program, f"--zone={zone}"), rule, add=add)


def immediate(zone: str, rule: Rule, *, add: bool) -> RunCommand:
    """Adds or removes a rule in effect."""
    return _command((PROGRAM, f"--zone={zone}"), rule, add=add)


def _command(words: Tuple[str, ...], rule: Rule, *, add: bool) -> RunCommand:
    verb = "add" if add else "remove"
    goal = f"{verb} the rule that accepts {rule.setting}"
    return RunCommand((*words, f"--{verb}-rich-rule={rich_rule(rule)}"), goal, SECONDS)


def _ask(host: Host, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
    """What each call returns; None for all of them where firewalld does not run, or there is no system bus."""
    try:
        return host.ask_service(SERVICE, calls)
    except (FileNotFoundError, ConnectionRefusedError):
        return [None] * len(calls)
    except OSError as error:
        raise CannotLook("ask {}", object=FIREWALLD, cause=error.strerror or str(error)) from error
