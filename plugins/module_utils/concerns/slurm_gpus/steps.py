# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps from the node as Slurm has it to what is wanted, what is in their way, and what was there before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.baseline import damaged
from ..._core.change import Blocker, Change, ReplaceFile, RoomAction, Step
from ..._core.errors import InUse
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import Scalar, Setting
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._machine.slurm_answers import named
from ..._text.slurm_conf import counts_of, node_line, with_value
from .edits import with_gres
from .gres_conf import text_without
from .resolve import CONSTRAIN, GRES, GRES_TYPES, LINES, OF_GPUS
from .spec import NAME
from .state import NOTE, SLURMCTLD, SLURMD, SlurmDesired

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from .state import SlurmState


@frozen
class RestartSlurm(RoomAction):
    """Restart these units in their order, and wait until slurmctld has ``node`` registered with ``gres``.

    Where slurmctld has drained it for its number of GPUs, end that.
    """

    node: str
    gres: Tuple[str, ...]
    units: Tuple[str, ...]


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


def steps_of(state: SlurmState, desired: SlurmDesired, wrong: List[Setting]) -> List[Step]:
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
        gres = counts_of(desired.gres if GRES in desired.managed else state.live.gres if state.live else None)
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


def blocker(state: SlurmState, steps: Tuple[Step, ...]) -> Optional[Blocker]:
    live = state.live
    if live is None or not (live.occupied or state.jobs):
        return None
    settings = [change.setting for step in steps for change in step.changes]
    if not any(setting in OF_GPUS for setting in settings):
        return None
    error = InUse(
        "change the GPUs of {} in Slurm",
        object=state.node,
        cause="jobs are on it, and Slurm ends those whose GPUs go",
        found=named(state.jobs) if state.jobs else live.state,
        hint="drain it first, as the playbook site does with drain_backend, and run again",
    )
    return Blocker(error)
