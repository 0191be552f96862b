# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the node as Slurm has it to what is wanted: its files, its daemons, and a drain that is over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.baseline import damaged
from ..._core.change import Blocker, Change, Conflict, Plan, ReplaceFile, RoomAction, Step
from ..._core.declared import WANTED
from ..._core.errors import InUse
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import frozen, replace
from ..._core.wording import counted
from ..._kinds.own_files import OTHERS, header_of
from ..._kinds.units import NOT_READ, RUNNING, SERVICE
from .gres_conf import AUTO_DETECT, NAMES, muted_in, ours_in, text_without, theirs_in
from .resolve import CONSTRAIN, GRES, GRES_TYPES, LINES
from .slurm_conf import node_line, resource_name, resources, value_of, with_gres, with_value
from .spec import NAME
from .state import FAILED, NOTE, SLURMCTLD, SLURMD, SlurmDesired

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from .gres_conf import GresLine
    from .state import SlurmState

THEIRS, BLOCK = "lines of others", "block"
DRAINED = "drained by Slurm"
REGISTRATION, VALID = "registration", "valid"
RESTART_SLURMCTLD = "restart_slurmctld"
ELSEWHERE = "slurmctld, which runs on another host, must have it in its slurm.conf and be restarted"
# Which GPUs there are: what must not change while jobs have them.
OF_GPUS = (*NAMES, AUTO_DETECT, THEIRS, GRES)


@frozen
class RestartSlurm(RoomAction):
    """Restart these units in their order, and wait until slurmctld has ``node`` registered with ``gres``.

    Where slurmctld has drained it for its number of GPUs, end that.
    """

    node: str
    gres: Tuple[str, ...]
    units: Tuple[str, ...]


def plan(state: SlurmState, desired: SlurmDesired, scope: Scope) -> Plan:
    rows = tuple(_rows(state, desired, scope))
    conflicts = () if scope.restoring or not desired.lines else _conflicts(state)
    wrong = [row for row in rows if row.status != IN_SYNC]
    if not wrong:
        return Plan(rows, (), desired.unmanaged, conflicts)
    steps = tuple(_steps(state, desired, wrong))
    return Plan(rows, steps, desired.unmanaged, conflicts, _blocker(state, steps))


def restore(baseline: Baseline, state: SlurmState) -> SlurmDesired:
    """The values of before, and no line of ours."""
    values: Dict[str, Optional[str]] = {}
    for (_identity, setting), value in baseline.values.items():
        if setting in (GRES, GRES_TYPES, CONSTRAIN):
            if not isinstance(value.boot, (str, type(None))):
                raise damaged(NAME, f"{value.boot!r} is not a value of {setting}")
            values[setting] = value.boot
    return SlurmDesired(
        gres_text=text_without(state.gres.text),
        gres=values.get(GRES),
        types=values.get(GRES_TYPES),
        constrain=values.get(CONSTRAIN),
        managed=(LINES, *values),
    )


def identity(state: SlurmState) -> str:
    """What the Gres= of the node is known by: the file, and the name in it."""
    return f"{state.slurm_path}:{state.node}"


# --- settings ---------------------------------------------------------------------------------------------------------


def _rows(state: SlurmState, desired: SlurmDesired, scope: Scope) -> List[Setting]:
    counts = scope.immediate and state.daemons.slurmd is not None and not state.foreign
    rows = _file_rows(state, desired, counts) if LINES in desired.managed else []
    if GRES in desired.managed and state.line is not None:
        rows.append(_gres_row(state, desired, scope))
    slurm, file = state.slurm or "", state.cgroup
    if GRES_TYPES in desired.managed and state.slurm is not None:
        found = value_of(slurm, GRES_TYPES)
        path = state.slurm_path
        rows.append(Setting(path, GRES_TYPES, desired.types, found, found, path, effective_matters=False))
    if CONSTRAIN in desired.managed:
        found, read = (_same(value_of(text or "", CONSTRAIN), desired.constrain) for text in (file.text, file.read))
        path, now = file.path, read if file.known else NOT_READ
        rows.append(Setting(path, CONSTRAIN, desired.constrain, now, found, path, effective_matters=counts))
    if scope.immediate and desired.auto is not None:
        rows += _daemon_rows(state, desired)
    return rows


def _same(found: Optional[str], wanted: Optional[str]) -> Optional[str]:
    """A value in the capitals of what is wanted."""
    return wanted if found is not None and wanted is not None and found.lower() == wanted.lower() else found


def _file_rows(state: SlurmState, desired: SlurmDesired, counts: bool) -> List[Setting]:
    file, node = state.gres, state.node
    auto, lines = ours_in(file.text)
    auto_read, lines_read = ours_in(file.read)
    if not (desired.auto or auto or auto_read or muted_in(file.text)):
        return []

    def row(name: str, setting: str, wanted: Optional[str], read: Optional[str], found: Optional[str]) -> Setting:
        effective = read if file.known else NOT_READ
        return Setting(name, setting, wanted, effective, found, name, effective_matters=counts)

    rows = [row(file.path, AUTO_DETECT, desired.auto, auto_read, auto)]
    wanted, read, there = map(_by_device, (desired.lines, lines_read, lines))
    for key in dict.fromkeys((*wanted, *there, *read)):
        rows.append(row(*key, wanted.get(key), read.get(key), there.get(key)))
    found = _count_of_theirs(file.text, node)
    theirs = row(file.path, THEIRS, _count_of_theirs(desired.gres_text, node), _count_of_theirs(file.read, node), found)
    rows.append(theirs)
    if desired.gres_text != file.text and all(one.boot == one.wanted for one in rows):
        # Our block is damaged in a way that no value shows.
        rows.append(Setting(file.path, BLOCK, WANTED, OTHERS, OTHERS, file.path, effective_matters=False))
    return rows


def _count_of_theirs(text: Optional[str], node: str) -> Optional[str]:
    """How many lines of others count for the GPUs of the node, None for none."""
    count = len(theirs_in(text, node))
    return counted(count, "line") if count else None


def _by_device(lines: Tuple[GresLine, ...]) -> Mapping[Tuple[str, str], str]:
    return {(line.device, line.name): line.value for line in lines}


def _gres_row(state: SlurmState, desired: SlurmDesired, scope: Scope) -> Setting:
    line = state.line
    found = line.gres if line is not None else None
    live = state.live
    now = found if live is None else live.gres or None
    wanted = desired.gres
    return Setting(
        object=state.node,
        setting=GRES,
        wanted=wanted,
        effective=wanted if resources(now) == resources(wanted) else now,
        boot=wanted if resources(found) == resources(wanted) else found,
        identity=identity(state),
        effective_matters=scope.immediate and live is not None,
        pending="" if live is None or state.daemons.controller else ELSEWHERE,
        needs=RESTART_SLURMCTLD,
    )


def _daemon_rows(state: SlurmState, desired: SlurmDesired) -> List[Setting]:
    from ..._machine.slurm_answers import INVALID

    rows: List[Setting] = []
    if state.daemons.failed:
        rows.append(Setting(SLURMD, SERVICE, RUNNING, FAILED, None, SLURMD, boot_matters=False))
    live, name = state.live, state.node
    if live is None:
        return rows
    # Until slurmctld has the count, nothing that is done here makes the node valid.
    waits = not state.daemons.controller and resources(live.gres) != resources(desired.gres)
    pending = ELSEWHERE if waits else ""
    if live.has(INVALID):
        found = f"invalid: {live.reason}" if live.reason else "invalid"
        row = Setting(name, REGISTRATION, VALID, found, None, name, boot_matters=False, pending=pending)
        rows.append(replace(row, needs=RESTART_SLURMCTLD))
    if state.too_few:
        row = Setting(name, DRAINED, None, state.too_few, None, name, boot_matters=False, pending=pending)
        rows.append(replace(row, needs=RESTART_SLURMCTLD))
    return rows


# --- steps ------------------------------------------------------------------------------------------------------------


def _steps(state: SlurmState, desired: SlurmDesired, wrong: List[Setting]) -> List[Step]:
    """What slurmd is about to lose sight of, the files, and the daemons that read them."""
    late = {(row.object, row.setting): row for row in wrong if row.boot_matters and row.boot != row.wanted}
    written: List[Step] = []
    if LINES in desired.managed and desired.gres_text != state.gres.text:
        others = ((state.node, GRES), (state.slurm_path, GRES_TYPES), (state.cgroup.path, CONSTRAIN))
        changes = tuple(boot_change(row) for key, row in late.items() if key not in others)
        written.append(_write(state.gres.path, desired.gres_text, changes))
    written += _slurm_conf(state, desired, late)
    constrain = late.get((state.cgroup.path, CONSTRAIN))
    if constrain is not None:
        text = _cgroup_text(state.cgroup.text, desired.constrain)
        written.append(_write(state.cgroup.path, text, (boot_change(constrain),)))
    process = state.daemons.slurmd
    due = [row for row in wrong if row.effective_matters and row.effective != row.wanted and not row.pending]
    if written and process is not None:
        texts = {file.path: file.read for file in (state.gres, state.cgroup) if file.known}
        note = json.dumps({"process": process.identity, "texts": texts}, sort_keys=True) + "\n"
        written.insert(0, Step(ReplaceFile(NOTE, note), notes=(NOTE,)))
    if due:
        gres = resources(desired.gres if GRES in desired.managed else state.live.gres if state.live else None)
        # slurmctld first: it takes another count only when it starts, and slurmd is measured by it.
        count = state.daemons.controller and any(row.setting == GRES for row in due)
        units = (SLURMCTLD, SLURMD) if count else (SLURMD,)
        written.append(Step(RestartSlurm(state.node, gres, units), tuple(map(effective_change, due))))
    return written


def _slurm_conf(state: SlurmState, desired: SlurmDesired, late: Mapping[Tuple[str, str], Setting]) -> List[Step]:
    rows = [row for key, row in late.items() if key in ((state.node, GRES), (state.slurm_path, GRES_TYPES))]
    if not rows or state.slurm is None:
        return []
    text = state.slurm
    for row in rows:
        if row.setting == GRES_TYPES:
            text = with_value(text, GRES_TYPES, desired.types)
            continue
        node = node_line(text, state.node)
        if node is not None:
            text = with_gres(text, node, desired.gres)
    return [_write(state.slurm_path, text, tuple(map(boot_change, rows)))]


def _cgroup_text(text: Optional[str], value: Scalar) -> Optional[str]:
    header = header_of(NAME)
    if text is None:
        return None if value is None else f"{header}{CONSTRAIN}={value}\n"
    found = with_value(text, CONSTRAIN, None if value is None else str(value))
    # With the header there is nothing but what we wrote.
    return None if found == header else found


def _write(path: str, text: Optional[str], changes: Tuple[Change, ...]) -> Step:
    return Step(file_action(path, text), changes, probes=(path,))


def _blocker(state: SlurmState, steps: Tuple[Step, ...]) -> Optional[Blocker]:
    live = state.live
    if live is None or not live.occupied:
        return None
    settings = [change.setting for step in steps for change in step.changes]
    if not any(setting in OF_GPUS for setting in settings):
        return None
    error = InUse(
        "change the GPUs of {} in Slurm",
        object=state.node,
        cause="jobs are on it, and Slurm ends those whose GPUs go",
        found=live.state,
        hint="drain it first, as the playbook site does with drain_backend, and run again",
    )
    return Blocker(error)


# --- others -----------------------------------------------------------------------------------------------------------


def _conflicts(state: SlurmState) -> Tuple[Conflict, ...]:
    """Lines that we take out of use, and who will write the file again."""
    found = [
        Conflict(
            "gres.conf", state.gres.path, line.first, resource_name(line.pairs.get("name", AUTO_DETECT)), "set", "us"
        )
        for line in theirs_in(state.gres.text, state.node)
    ]
    for path, text in ((state.gres.path, state.gres.text), (state.slurm_path, state.slurm)):
        for number, raw in enumerate((text or "").splitlines(), 1):
            if raw.startswith("#") and "ansible managed" in raw.lower():
                owner = "a template of Ansible (DeepOps, openhpc)"
                found.append(Conflict(owner, path, number, "the whole file", "written again at its next run", "them"))
    return tuple(found)
