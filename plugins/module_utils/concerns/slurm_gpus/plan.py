# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the node as Slurm has it to what is wanted: its files, its daemons, and a drain that is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional, Tuple

from ..._core.change import THEM, US, Conflict, Plan
from ..._core.declared import WANTED
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import replace
from ..._core.wording import counted
from ..._kinds.own_files import OTHERS
from ..._kinds.units import NOT_READ, RUNNING, SERVICE
from ..._text.slurm_conf import SHARES, counts_of, resource_name, resources, value_of
from .gres_conf import AUTO_DETECT, muted_in, ours_in, theirs_in
from .resolve import CONSTRAIN, GRES, GRES_TYPES, LINES, THEIRS
from .state import FAILED, SLURMD, TOO_FEW, SlurmDesired

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .gres_conf import GresLine
    from .state import SlurmState

BLOCK = "block"
DRAINED = "drained by Slurm"
REGISTRATION, VALID = "registration", "valid"
RESTART_SLURMCTLD = "restart_slurmctld"
ELSEWHERE = "slurmctld, which runs on another host, must have it in its slurm.conf and be restarted"


def plan(state: SlurmState, desired: SlurmDesired, scope: Scope) -> Plan:
    rows = tuple(_rows(state, desired, scope))
    conflicts = () if scope.restoring or not desired.lines else _conflicts(state)
    wrong = [row for row in rows if row.status != IN_SYNC]
    if not wrong:
        return Plan(rows, (), desired.unmanaged, conflicts)
    from .steps import blocker, steps_of

    steps = tuple(steps_of(state, desired, wrong))
    return Plan(rows, steps, desired.unmanaged, conflicts, blocker(state, steps))


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
        effective=wanted if counts_of(now) == counts_of(wanted) else now,
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
    waits = not state.daemons.controller and (
        counts_of(live.gres) != counts_of(desired.gres)
        or (live.has(INVALID) and _asks_for_others(live.reason, desired))
    )
    pending = ELSEWHERE if waits else ""
    if live.has(INVALID):
        found = f"invalid: {live.reason}" if live.reason else "invalid"
        row = Setting(name, REGISTRATION, VALID, found, None, name, boot_matters=False, pending=pending)
        rows.append(replace(row, needs=RESTART_SLURMCTLD))
    if state.too_few:
        row = Setting(name, DRAINED, None, state.too_few, None, name, boot_matters=False, pending=pending)
        rows.append(replace(row, needs=RESTART_SLURMCTLD))
    return rows


def _asks_for_others(reason: str, desired: SlurmDesired) -> bool:
    """Whether slurmctld misses what is not wanted: its slurm.conf has others, whatever it shows as Gres=."""
    said = TOO_FEW.fullmatch(reason)
    if said is None or (said["type"] and said["name"] in SHARES):
        return False
    wanted = [part.split(":") for part in counts_of(desired.gres)]
    missed = said["type"] and [said["type"].lower()]
    counts = [int(count) for name, *kind, count in wanted if name == said["name"] and missed in (None, kind)]
    return sum(counts) != int(said["count"])


# --- others -----------------------------------------------------------------------------------------------------------


def _conflicts(state: SlurmState) -> Tuple[Conflict, ...]:
    """Lines that we take out of use, and who will write the file again."""
    found = [
        Conflict(
            "gres.conf",
            state.gres.path,
            line.first,
            state.node,
            resource_name(line.pairs.get("name", AUTO_DETECT)),
            "set",
            US,
        )
        for line in theirs_in(state.gres.text, state.node)
    ]
    for path, text in ((state.gres.path, state.gres.text), (state.slurm_path, state.slurm)):
        for number, raw in enumerate((text or "").splitlines(), 1):
            if raw.startswith("#") and "ansible managed" in raw.lower():
                owner = "a template of Ansible (DeepOps, openhpc)"
                found.append(Conflict(owner, path, number, path, "content", "written again at its next run", THEM))
    return tuple(found)
