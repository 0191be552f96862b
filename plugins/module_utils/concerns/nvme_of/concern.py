# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvme_of``: NVMe subsystems of other machines, connected now and at boot, as the kernel has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Change, Conflict, Plan, Step, Unmanaged
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.wording import first_of
from ..._kinds import units
from ..._linux import systemd
from . import lines, observation, targets
from .options import OPTIONS
from .rows import CONNECTION, IDENTITY, rows_of
from .spec import DISCOVERY, MARK, NAME, POLICY, NvmeOfDeclaration, name_of, parse
from .state import SHOWN, Log, NvmeOfDesired, NvmeOfState, with_loss

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host

ALONE = "native multipath of NVMe is off, so there is no choice of paths"
UNTOLD = "it is not among what is discovered any more, and stays connected while it is in use by"


class NvmeOf:
    """``convergence.Concern`` for connections to NVMe subsystems over a network."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        after=("kernel_modules", "nic_settings", "rdma"),
        disturbs=("nvme_scheduler", "filesystems"),
        cures=("no_disk",),
        # Some discovery controllers that do not answer, and of which the kernel does not know it yet.
        deadline=30.0,
    )

    def parse(self, params: Mapping[str, Any]) -> NvmeOfDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> NvmeOfDeclaration:
        before = {
            key: value.effective
            for key, value in baseline.values.items()
            if key[0].startswith(MARK) or key[1] == IDENTITY
        }
        return NvmeOfDeclaration(before=before)

    def observe(self, host: Host, declaration: NvmeOfDeclaration, scope: Scope) -> NvmeOfState:
        return observation.observe(host, declaration, scope)

    def resolve(self, declaration: NvmeOfDeclaration, state: NvmeOfState) -> NvmeOfDesired:
        identity = state.identity
        if identity is None:
            raise ValueError("a declaration has connections")
        if state.lacking:
            from .refusals import refuse_lacking

            refuse_lacking(state.lacking)
        if state.no_interfaces:
            from .refusals import refuse_interfaces

            refuse_interfaces(state.no_interfaces)
        told = state.discovered.told
        wanted = {**told.policies, **declaration.policies}
        alone = [nqn for nqn in wanted if nqn in state.subsystems and not state.subsystems[nqn].policy]
        connections = (*declaration.at_boot, *told.connections)
        at_boot = [lines.line_of(one, identity) for one in declaration.at_boot]
        return NvmeOfDesired(
            connections=connections,
            end=state.ours,
            numbers=with_loss({one.key: one.numbers for one in connections}, state.controllers),
            policies={nqn: policy for nqn, policy in wanted.items() if nqn not in alone},
            identity={targets.HOST_NQN: identity.nqn, targets.HOST_ID: identity.number},
            lines=(*at_boot, *(lines.line_of(one, identity) for one in told.connections)),
            unit_text=lines.unit_text(at_boot, declaration.policies),
            start=systemd.ENABLED,
            later=_later(declaration),
            unmanaged=(*(Unmanaged(nqn, POLICY, ALONE) for nqn in alone), *told.unmanaged, *_left(state)),
        )

    def restore(self, baseline: Baseline, state: NvmeOfState) -> NvmeOfDesired:
        from . import plan

        return plan.restore(state)

    def plan(self, state: NvmeOfState, desired: NvmeOfDesired, scope: Scope) -> Plan:
        rows = rows_of(state, desired, scope)
        beside: List[Setting] = []
        later: Tuple[Setting, ...] = ()
        if scope.permanent:
            beside += state.unit.rows_in(desired.unit_text, immediate=scope.immediate)
            beside += units.start_row(lines.UNIT, desired.start, state.status)
        if state.discovered.later is not None:
            from ..._kinds import hotplug

            unit, rules = desired.later
            later = hotplug.settings(state.discovered.later, unit=unit, rules=rules, immediate=scope.immediate)
        conflicts: Tuple[Conflict, ...] = ()
        if state.foreign:
            from ..._kinds.foreign_values import find_conflicts

            conflicts = find_conflicts(state.foreign, {(row.object, row.setting): row.wanted for row in rows}, scope)
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in (*rows, *beside, *later)):
            from .plan import steps_of

            steps = steps_of(state, desired, rows, beside, later)
        return Plan((*rows, *beside, *later), steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(self, step, host)

    def unique(self, state: NvmeOfState) -> Dict[str, str]:
        """Targets keep reservations and access lists by these: two nodes with one of them are one host to a target."""
        if state.identity is None:
            return {}
        return {"host NQN": state.identity.nqn, "host ID": state.identity.number.lower()}

    def report(self, state: NvmeOfState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        connections = {
            key: {"controller": one.name, "state": one.state, **one.numbers} for key, one in state.controllers.items()
        }
        logs = state.discovered.logs
        effective: Dict[str, Any] = {
            "host_nqn": state.identity_files[targets.HOST_NQN],
            "connections": {name_of(key): shown for key, shown in connections.items() if key[0] != DISCOVERY},
            "discovery": {
                name_of(key): {**shown, **(_told_by(logs[key]) if key in logs else {})}
                for key, shown in connections.items()
                if key[0] == DISCOVERY
            },
            "io_policies": {nqn: one.policy or None for nqn, one in state.subsystems.items() if nqn != DISCOVERY},
        }
        at_boot = lines.connected_by(state.unit.text) if state.status == systemd.ENABLED else set()
        boot = {"connections": sorted(name_of(key) for key in at_boot if key[0] != DISCOVERY)}
        return effective, {**boot, "discovery": sorted(name_of(key) for key in at_boot if key[0] == DISCOVERY)}


CONCERN = NvmeOf()


def _later(declaration: NvmeOfDeclaration) -> Tuple[Optional[str], Optional[str]]:
    if not declaration.discovery:
        return None, None
    from . import later

    return later.unit_text(), later.rules_text()


def _left(state: NvmeOfState) -> List[Unmanaged]:
    return [
        Unmanaged(name_of(key), CONNECTION, f"{UNTOLD}: {first_of(users, SHOWN)}", excused=True)
        for key, users in state.left.items()
    ]


def _told_by(log: Log) -> Dict[str, Any]:
    """What a discovery controller tells of, in its own order."""
    names = ("nqn", "transport", "address", "port")
    told = [{name: getattr(entry, name) for name in names} for entry in log.entries]
    return {"error": log.error} if log.error else {"tells_of": told}
