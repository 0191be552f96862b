# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must not be stopped or cannot be switched off, and the steps to units that are quiet or as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Sequence, Tuple

from ..._core.change import Step
from ..._core.errors import DeclarationError, InUse
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._kinds.units import RUNNING, SERVICE, START, STOPPED
from ..._linux.systemd import DISABLED, ENABLED, MASKED, NOT_FOUND, STATIC
from ..._linux.systemd_apply import ChangeUnitFiles, RunUnits

if TYPE_CHECKING:
    from .state import QuietServicesState

# They fail, and stay failed, if what they start is masked while they wait for their time.
TRIGGERS = (".timer", ".socket", ".path")


def refuse_impossible(state: QuietServicesState, rows: Sequence[Setting]) -> None:
    """Raise ``DeclarationError`` or ``InUse`` for what the steps could not do, or would do to others."""
    for row in rows:
        if row.status == IN_SYNC:
            continue
        name = row.object
        if row.setting == START and row.wanted == MASKED and name in state.in_place:
            raise DeclarationError(
                "mask {}",
                object=name,
                cause=f"{state.in_place[name]} is the unit itself, and stands where the mask would",
                hint="set method: disable for it, or move it to /usr/local/lib/systemd/system",
            )
        if row.setting == START and name in state.shipped:
            raise DeclarationError(
                "disable {}",
                object=name,
                cause=f"{state.shipped[name]} starts it, which comes with its package",
                hint="set method: mask for it",
            )
        if row.setting == SERVICE and name in state.in_use:
            other = state.in_use[name]
            raise InUse(
                "stop {}",
                object=name,
                cause=f"{other} runs, requires it, and would stop with it",
                hint=f"declare {other} as well, or leave {name} out",
            )


def steps_of(state: QuietServicesState, rows: Sequence[Setting]) -> Tuple[Step, ...]:
    """What starts others is stopped first; then the next boot, so that nothing starts again what is stopped last."""
    verbs: Dict[str, List[Setting]] = {}
    for row in rows:
        if row.setting == START and row.boot != row.wanted:
            for verb in _verbs(str(row.boot), str(row.wanted), state.units[row.object].beneath):
                verbs.setdefault(verb, []).append(row)
    running = [row for row in rows if row.setting != START and row.effective_matters and row.effective != row.wanted]
    due = [row for row in running if not row.pending]
    stopped = [row for row in due if row.wanted == STOPPED]
    steps = list(_run("stop", [row for row in stopped if row.object.endswith(TRIGGERS)]))
    for verb in ("unmask", "mask", "disable", "enable"):
        changed = verbs.get(verb, [])
        # The last verb of a unit makes the change.
        later = [row.object for other in ("disable", "enable") if verb == "unmask" for row in verbs.get(other, [])]
        if changed:
            changes = tuple(boot_change(row) for row in changed if row.object not in later)
            steps.append(Step(ChangeUnitFiles(verb, tuple(row.object for row in changed)), changes))
    steps += _run("stop", [row for row in stopped if not row.object.endswith(TRIGGERS)])
    steps += _run("start", [row for row in due if row.wanted == RUNNING])
    return tuple(steps)


def _run(verb: str, rows: Sequence[Setting]) -> Iterator[Step]:
    if rows:
        yield Step(RunUnits(verb, tuple(row.object for row in rows)), tuple(map(effective_change, rows)))


def _verbs(found: str, wanted: str, beneath: str) -> Tuple[str, ...]:
    """The verbs of systemctl that lead from one status to the other."""
    if wanted == MASKED:
        return ("mask",)
    left = beneath if found == MASKED else found
    verbs = ("unmask",) if found == MASKED else ()
    if left == wanted or wanted == NOT_FOUND:
        return verbs
    if wanted == ENABLED:
        return (*verbs, "enable")
    return (*verbs, "disable") if left == ENABLED and wanted in (DISABLED, STATIC) else verbs
