# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that connect and disconnect, and what ``state: absent`` restores."""

from __future__ import annotations

import sys
from typing import Dict, List, Optional, Sequence, Tuple

from ..._core.change import Refuse, RemoveFile, ReplaceFile, RoomAction, Step, Unmanaged, WriteAttribute
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._kinds import hotplug, units
from ..._linux import systemd
from ..._linux.boot_service import not_persisted
from . import targets
from .lines import Line
from .refusals import refuse_in_use
from .rows import AUTHENTICATION, CONNECTION
from .spec import DELAY, DISCOVERY, LOSS, NUMBERS, POLICY, Key, NvmeOfDeclaration, key_of, name_of
from .state import NvmeOfDesired, NvmeOfState, with_loss

GONE = "the connection has ended, and its values are gone"


@frozen
class SetPolicy(RoomAction):
    """Let the kernel choose the path to a subsystem so, once it is there."""

    nqn: str
    policy: str


@frozen
class Connect(RoomAction):
    """Connect each of these: one that does not answer does not keep the others from being connected.

    ``policies`` are those of subsystems that come with them.
    """

    programs = ("modprobe", "/bin/sh")
    optional_programs = ("udevadm",)
    lines: Tuple[Line, ...]
    policies: Tuple[SetPolicy, ...]


@frozen
class ConnectTold(RoomAction):
    """Connect what discovery controllers tell of that are connected only now, with what is declared of it."""

    programs = Connect.programs
    # By the last of these it reads what a discovery controller tells.
    optional_programs = (*Connect.optional_programs, sys.executable)
    declaration: NvmeOfDeclaration


@frozen
class Disconnect(RoomAction):
    """End the connection of this controller, as the kernel calls it, which may have ended meanwhile."""

    controller: str
    name: str


def restore(state: NvmeOfState) -> NvmeOfDesired:
    """What ``state: absent`` wants: only the connections from before us, with the values that they had.

    Raises ``ValueError`` on what was never recorded.
    """
    before = state.declaration.before
    end: List[Key] = []
    numbers: Dict[Key, Dict[str, int]] = {}
    policies: Dict[str, str] = {}
    unmanaged: List[Unmanaged] = []
    made = {key_of(identity) for identity, setting in before if setting == CONNECTION}
    for (identity, setting), value in before.items():
        # What a connection was made with goes with it.
        if identity in state.identity_files or setting == AUTHENTICATION:
            continue
        if setting == POLICY:
            nqn = identity.partition(" ")[2]
            if isinstance(value, str) and value and nqn in state.subsystems:
                policies[nqn] = value
            continue
        key = key_of(identity)
        if setting == CONNECTION:
            end += [key] if key in state.controllers else []
        elif setting not in NUMBERS:
            raise ValueError(f"{setting!r} is not a setting of a connection")
        elif key not in made and isinstance(value, int):
            if key in state.controllers:
                numbers.setdefault(key, {})[setting] = value
            else:
                unmanaged.append(Unmanaged(name_of(key), setting, GONE))
    ended = {key[0] for key in end}
    identity_files: Dict[str, Optional[str]] = {path: None for path in state.identity_files if _made(state, path)}
    return NvmeOfDesired(
        end=tuple(end),
        numbers=with_loss(numbers, state.controllers),
        # Of a subsystem that goes with its connections nothing is left to give back.
        policies={nqn: policy for nqn, policy in policies.items() if nqn not in ended},
        identity=identity_files,
        start=systemd.DISABLED if state.unit.text is not None or state.status == systemd.ENABLED else None,
        unmanaged=tuple(unmanaged),
    )


def _made(state: NvmeOfState, path: str) -> bool:
    """Whether a file of the identity was made by us."""
    return any(identity == path and value is None for (identity, _setting), value in state.declaration.before.items())


def steps_of(
    state: NvmeOfState,
    desired: NvmeOfDesired,
    rows: Sequence[Setting],
    beside: Sequence[Setting],
    later: Sequence[Setting],
) -> Tuple[Step, ...]:
    """The identity first, by which targets know who connects; what ends is ended before its files are removed."""
    differing = [row for row in rows if row.effective_matters and row.effective != row.wanted and not row.pending]
    refuse_in_use(state, [key for key in desired.end if key in state.controllers])
    of_unit = _unit_steps(state, desired, beside)
    of_later = _later_steps(state, desired, later)
    missing = state.discovered.missing if any(row.boot_matters and row.boot is None for row in rows) else ""
    return (
        *([Step(Refuse(not_persisted(missing)))] if missing else []),
        *_identity_steps(desired, rows),
        *_end_steps(state, desired, differing),
        *_connect_steps(state, desired, differing),
        *_value_steps(state, desired, differing),
        # Our line for a discovery controller says that there are files of it: it comes before them, and goes last.
        *((*of_unit, *of_later) if any(desired.later) else (*of_later, *of_unit)),
    )


def _later_steps(state: NvmeOfState, desired: NvmeOfDesired, later: Sequence[Setting]) -> Sequence[Step]:
    if state.discovered.later is None:
        return ()
    unit, rules = desired.later
    return hotplug.steps(state.discovered.later, later, unit=unit, rules=rules)


def _identity_steps(desired: NvmeOfDesired, rows: Sequence[Setting]) -> List[Step]:
    steps = []
    for row in rows:
        if row.object in desired.identity and row.status != IN_SYNC:
            text = desired.identity[row.object]
            action = RemoveFile(row.object) if text is None else ReplaceFile(row.object, f"{text}\n")
            steps.append(Step(action, (effective_change(row), boot_change(row)), probes=(row.object,)))
    return steps


def _end_steps(state: NvmeOfState, desired: NvmeOfDesired, differing: Sequence[Setting]) -> List[Step]:
    by_name = {row.object: row for row in differing if row.setting == CONNECTION and row.wanted is None}
    return [
        Step(Disconnect(state.controllers[key].name, name_of(key)), (effective_change(by_name[name_of(key)]),))
        for key in desired.end
        if name_of(key) in by_name
    ]


def _connect_steps(state: NvmeOfState, desired: NvmeOfDesired, differing: Sequence[Setting]) -> List[Step]:
    names = {row.object for row in differing if row.setting == CONNECTION and row.wanted is not None}
    handed = tuple(line for line in desired.lines if line.name in names)
    if not handed:
        return []
    coming = [row for row in differing if row.setting == POLICY and row.effective is None]
    policies = tuple(SetPolicy(row.object, str(row.wanted)) for row in coming)
    # What is handed over with the connection is set by it.
    changes = tuple(effective_change(row) for row in differing if row.object in names or row in coming)
    steps = [Step(Connect(handed, policies), changes)]
    if any(name_of(one.key) in names for one in desired.connections if one.nqn == DISCOVERY):
        steps.append(Step(ConnectTold(state.declaration)))
    return steps


def _value_steps(state: NvmeOfState, desired: NvmeOfDesired, differing: Sequence[Setting]) -> List[Step]:
    steps = []
    there = {name_of(key): controller for key, controller in state.controllers.items()}
    drifted = {(row.object, row.setting) for row in differing}
    for row in differing:
        if row.setting == POLICY and row.effective is not None:
            steps.append(Step(SetPolicy(row.object, str(row.wanted)), (effective_change(row),)))
        elif row.setting in NUMBERS and row.object in there:
            path = f"{targets.CONTROLLERS}/{there[row.object].name}/{NUMBERS[row.setting].file}"
            steps.append(Step(WriteAttribute(path, str(row.wanted)), (effective_change(row),), probes=(path,)))
            loss = desired.numbers[there[row.object].key].get(LOSS)
            if row.setting == DELAY and loss is not None and (row.object, LOSS) not in drifted:
                # It has changed with the other one, from what it should be.
                path = f"{targets.CONTROLLERS}/{there[row.object].name}/{NUMBERS[LOSS].file}"
                steps.append(Step(WriteAttribute(path, str(loss)), probes=(path,)))
    return steps


def _unit_steps(state: NvmeOfState, desired: NvmeOfDesired, beside: Sequence[Setting]) -> List[Step]:
    wrong = {row.setting: row for row in beside if row.status != IN_SYNC}
    write, reload = state.unit.steps(wrong.get("unit"), desired.unit_text)
    start = [units.start_step(wrong[units.START], state.status)] if units.START in wrong else []
    return [*write, *start, *reload] if desired.unit_text is not None else [*start, *write, *reload]
