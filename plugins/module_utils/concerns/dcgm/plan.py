# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From DCGM and its exporter as they are to what is wanted, and who else has a say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from ..._core.change import US, Conflict, Plan, Step
from ..._core.errors import OwnedByAnother
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import replace
from ..._kinds import units
from ..._kinds.units import NOT_READ, RUNNING, STOPPED
from ..._linux import systemd
from ..._linux.packages import INSTALLED, NOT_INSTALLED
from .state import COUNTERS, METRIC, DcgmDesired, DcgmState, unit_files
from .state import HEALTH as WATCHES

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .metrics import Metric

# What the packages of the role bring, before the module is run.
PROGRAM = "program"


def plan(state: DcgmState, desired: DcgmDesired, scope: Scope) -> Plan:
    settings = _settings(state, desired, scope)
    steps: Tuple[Step, ...] = ()
    if any(setting.status != IN_SYNC for setting in settings):
        if not scope.restoring:
            refuse_owners(state, desired)
        from .steps import steps_of

        steps = tuple(steps_of(state, desired, settings, scope))
    conflicts: Tuple[Conflict, ...] = ()
    if desired.drop_in is not None and not scope.restoring:
        # Ours keeps what they say of other options.
        overruled = state.exporter.overruled
        conflicts = tuple(
            Conflict("systemd drop-in", path, None, state.exporter.service.name, "ExecStart", line, US)
            for path, line in overruled
        )
    return Plan(settings, steps, desired.unmanaged, conflicts)


def refuse_owners(state: DcgmState, desired: DcgmDesired) -> None:
    """Raises where somebody else runs the same, or overrules our drop-in."""
    for unit, who in state.others.items():
        if desired.services.get(unit) == RUNNING:
            hints = {
                state.engine.name: "stop it, or leave host_engine out for nodes of the GPU Operator",
                state.exporter.service.name: "stop it, or leave exporter out for nodes of the GPU Operator",
            }
            raise OwnedByAnother("start {}", object=unit, cause=who, hint=hints[unit])
    if desired.drop_in is not None and state.exporter.later:
        raise OwnedByAnother(
            "choose the metrics of {}",
            object=state.exporter.service.name,
            cause=f"{state.exporter.later} is read after {state.exporter.drop_in.path}, and sets ExecStart= too",
            hint="remove ExecStart= from it, or leave the exporter out of the declaration",
        )


# --- settings ---------------------------------------------------------------------------------------------------------


def _settings(state: DcgmState, desired: DcgmDesired, scope: Scope) -> Tuple[Setting, ...]:
    rows = [package.row for package in desired.packages]
    rows += [Setting(unit, PROGRAM, INSTALLED, NOT_INSTALLED, NOT_INSTALLED, unit) for unit in desired.lacking]
    if scope.permanent:
        for file, text in unit_files(state, desired):
            rows += file.rows_in(text, immediate=scope.immediate)
        statuses = _statuses(state)
        for unit, wanted in desired.starts.items():
            rows += units.start_row(unit, wanted, statuses[unit])
    rows += _counter_rows(state, desired, scope)
    if scope.immediate:
        rows += _service_rows(state, desired)
        if desired.watches is not None and state.engine.active is not None:
            found = state.no_watches or state.watches
            row = Setting(state.engine.name, WATCHES, desired.watches, found, None, state.engine.name)
            rows.append(replace(row, boot_matters=False, pending=state.health.pending(), needs=systemd.DAEMON_RELOAD))
    return tuple(rows)


def _statuses(state: DcgmState) -> Dict[str, str]:
    """What a boot makes of each unit. One of ours that is not there does not start, as one that is disabled."""
    services = [state.engine, state.exporter.service, state.health_service, *([state.twin] if state.twin else [])]
    found = {service.name: service.status for service in services}
    ours = [state.health_service.name, *([] if state.exporter.shipped else [state.exporter.service.name])]
    return {**found, **{name: systemd.DISABLED for name in ours if found[name] == systemd.NOT_FOUND}}


def _counter_rows(state: DcgmState, desired: DcgmDesired, scope: Scope) -> List[Setting]:
    """The file of counters, and each metric: what the exporter shows, and what it will at its next start."""
    exporter, file = state.exporter, state.counters
    goal, found = file.described(desired.counters)
    ours = exporter.reads == file.path
    if goal is None and found is None and not ours:
        return []
    runs = bool(exporter.service.active) and desired.services.get(exporter.service.name) != STOPPED
    by_start = desired.services.get(exporter.service.name) == RUNNING and exporter.service.active is False
    current = exporter.read and (desired.counters is None or desired.counters == file.text)
    pending = exporter.pending
    rows = [
        Setting(
            object=file.path,
            setting=COUNTERS,
            wanted=goal,
            effective=(found if current and goal is not None else NOT_READ) if ours else None,
            boot=found,
            identity=file.path,
            effective_matters=scope.immediate and (runs or by_start),
            boot_matters=scope.permanent,
            pending=pending,
            needs=systemd.DAEMON_RELOAD,
        )
    ]
    for name, metric in sorted(desired.metrics.items()):
        boot = state.at_boot.get(name)
        row = Setting(
            object=name,
            setting=METRIC,
            wanted=metric.type,
            effective=_shown(state, metric),
            boot=boot.type if boot else None,
            identity=name,
            effective_matters=scope.immediate and (runs or by_start),
            boot_matters=scope.permanent,
            pending=pending,
            needs=systemd.DAEMON_RELOAD,
        )
        rows.append(row)
    return rows


def _shown(state: DcgmState, metric: Metric) -> Optional[str]:
    """The type with which the exporter shows a metric; what has no value yet is as in the file that it has read."""
    exporter = state.exporter
    if not exporter.service.active:
        return None
    kind = (exporter.served or {}).get(metric.name)
    if kind is not None:
        return kind
    known = state.at_boot.get(metric.name) if exporter.read else None
    return known.type if known else None


def _service_rows(state: DcgmState, desired: DcgmDesired) -> List[Setting]:
    rows = []
    for service in (state.engine, state.exporter.service):
        wanted = desired.services.get(service.name)
        if wanted is not None and service.active is not None:
            pending = state.exporter.pending if service is state.exporter.service and wanted == RUNNING else ""
            row = units.service_row(service.name, wanted, service.service, pending)
            rows.append(replace(row, needs=systemd.DAEMON_RELOAD))
    return rows
