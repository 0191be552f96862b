# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvme_of``: NVMe subsystems of other machines, connected now and at boot, as the kernel has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Set, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._kinds import units
from ..._linux import systemd
from . import lines, targets
from .options import OPTIONS
from .spec import (
    DELAY,
    LOSS,
    MARK,
    NAME,
    NUMBERS,
    POLICY,
    Key,
    NvmeOfDeclaration,
    identity_of,
    name_of,
    parse,
    shown_loss,
)
from .state import NvmeOfDesired, NvmeOfState, with_loss

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

CONNECTION, CONNECTED = "connection", "connected"
IDENTITY = "host identity"
RECONNECT, TARGET = "reconnect", "target"
FIXED = "it stays as it is until the connection is made anew, and the target may allow less"
ALONE = "native multipath of NVMe is off, so there is no choice of paths"


class NvmeOf:
    """``convergence.Concern`` for connections to NVMe subsystems over a network."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        after=("kernel_modules", "nic_settings", "rdma"), disturbs=("nvme_scheduler", "filesystems"), cures=("no_disk",)
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
        files = host.files
        controllers, subsystems = targets.read_controllers(files), targets.read_subsystems(files)
        text = files.read_optional(lines.UNIT_PATH)
        declared = {connection.key for connection in declaration.connections}
        former = {key for key in lines.connected_by(text) - declared if key in controllers}
        ours = _made_by_us(files, former) if former and not scope.restoring else ()
        ending = [controllers[key] for key in (controllers if scope.restoring else ours)]
        disks = {one.name: one.disks for one in ending}
        disks.update((nqn, subsystems[nqn].disks) for nqn in {one.key[0] for one in ending} if nqn in subsystems)
        lacking: Tuple[str, ...] = ()
        if declared - controllers.keys():
            from .refusals import lacking_modules

            lacking = lacking_modules(files, [one for one in declaration.connections if one.key not in controllers])
        identity_files = targets.read_identity_files(files)
        return NvmeOfState(
            declaration=declaration,
            identity_files=identity_files,
            identity=targets.identity_of_host(files, identity_files) if declared else None,
            controllers=controllers,
            subsystems=subsystems,
            unit=units.unit_file(host, lines.UNIT, lines.UNIT_PATH, "unit", text),
            status=systemd.enabled(files, lines.UNIT),
            ours=ours,
            users={name: targets.users_of(files, those) for name, those in disks.items() if those},
            lacking=lacking,
        )

    def resolve(self, declaration: NvmeOfDeclaration, state: NvmeOfState) -> NvmeOfDesired:
        if state.identity is None:
            raise ValueError("a declaration has connections")
        if state.lacking and any(one.key not in state.controllers for one in declaration.connections):
            from .refusals import refuse_lacking

            refuse_lacking(state.lacking)
        alone = [nqn for nqn in declaration.policies if nqn in state.subsystems and not state.subsystems[nqn].policy]
        handed = tuple(lines.line_of(one, state.identity) for one in declaration.connections)
        return NvmeOfDesired(
            connections=declaration.connections,
            end=state.ours,
            numbers=with_loss({one.key: one.numbers for one in declaration.connections}, state.controllers),
            policies={nqn: policy for nqn, policy in declaration.policies.items() if nqn not in alone},
            identity={targets.HOST_NQN: state.identity.nqn, targets.HOST_ID: state.identity.number},
            lines=handed,
            unit_text=lines.unit_text(handed, declaration.policies),
            start=systemd.ENABLED,
            unmanaged=tuple(Unmanaged(nqn, POLICY, ALONE) for nqn in alone),
        )

    def restore(self, baseline: Baseline, state: NvmeOfState) -> NvmeOfDesired:
        from . import plan

        return plan.restore(state)

    def plan(self, state: NvmeOfState, desired: NvmeOfDesired, scope: Scope) -> Plan:
        rows = _rows(state, desired, immediate=scope.immediate)
        beside: List[Setting] = []
        if scope.permanent:
            beside += state.unit.rows_in(desired.unit_text, immediate=scope.immediate)
            beside += units.start_row(lines.UNIT, desired.start, state.status)
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in (*rows, *beside)):
            from .plan import steps_of

            steps = steps_of(state, desired, rows, beside)
        return Plan((*rows, *beside), steps, desired.unmanaged)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def unique(self, state: NvmeOfState) -> Dict[str, str]:
        """Targets keep reservations and access lists by these: two nodes with one of them are one host to a target."""
        if state.identity is None:
            return {}
        return {"host NQN": state.identity.nqn, "host ID": state.identity.number.lower()}

    def report(self, state: NvmeOfState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {
            "host_nqn": state.identity_files[targets.HOST_NQN],
            "connections": {
                name_of(key): {"controller": one.name, "state": one.state, **one.numbers}
                for key, one in state.controllers.items()
            },
            "io_policies": {nqn: one.policy or None for nqn, one in state.subsystems.items()},
        }
        at_boot = lines.connected_by(state.unit.text) if state.status == systemd.ENABLED else set()
        return effective, {"connections": sorted(map(name_of, at_boot))}


CONCERN = NvmeOf()


def _made_by_us(files: Files, keys: Set[Key]) -> Tuple[Key, ...]:
    """Those of them that were not there before this module connected them."""
    from ..._core import baseline

    known = baseline.load(files, NAME).values
    return tuple(key for key in sorted(keys) if (identity_of(key), CONNECTION) in known)


def _rows(state: NvmeOfState, desired: NvmeOfDesired, *, immediate: bool) -> List[Setting]:
    rows = [
        Setting(
            object=path,
            setting=IDENTITY,
            wanted=wanted,
            effective=found,
            boot=found,
            identity=path,
            effective_matters=immediate,
        )
        for path, wanted in desired.identity.items()
        for found in (state.identity_files[path],)
    ]
    for key in (*(one.key for one in desired.connections), *desired.end):
        rows.append(_connection(state, key, wanted=None if key in desired.end else CONNECTED, immediate=immediate))
    for key, numbers in desired.numbers.items():
        # In the order in which they are written: what is shown as LOSS changes with DELAY.
        names = [name for name in NUMBERS if name in numbers]
        rows += [_number(state, key, name, numbers[name], immediate=immediate) for name in names]
    for nqn, policy in desired.policies.items():
        subsystem = state.subsystems.get(nqn)
        found = subsystem.policy if subsystem is not None else None
        row = Setting(nqn, POLICY, policy, found, None, f"{MARK} {nqn}", immediate, boot_matters=False)
        rows.append(row)
    return rows


def _connection(state: NvmeOfState, key: Key, *, wanted: Optional[str], immediate: bool) -> Setting:
    controller = state.controllers.get(key)
    found = None if controller is None else CONNECTED if controller.state == targets.LIVE else controller.state
    # The kernel tries again by itself, until the time is over after which it gives up.
    waits = wanted == CONNECTED and found not in (None, CONNECTED)
    return Setting(
        object=name_of(key),
        setting=CONNECTION,
        wanted=wanted,
        effective=found,
        boot=None,
        identity=identity_of(key),
        effective_matters=immediate,
        boot_matters=False,
        pending="the target does not respond, and the kernel tries to reconnect" if waits else "",
        needs=TARGET,
    )


def _number(state: NvmeOfState, key: Key, name: str, wanted: int, *, immediate: bool) -> Setting:
    controller = state.controllers.get(key)
    found = None if controller is None else controller.numbers[name]
    if controller is not None and name == LOSS and found == shown_loss(wanted, controller.numbers[DELAY]):
        found = wanted
    fixed = controller is not None and not NUMBERS[name].written
    return Setting(
        object=name_of(key),
        setting=name,
        wanted=wanted,
        effective=found,
        boot=None,
        identity=identity_of(key),
        effective_matters=immediate,
        boot_matters=False,
        pending=FIXED if fixed else "",
        needs=RECONNECT,
    )
