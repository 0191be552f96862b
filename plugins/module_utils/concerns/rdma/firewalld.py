# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules that firewalld has for ports of jobs: rich rules, in each zone through which connections may come.

A policy would stand once for all zones, but firewalld takes a new one only by a reload, which throws away what others
have set without ``--permanent``. It is asked on the system bus, since to start firewall-cmd takes half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Container, Dict, List, Optional, Sequence, Tuple

from ..._core.change import RunCommand
from ..._core.errors import CannotLook
from ..._core.protocols import BusCall
from ..._core.value import replace
from ..._linux import systemd
from .job_ports import Rule
from .places import FIREWALLD, ZONE, Place

if TYPE_CHECKING:
    from ..._core.protocols import Host

PROGRAM, OFFLINE = "firewall-cmd", "firewall-offline-cmd"
UNIT = "firewalld.service"
SERVICE = "org.fedoraproject.FirewallD1"
PATH = "/org/fedoraproject/FirewallD1"
CONFIG_PATH = f"{PATH}/config"
CONFIG = f"{SERVICE}.config"
# What comes in there is let in anyhow, as in the zones of Docker and libvirt.
ALL = "ACCEPT"
SECONDS = 30.0


def rich_rule(rule: Rule) -> str:
    """As firewalld writes it."""
    family = "ipv6" if rule.is_ipv6 else "ipv4"
    return f'rule family="{family}" source address="{rule.network}" port port="{rule.ports}" protocol="tcp" accept'


def read(host: Host, rules: Sequence[Rule], former_zones: Sequence[str], *, stored: bool) -> List[Place]:
    """The zones that count: those of interfaces and sources, that of all others, and those with rules of ours.

    While it does not run there is only what is ``stored`` for the next boot, where that is asked for.
    """
    if host.commands.find(PROGRAM) is None:
        return []
    answers = _ask(host, [BusCall(PATH, SERVICE, "getDefaultZone"), BusCall(PATH, f"{SERVICE}.zone", "getActiveZones")])
    if answers[0] is None or answers[1] is None:
        if stored and (former_zones or systemd.enabled(host.files, UNIT) == systemd.ENABLED):
            return _read_files(host, rules, former_zones)
        return []
    counting = dict.fromkeys((answers[0][0], *(name for name, _users in answers[1][0])))
    return _places(host, rules, list(dict.fromkeys((*counting, *former_zones))), counting, former_zones)


def _places(
    host: Host, rules: Sequence[Rule], zones: Sequence[str], counting: Container[str], former_zones: Sequence[str]
) -> List[Place]:
    effective = _ask(host, [BusCall(PATH, f"{SERVICE}.zone", "getRichRules", (zone,)) for zone in zones])
    paths = _ask(host, [BusCall(CONFIG_PATH, CONFIG, "getZoneByName", (zone,)) for zone in zones])
    known = [(zone, now[0], path[0]) for zone, now, path in zip(zones, effective, paths) if now and path]
    calls = [
        BusCall(path, f"{CONFIG}.zone", member)
        for _zone, _now, path in known
        for member in ("getTarget", "getRichRules")
    ]
    stored = iter(_ask(host, calls) if calls else ())
    found: List[Place] = []
    for (zone, now, _path), target, boot in zip(known, stored, stored):
        if target is None or boot is None:
            raise CannotLook("ask firewalld for the rules of {}", object=zone, cause="it returned an error")
        if target[0] != ALL or zone in former_zones:
            found.append(replace(_place(zone, rules, now, boot[0]), counts=zone in counting and target[0] != ALL))
    return found


def _place(zone: str, rules: Sequence[Rule], effective: Sequence[str], boot: Sequence[str]) -> Place:
    texts: Dict[str, str] = {rule.setting: rich_rule(rule) for rule in rules}
    return Place(
        f"{ZONE}{zone}",
        tuple(setting for setting, text in texts.items() if text in effective),
        tuple(setting for setting, text in texts.items() if text in boot),
    )


def _read_files(host: Host, rules: Sequence[Rule], former_zones: Sequence[str]) -> List[Place]:
    """While it does not run, a program of its own reads its files."""
    default = _said(host, (OFFLINE, "--get-default-zone")).strip()
    found = []
    for zone in dict.fromkeys((default, *former_zones)):
        if zone == default or zone in _said(host, (OFFLINE, "--get-zones")).split():
            there = _said(host, (OFFLINE, f"--zone={zone}", "--list-rich-rules")).splitlines()
            found.append(replace(_place(zone, rules, (), there), runs=False, counts=zone == default))
    return found


def permanent(zone: str, rule: Rule, *, add: bool, runs: bool) -> RunCommand:
    program = (PROGRAM, "--permanent") if runs else (OFFLINE,)
    return _command((*program, f"--zone={zone}"), rule, add=add)


def immediate(zone: str, rule: Rule, *, add: bool) -> RunCommand:
    return _command((PROGRAM, f"--zone={zone}"), rule, add=add)


def _command(words: Tuple[str, ...], rule: Rule, *, add: bool) -> RunCommand:
    verb = "add" if add else "remove"
    goal = f"let {rule.setting} in" if add else f"take the rule for {rule.setting} away"
    return RunCommand((*words, f"--{verb}-rich-rule={rich_rule(rule)}"), goal, SECONDS)


def _said(host: Host, argv: Tuple[str, ...]) -> str:
    completed = host.commands.run(argv, timeout=SECONDS)
    if completed.status != 0:
        cause = (completed.errors or completed.output).strip() or f"exit status {completed.status}"
        raise CannotLook("read the rules of {}", object=FIREWALLD, cause=cause)
    return completed.output


def _ask(host: Host, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
    """None for each where it does not run, or there is no system bus."""
    try:
        return host.ask_service(SERVICE, calls)
    except (FileNotFoundError, ConnectionRefusedError):
        return [None] * len(calls)
    except OSError as error:
        raise CannotLook("ask {}", object=FIREWALLD, cause=error.strerror or str(error)) from error
