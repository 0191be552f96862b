# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What discovery controllers tell of, and what of it is to be connected. Imported where one is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence

from ..._core.change import Unmanaged
from ..._core.match import Glob
from ..._core.value import replace
from . import log_page
from .lines import MODULES
from .log_page import REFERRAL, SUBSYSTEM
from .spec import DISCOVERY, PLACE, RDMA, TCP, Connection, Discovery, Key, NvmeOfDeclaration, is_nqn, name_of, one_form
from .state import Entry, Log, Told
from .targets import LIVE, Controller

if TYPE_CHECKING:
    from ..._core.protocols import Host

TOLD = "discovered"
# Referrals lead from one to the next, and a target that refers to ever others must not keep a look for ever.
MOST = 64


def read_logs(host: Host, declaration: NvmeOfDeclaration, controllers: Mapping[Key, Controller]) -> Dict[Key, Log]:
    """The logs of those that are connected and answer, with those that they refer to."""
    logs: Dict[Key, Log] = {}
    waiting = [one.key for one in declaration.discovery]
    while waiting and len(logs) < MOST:
        key = waiting.pop(0)
        if key in logs or key not in controllers or controllers[key].state != LIVE:
            continue
        logs[key] = log_page.read(host, controllers[key].name)
        waiting += [found for entry in logs[key].entries for found in [_key(entry, key)] if _refers(entry) and found]
    return logs


def told(declaration: NvmeOfDeclaration, logs: Mapping[Key, Log]) -> Told:
    """What is to be connected. The first declared discovery controller that tells of it, and matches, decides how."""
    found: Dict[Key, Connection] = {}
    policies: Dict[str, str] = {}
    unmanaged: List[Unmanaged] = []
    unknown: List[Key] = []
    declared = [one.key for one in declaration.at_boot]
    for one in declaration.discovery:
        for key in _reached(one.key, logs):
            if key not in logs or logs[key].error:
                unknown.append(key)
                continue
            for entry in logs[key].entries:
                if not _counts(one, entry):
                    continue
                to, reason = _key(entry, key), _refusal(entry)
                if reason or to is None:
                    unmanaged.append(_unmanaged(key, entry, reason or ODD))
                elif to not in found and not _is_declared(to, declared):
                    found[to] = _connection(to, one, declaration)
                    _add_policy(policies, to[0], one, declaration)
    return Told(tuple(found.values()), policies, tuple(dict.fromkeys(unmanaged)), tuple(dict.fromkeys(unknown)))


ODD = "it is neither a name and an address of NVMe over TCP nor one over RDMA"
SECURE = "it requires TLS, which is not managed"


def _reached(first: Key, logs: Mapping[Key, Log]) -> Sequence[Key]:
    """A discovery controller with all that it refers to, also by others."""
    reached = [first]
    for key in reached:
        if len(reached) >= MOST:
            break
        entries = logs[key].entries if key in logs else ()
        found = [_key(entry, key) for entry in entries if _refers(entry)]
        reached += [other for other in dict.fromkeys(found) if other is not None and other not in reached]
    return reached


def _refers(entry: Entry) -> bool:
    return entry.kind == REFERRAL and not entry.duplicate and not _refusal(entry)


def _counts(one: Discovery, entry: Entry) -> bool:
    """Whether what it tells of concerns this discovery controller: subsystems by what is declared."""
    if entry.kind != SUBSYSTEM:
        return entry.kind == REFERRAL and not entry.duplicate
    values = {"nqn": entry.nqn, "address": one_form(entry.address) or entry.address}
    return all(Glob(alternatives).match(values[name]) for name, alternatives in one.match.match.items())


def _refusal(entry: Entry) -> str:
    """Why it cannot be connected, empty where it can. What it says goes into a line for the kernel."""
    if entry.transport not in (TCP, RDMA):
        return f"its transport is {entry.transport}"
    if entry.secure:
        return SECURE
    is_fit = (is_nqn(entry.nqn) or entry.kind == REFERRAL) and one_form(entry.address)
    return "" if is_fit and entry.port.isdecimal() else ODD


def _key(entry: Entry, teller: Key) -> Optional[Key]:
    """The connection that it tells of, by the same way as to the one who tells it; None for what is none."""
    address = one_form(entry.address)
    if not address:
        return None
    host_address = teller[4] if (":" in teller[4]) == (":" in address) else ""
    interface = teller[5] if entry.transport == TCP else ""
    nqn = DISCOVERY if entry.kind == REFERRAL else entry.nqn
    return nqn, entry.transport, address, entry.port, host_address, interface


def _is_declared(key: Key, declared: Iterable[Key]) -> bool:
    return any(other == key or (other[PLACE] == key[PLACE] and not any(other[PLACE.stop :])) for other in declared)


def _connection(key: Key, one: Discovery, declaration: NvmeOfDeclaration) -> Connection:
    if key[0] == DISCOVERY:
        return Connection(key, secrets=one.secrets)
    same = next((other for other in declaration.connections if other.nqn == key[0]), one)
    return Connection(key, same.numbers, same.secrets)


def _add_policy(policies: Dict[str, str], nqn: str, one: Discovery, declaration: NvmeOfDeclaration) -> None:
    is_declared = any(other.nqn == nqn for other in declaration.connections)
    if one.policy is not None and nqn != DISCOVERY and not is_declared:
        policies.setdefault(nqn, one.policy)


def _unmanaged(teller: Key, entry: Entry, reason: str) -> Unmanaged:
    text = f"{entry.nqn} over {entry.transport} {entry.address}:{entry.port}"
    return Unmanaged(
        name_of(teller),
        TOLD,
        f"{text if text.isprintable() else 'an entry'}: {reason}",
        goal="connect to all that {} tells of",
        hint="leave it out by match, or set strict: false",
    )


def without(told: Told, lacking: Sequence[str]) -> Told:
    """What this kernel can connect, where it lacks these modules: a target tells of all the ways to it."""
    if not lacking:
        return told
    kept = tuple(one for one in told.connections if MODULES[one.transport] not in lacking)
    reason = f"this kernel has no {', '.join(lacking)}"
    lost = [Unmanaged(name_of(one.key), TOLD, reason) for one in told.connections if one not in kept]
    return replace(told, connections=kept, unmanaged=(*told.unmanaged, *lost))
