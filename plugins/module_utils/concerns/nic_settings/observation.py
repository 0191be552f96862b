# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at the interfaces that are declared, or for ``state: absent`` at those that were changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core import match
from ..._core.setting import Scalar
from ..._core.value import replace
from ..._linux import boot_service
from ..._linux.boot_service import BootCarrier
from ..._machine.boot_id import boot_id
from ..._machine.numbers import read_number
from . import ethtool, foreign, functions, later, links, login, owners, peers, way_back
from .ethtool import Shown
from .spec import FUNCTIONS, MTU, InterfaceEntry, NicSettingsDeclaration
from .state import Interface, NicSettingsState
from .way_back import UNDONE, WAITS

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

IP_SECONDS = 10.0


def observe(host: Host, declaration: NicSettingsDeclaration, scope: Scope) -> NicSettingsState:
    files = host.files
    found = _restored(host, declaration) if scope.restoring else _declared(host, declaration)
    if not scope.restoring:
        found = [_with_stated(files, interface) for interface in found]
    known = way_back.load(files)
    changing = [interface for interface in found if interface.differing] if scope.immediate else []
    moving = [interface for interface in changing if interface.moves]
    connection = login.read_connection(files) if moving or known is not None else None
    resized = {interface.name: interface.link for interface in changing if MTU in interface.differing}
    made = known is not None and known.made(way_back.current(host, known))
    return NicSettingsState(
        interfaces=tuple(found),
        declaration=declaration,
        way_back=known,
        undone="" if known is None else WAITS if made or way_back.units(host) else UNDONE,
        made=made,
        younger=known is not None and connection is not None and known.precedes(connection.started, boot_id(files)),
        login=login.locate(host, connection),
        no_way_back=way_back.why_none(host) if connection is not None and moving else "",
        ranges=_ranges(host, resized),
        neighbours=links.neighbours(files, {interface.name: interface.link for interface in found}) if resized else {},
        missing=_missing(declaration, found),
        foreign=() if scope.restoring or not found else foreign.read(files, found, scope),
        carrier=boot_service.carrier(files, scope) if scope.permanent else BootCarrier(),
        later=later.observe(host) if scope.permanent else None,
    )


def _declared(host: Host, declaration: NicSettingsDeclaration) -> List[Interface]:
    if not declaration.entries:
        return []
    files = host.files
    candidates = [links.candidate(files, name) for name in links.names(files)]
    winners = match.select([entry.entry for entry in declaration.entries], candidates)
    there = [
        (link, declaration.entries[winner])
        for candidate, winner in zip(candidates, winners)
        if winner is not None
        for link in (links.read(files, candidate.name),)
        if link is not None
    ]
    ports = _ports(there)
    found = []
    for link, entry in there:
        interface = _read(host, link, {**ports.pop(link.name, {}), **entry.settings})
        found.append(_with_answers(host, interface, entry.peers))
    left = [(links.read(files, name), settings) for name, settings in ports.items()]
    return [*found, *(_read(host, link, settings) for link, settings in left if link is not None)]


def _ports(there: Sequence[Tuple[links.Link, InterfaceEntry]]) -> Dict[str, Mapping[str, Scalar]]:
    """The ports of bonds whose MTU is declared: they have that of the bond, declared for themselves or not."""
    return {
        port: {MTU: entry.settings[MTU]}
        for link, entry in there
        if link.kind == links.BOND and MTU in entry.settings
        for port in link.lowers
    }


def _restored(host: Host, declaration: NicSettingsDeclaration) -> List[Interface]:
    if not declaration.before:
        return []
    there = [link for link in (links.read(host.files, name) for name in links.names(host.files)) if link is not None]
    return [
        _read(host, link, declaration.before[link.identity]) for link in there if link.identity in declaration.before
    ]


def _missing(declaration: NicSettingsDeclaration, found: Sequence[Interface]) -> Tuple[str, ...]:
    there = {interface.link.identity for interface in found}
    return tuple(sorted(identity for identity in declaration.before if identity not in there))


def _read(host: Host, link: links.Link, settings: Mapping[str, Scalar]) -> Interface:
    files = host.files
    by_program = [setting for setting in settings if setting not in (MTU, FUNCTIONS)]
    shown = ethtool.read(host, link.name, by_program) if by_program else Shown({}, {})
    values: Dict[str, Scalar] = {setting: shown.now[setting] for setting in by_program if setting in shown.now}
    if MTU in settings:
        values[MTU] = link.mtu
    most: Optional[int] = None
    in_use = ""
    if FUNCTIONS in settings:
        most = functions.most(files, link.name)
        number = read_number(files, link.functions_path)
        if number is not None and most is not None:
            values[FUNCTIONS] = number
            if number != settings[FUNCTIONS] and number:
                in_use = functions.in_use(files, link.name)
    declared = {setting: ethtool.resolved(value, setting, shown) for setting, value in settings.items()}
    return Interface(link, declared, values, shown, most, in_use)


def _with_answers(host: Host, interface: Interface, addresses: Sequence[str]) -> Interface:
    """With what came of asking the peers; they are asked once the interface has the MTU that is to be proved."""
    if not addresses or interface.link.mtu != interface.wanted_mtu:
        return interface
    name, mtu = interface.name, interface.link.mtu
    try:
        answers = {address: peers.answered(host, name, address, mtu) for address in addresses}
    except FileNotFoundError:
        return replace(interface, no_answers="ping is not installed; install iputils-ping (Debian, Ubuntu) or iputils")
    return replace(interface, answers=answers)


def _with_stated(files: Files, interface: Interface) -> Interface:
    if MTU not in interface.wanted:
        return interface
    return replace(interface, stated=owners.stated_mtu(files, interface.name))


def _ranges(host: Host, resized: Mapping[str, links.Link]) -> Dict[str, Tuple[int, int]]:
    """The smallest and the largest MTU that each takes, 0 where its driver has no limit."""
    found = {}
    for name in resized:
        try:
            completed = host.commands.run(("ip", "-json", "-details", "link", "show", "dev", name), timeout=IP_SECONDS)
            document: Any = json.loads(completed.output)[0]
            found[name] = (int(document.get("min_mtu", 0)), int(document.get("max_mtu", 0)))
        except (FileNotFoundError, ValueError, LookupError, AttributeError):
            # The kernel refuses what is out of range all the same, only later.
            continue
    return found
