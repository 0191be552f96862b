# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps from DCGM and its exporter as they are to what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from ..._core.change import Change, Refuse, RoomAction, RunCommand, Step
from ..._core.errors import NoPackage
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen, replace
from ..._kinds import units
from ..._kinds.units import RUNNING, SERVICE, STOPPED
from ..._linux import systemd
from ..._linux.packages import PACKAGE
from ..._linux.systemd_apply import ReloadUnits, RunService
from .observation import DCGMI, HEALTH
from .state import COUNTERS, METRIC, DcgmDesired, DcgmState, unit_files
from .state import HEALTH as WATCHES

if TYPE_CHECKING:
    from ..._core.contract import Scope

Found = Dict[Tuple[str, str], Setting]


@frozen
class SetWatches(RunService):
    """Restart the unit that sets the health watches."""

    @property
    def programs(self) -> Tuple[str, ...]:
        return (*super().programs, DCGMI)


@frozen
class StartExporter(RoomAction):
    """Start or restart the exporter (``verb``), and wait until it answers at ``address`` or has ended."""

    programs = ("systemctl",)
    verb: str
    unit: str
    address: str

    @property
    def restarts(self) -> Tuple[str, ...]:
        return (self.unit,) if self.verb == "restart" else ()


def steps_of(state: DcgmState, desired: DcgmDesired, rows: Sequence[Setting], scope: Scope) -> List[Step]:
    """What is stopped first, then the next boot, then what runs: the engine, its watches, and the exporter."""
    lacking = [row for row in rows if row.setting == PACKAGE and row.status != IN_SYNC]
    if desired.lacking or lacking:
        return [Step(Refuse(_not_installed(desired, lacking)))]
    wrong = {(row.object, row.setting): row for row in rows if row.status != IN_SYNC}
    exporter = state.exporter.service.name
    services = [wrong[key] for key in wrong if key[1] == SERVICE and not wrong[key].pending]
    steps = [units.service_step(row) for row in reversed(services) if row.wanted == STOPPED]
    if scope.permanent:
        steps += _boot_steps(state, desired, wrong)
    steps += [units.service_step(row) for row in services if row.wanted == RUNNING and row.object != exporter]
    watches = wrong.get((state.engine.name, WATCHES))
    if watches is not None and not watches.pending:
        steps.append(_watch_step(watches, desired))
    steps += _exporter_steps(state, wrong)
    return steps


def _not_installed(desired: DcgmDesired, lacking: Sequence[Setting]) -> NoPackage:
    hint = "the role installs packages before it runs this module: check that they bring it"
    if desired.lacking:
        units, causes = ", ".join(desired.lacking), " and ".join(desired.lacking.values())
        return NoPackage("run {}", object=units, cause=causes, hint=hint)
    others = ", ".join(f"{row.object} is {row.effective}, wanted is {row.wanted}" for row in lacking)
    return NoPackage("use the packages of DCGM", cause=others, hint=hint)


def _boot_steps(state: DcgmState, desired: DcgmDesired, wrong: Found) -> List[Step]:
    """The file of counters before the units that name it, and after them where it goes."""
    late = [boot_change(row) for row in wrong.values() if row.setting == METRIC and _is_late(row)]
    counters = wrong.get((state.counters.path, COUNTERS))
    file_steps: List[Step] = []
    if counters is not None and counters.boot != counters.wanted:
        by_unit = any((file.path, file.setting) in wrong for file in (state.exporter.unit, state.exporter.drop_in))
        changes = [boot_change(counters), *([] if by_unit else late)]
        file_steps.append(state.counters.step(desired.counters, changes))
        late = late if by_unit else []
    writes: List[Step] = []
    reloads: List[Change] = []
    removed: List[Step] = []
    reload = False
    for file, text in unit_files(state, desired):
        write, read = file.steps(wrong.get((file.path, file.setting)), text)
        if write and file is not state.health and late:
            # From now on the next start reads the other file.
            write = (*write[:-1], replace(write[-1], changes=(*write[-1].changes, *late)))
            late = []
        (writes if text is not None else removed).extend(write)
        reload = reload or bool(read)
        reloads += [change for step in read for change in step.changes]
    links = [row for row in wrong.values() if row.setting == units.START]
    enabled = [units.start_step(row, str(row.boot)) for row in links if row.wanted == systemd.ENABLED]
    # systemctl takes links away only while the unit is there.
    disabled = [units.start_step(row, str(row.boot)) for row in links if row.wanted != systemd.ENABLED]
    if removed and state.health.text is not None and desired.health is None and state.health_service.active:
        disabled.insert(0, Step(RunService("stop", HEALTH)))
    steps = [*disabled, *writes, *removed]
    steps = [*steps, *file_steps] if desired.counters is None else [*file_steps, *steps]
    steps += enabled
    if reload or reloads:
        steps.append(Step(ReloadUnits(), tuple(reloads)))
    return steps


def _is_late(row: Setting) -> bool:
    return row.boot_matters and row.boot != row.wanted


def _watch_step(row: Setting, desired: DcgmDesired) -> Step:
    changes = (effective_change(row),)
    if desired.health is not None:
        return Step(SetWatches("restart", HEALTH), changes)
    flags = ("--set", desired.flags) if desired.flags else ("--clear",)
    return Step(RunCommand((DCGMI, "health", *flags), "set the health watches"), changes)


def _exporter_steps(state: DcgmState, wrong: Found) -> Sequence[Step]:
    """Start the exporter, or restart it where it has not read what it should."""
    service = state.exporter.service
    rows = [row for row in wrong.values() if row.setting in (COUNTERS, METRIC) and _is_due(row)]
    start = wrong.get((service.name, SERVICE))
    started = start is not None and start.wanted == RUNNING and not start.pending
    if not started and not (rows and service.active):
        return ()
    changes = [effective_change(row) for row in rows]
    if started and start is not None:
        changes.append(effective_change(start))
    verb = "restart" if service.active else "start"
    return (Step(StartExporter(verb, service.name, state.exporter.address), tuple(changes)),)


def _is_due(row: Setting) -> bool:
    return row.effective_matters and row.effective != row.wanted and not row.pending
