# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nic_settings``: MTU, rings, channels, coalescing, offloads, flow control and virtual functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.errors import refuse_all
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._kinds import hotplug
from ..._kinds.foreign_values import find_conflicts
from . import foreign, later, owners, peers
from .observation import observe
from .options import OPTIONS
from .spec import ETHTOOL, FUNCTIONS, MTU, NAME, NicSettingsDeclaration, parse
from .state import Interface, NicSettingsDesired, NicSettingsState
from .way_back import CONFIRMATION, RECORD, UNDONE, WAITS

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Conflict
    from ..._core.contract import Scope
    from ..._core.protocols import Host

CONNECTION, CONFIRMED = "connection", "confirmed"
PEER = "peer"
NO_FUNCTIONS = "the card has no virtual functions, or its firmware has them off"


class NicSettings:
    """``convergence.Concern`` for network interfaces."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # New channels have interrupts of their own. A peer that does not answer takes seconds, and there may be several.
    registration = Registration(
        after=("node_tools", "kernel_modules"), disturbs=("numa_irq_affinity",), tells=(CONFIRMATION,), deadline=60.0
    )

    def parse(self, params: Mapping[str, Any]) -> NicSettingsDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> NicSettingsDeclaration:
        before: Dict[str, Dict[str, Any]] = {}
        for (identity, setting), value in baseline.values.items():
            # The record has the files too, ours and the declaration.
            if not identity.startswith("/") and value.effective is not None:
                before.setdefault(identity, {})[setting] = value.effective
        return NicSettingsDeclaration((), params["confirm_timeout"], before=before)

    def observe(self, host: Host, declaration: NicSettingsDeclaration, scope: Scope) -> NicSettingsState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: NicSettingsDeclaration, state: NicSettingsState) -> NicSettingsDesired:
        unmanaged: List[Unmanaged] = []
        for interface in state.interfaces:
            for setting in interface.declared:
                if setting not in interface.values:
                    unmanaged.append(_lacking(interface, setting))
            if interface.no_answers:
                unmanaged.append(Unmanaged(interface.name, "path to its peers", interface.no_answers))
        wanted = {interface.name: dict(interface.wanted) for interface in state.interfaces}
        for interface in state.interfaces:
            if interface.differing:
                from .refusals import fixed_features, refuse_impossible

                for setting, reason in fixed_features(interface).items():
                    del wanted[interface.name][setting]
                    unmanaged.append(Unmanaged(interface.name, setting, reason))
                refuse_impossible(interface, state)
        unit, rules = later.texts(declaration.entries)
        return NicSettingsDesired(wanted, tuple(unmanaged), unit, rules)

    def restore(self, baseline: Baseline, state: NicSettingsState) -> NicSettingsDesired:
        from . import plan

        return plan.restore(state)

    def plan(self, state: NicSettingsState, desired: NicSettingsDesired, scope: Scope) -> Plan:
        conflicts = () if scope.restoring else _conflicts(state, desired, scope)
        rows = _rows(state, desired, scope)
        paths = [row for interface in state.interfaces for row in _paths(interface, immediate=scope.immediate)]
        confirmations = _confirmations(state, rows) if scope.immediate else []
        beside: Tuple[Setting, ...] = ()
        if state.later is not None:
            beside = hotplug.settings(state.later, unit=desired.unit, rules=desired.rules, immediate=scope.immediate)
        settings = (*rows, *paths, *confirmations, *beside)
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in (*rows, *confirmations, *beside)):
            from .plan import steps_of

            steps = steps_of(state, desired, rows, confirmations, beside)
        return Plan(settings, steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: NicSettingsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective = {interface.name: dict(interface.values) for interface in state.interfaces}
        boot = {
            interface.name: {
                setting: interface.wanted.get(setting) if state.carrier.applies else None
                for setting in interface.values
            }
            for interface in state.interfaces
        }
        return {"interfaces": effective}, {"interfaces": boot}


CONCERN = NicSettings()


def _lacking(interface: Interface, setting: str) -> Unmanaged:
    """What this interface does not have. Raises ``DeclarationError`` for a feature that no interface has."""
    if setting == FUNCTIONS:
        return Unmanaged(interface.name, setting, NO_FUNCTIONS)
    if setting not in ETHTOOL and interface.shown.now:
        from .refusals import refuse_feature

        refuse_feature(interface, setting)
    return Unmanaged(interface.name, setting, "its driver does not have it")


def _conflicts(state: NicSettingsState, desired: NicSettingsDesired, scope: Scope) -> Tuple[Conflict, ...]:
    """Other owners of the declared values. Raises ``OwnedByAnother`` where the next boot would not bring it."""
    values = state.foreign
    refusals = []
    for interface in state.interfaces:
        stated = interface.stated
        if stated is not None and MTU in desired.wanted[interface.name]:
            if scope.permanent and stated.mtu != interface.wanted_mtu:
                refusals.append(owners.refusal(interface.name, interface.wanted_mtu, stated))
            values += foreign.at_lease(interface)
    refuse_all(refusals)
    wanted = {(name, setting): value for name, found in desired.wanted.items() for setting, value in found.items()}
    return find_conflicts(values, wanted, scope) if values else ()


def _rows(state: NicSettingsState, desired: NicSettingsDesired, scope: Scope) -> List[Setting]:
    unreached = state.way_back.undoes() if state.way_back is not None and state.undone == UNDONE else frozenset()
    rows = []
    for interface in state.interfaces:
        for setting, wanted in desired.wanted[interface.name].items():
            was_undone = (interface.link.identity, setting, wanted) in unreached
            waits = was_undone and state.login is None and not scope.restoring
            row = Setting(
                object=interface.name,
                setting=setting,
                wanted=wanted,
                effective=interface.values[setting],
                # A boot makes nothing that was undone.
                boot=wanted if state.carrier.applies and not was_undone else None,
                identity=interface.link.identity,
                effective_matters=scope.immediate,
                boot_matters=scope.carries and not waits,
                pending="it was undone, because no connection confirmed it" if waits else "",
                needs=CONFIRMATION,
            )
            rows.append(row)
    return rows


def _paths(interface: Interface, *, immediate: bool) -> List[Setting]:
    """Whether packets of the size of the MTU reach the peers: nothing on this node makes them."""
    return [
        Setting(
            object=interface.name,
            setting=f"path to {peer}",
            wanted=peers.size(interface.link.mtu),
            effective=answer,
            boot=None,
            identity=interface.link.identity,
            effective_matters=immediate,
            boot_matters=False,
            pending="packets of this size do not reach the peer and come back",
            needs=PEER,
        )
        for peer, answer in interface.answers.items()
    ]


def _confirmations(state: NicSettingsState, rows: Sequence[Setting]) -> List[Setting]:
    """Whether changes of an earlier run are confirmed; those that were undone and nobody wants are to be forgotten."""
    known = state.way_back
    if known is None:
        return []
    waits = state.undone == WAITS
    wanted = {(row.identity, row.setting, row.wanted) for row in rows if row.effective != row.wanted}
    if not waits and known.undoes() & wanted:
        return []
    return [
        Setting(
            object=name,
            setting=CONNECTION,
            wanted=CONFIRMED if waits else None,
            effective=state.undone,
            boot=None,
            identity=RECORD,
            boot_matters=False,
            pending=_why_not_confirmed(state) if waits else "",
            needs=CONFIRMATION,
        )
        for name in known.interfaces
    ]


def _why_not_confirmed(state: NicSettingsState) -> str:
    """Why this run does not confirm what waits; empty where it does."""
    login, known = state.login, state.way_back
    if login is None:
        return "a new connection has to confirm it, and this run came over none"
    if not state.younger:
        return "a new connection has to confirm it, and this one is older than the change"
    missing: Optional[str] = None
    if known is not None:
        missing = next((name for name in known.interfaces if not login.passes(name)), None)
    return f"a new connection has to confirm it, and this one does not pass {missing}" if missing else ""
