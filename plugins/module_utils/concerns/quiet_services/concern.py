# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``quiet_services``: units that disturb the work of a GPU node are off, now and at every boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Tuple

from ..._core.change import Plan, Step
from ..._core.errors import DeclarationError
from ..._core.nearest import QUESTION
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import replace
from ..._kinds import units
from ..._kinds.units import RUNNING, STOPPED
from ..._linux.systemd import DAEMON_RELOAD, DISABLED, MASKED, STATIC
from .observation import observe
from .options import OPTIONS
from .spec import GOAL, MASK, NAME, QuietServicesDeclaration, parse
from .state import JOB, QuietServicesDesired, QuietServicesState, Unit, Want

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


class QuietServices:
    """``convergence.Concern`` for units that shall be off."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration()

    def parse(self, params: Mapping[str, Any]) -> QuietServicesDeclaration:
        return parse(params)

    def knobs(self, declaration: QuietServicesDeclaration) -> Tuple[str, ...]:
        return tuple(dict.fromkeys(f"unit {unit.name}" for unit in declaration.units))

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> QuietServicesDeclaration:
        # The record has the declaration on the node too.
        names = (name for name, _setting in baseline.values if not name.startswith("/"))
        return QuietServicesDeclaration(known=tuple(dict.fromkeys(names)))

    def observe(self, host: Host, declaration: QuietServicesDeclaration, scope: Scope) -> QuietServicesState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: QuietServicesDeclaration, state: QuietServicesState) -> QuietServicesDesired:
        for unit in state.lacking:
            if not unit.optional:
                near = state.nearest.get(unit.name)
                otherwise = "leave it out, or set optional: true for it"
                raise DeclarationError(
                    GOAL,
                    object=unit.name,
                    cause="this machine has no such unit",
                    hint=f"{QUESTION} {near}? Otherwise {otherwise}" if near else otherwise,
                )
        wants = {
            name: Want(_off(state.units[name], method), STOPPED if state.units[name].service else None)
            for name, method in state.methods.items()
        }
        return QuietServicesDesired(wants, declaration.stop_jobs)

    def restore(self, baseline: Baseline, state: QuietServicesState) -> QuietServicesDesired:
        from .restore import restore

        return restore(baseline, state)

    def plan(self, state: QuietServicesState, desired: QuietServicesDesired, scope: Scope) -> Plan:
        rows: List[Setting] = []
        for name, want in desired.wants.items():
            unit = state.units[name]
            if scope.permanent:
                rows += units.start_row(name, want.start, unit.status)
            if scope.immediate and want.service is not None and unit.service is not None:
                rows.append(_service_row(unit, want.service, state, desired))
        if scope.immediate and not scope.restoring:
            rows += [_job_row(unit, desired) for unit in state.jobs]
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in rows):
            from .plan import refuse_impossible, steps_of

            if not scope.restoring:
                refuse_impossible(state, rows)
            steps = steps_of(state, rows)
        return Plan(tuple(rows), steps, desired.unmanaged, () if scope.restoring else state.starters)

    def perform(self, step: Step, host: Host) -> None:
        from ..._kinds import steps

        steps.perform(step, host)

    def report(self, state: QuietServicesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        seen: Sequence[Unit] = (*state.units.values(), *state.jobs)
        return (
            {"units": {unit.name: unit.service for unit in seen}},
            {"units": {unit.name: unit.status for unit in state.units.values()}},
        )


CONCERN = QuietServices()


def _off(unit: Unit, method: str) -> str:
    """The status of a unit that is off. A mask is more than what ``disable`` does, whoever made it."""
    if method == MASK or unit.status == MASKED:
        return MASKED
    return DISABLED if unit.installable else STATIC


def _service_row(unit: Unit, wanted: str, state: QuietServicesState, desired: QuietServicesDesired) -> Setting:
    if unit.job and wanted == STOPPED:
        return _job_row(unit, desired)
    if wanted == RUNNING and unit.masked_now and state.blocker:
        row = units.service_row(unit.name, wanted, STOPPED, f"systemd must reload it, and {state.blocker}")
        return replace(row, needs=DAEMON_RELOAD)
    return units.service_row(unit.name, wanted, unit.service or STOPPED)


def _job_row(unit: Unit, desired: QuietServicesDesired) -> Setting:
    """A job that a timer began, such as the installation of a package, is not cut short without a word."""
    pending = "" if desired.stop_jobs else "the job that it is at is not stopped; set stop_jobs: true to stop it"
    row = units.service_row(unit.name, STOPPED, RUNNING, pending)
    return replace(row, setting=JOB, needs=f"end of {unit.name}")
