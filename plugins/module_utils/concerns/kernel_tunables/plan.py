# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps to what is declared of sysctl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Step
from ..._core.planning import boot_change, effective_change
from ..._core.setting import DRIFTED, Setting
from ..._kinds import tunables
from .keys import DEFAULT_RT_PERIOD, RT_PERIOD, ZEROED, in_order
from .state import FILE, PROC, RULES

if TYPE_CHECKING:
    from .state import KernelTunablesState


def plan_steps(
    rows: Sequence[Setting], state: KernelTunablesState, text: Optional[str], rules: Optional[str]
) -> Tuple[Step, ...]:
    """The running system first, so that a value which the kernel refuses is in no file."""
    return (*_effective(rows, state), *_at_boot(rows, state, text, rules))


def _effective(rows: Sequence[Setting], state: KernelTunablesState) -> List[Step]:
    differing: Dict[str, Setting] = {
        row.identity[len(PROC) + 1 :]: row
        for row in rows
        if row.effective_matters and row.effective != row.wanted and not row.pending and row.identity.startswith(PROC)
    }
    values = {key: str(row.wanted) for key, row in differing.items()}
    period = state.found.get(RT_PERIOD)
    steps = []
    for key in in_order(values, int(period) if period else DEFAULT_RT_PERIOD):
        other = ZEROED.get(key, "")
        # One write changes both of such a pair: that of the one which is to have a value.
        if other in differing and differing[key].wanted == 0 and differing[other].wanted != 0:
            continue
        changes = [effective_change(differing[one]) for one in (key, other) if one in differing]
        steps.append(tunables.write_step(f"{PROC}/{key}", *changes))
    return steps


def _at_boot(
    rows: Sequence[Setting], state: KernelTunablesState, text: Optional[str], rules: Optional[str]
) -> List[Step]:
    by_file: Mapping[str, Setting] = {row.identity: row for row in rows if row.identity in (FILE, RULES)}
    steps = []
    if RULES in by_file and by_file[RULES].status == DRIFTED:
        steps.append(state.rules.step(rules, [boot_change(by_file[RULES])]))
    differing = [row for row in rows if row.boot_matters and row.boot != row.wanted and row.identity != RULES]
    if differing:
        steps.append(state.file.step(text, map(boot_change, differing)))
    return steps
