# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``rdma``: TODO, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Plan, Step
from ..._core.planning import effective_change
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import frozen, replace
from ..._kinds import tunables, units
from ..._linux import systemd
from .options import OPTIONS
from .spec import RdmaDeclaration, parse

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host

TUNABLE = "/proc/sys/TODO"
UNIT = "TODO.service"
DROP_IN = f"{systemd.ETC}/{UNIT}.d/gpufleet.conf"


@frozen
class RdmaState:
    """What was seen."""

    tunable: Optional[tunables.Tunable]
    at_boot: Scalar
    drop_in: units.UnitFile
    status: str


@frozen
class RdmaDesired:
    """What is wanted of this machine."""

    value: Scalar = None
    drop_in_text: Optional[str] = None
    start: Optional[str] = None


class Rdma:
    """``convergence.Concern`` for TODO."""

    name = "rdma"
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration()

    def parse(self, params: Mapping[str, Any]) -> RdmaDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> RdmaDeclaration:
        return RdmaDeclaration()

    def observe(self, host: Host, declaration: RdmaDeclaration, scope: Scope) -> RdmaState:
        return RdmaState(
            tunable=tunables.read(host.files, TUNABLE, "TODO"),
            # TODO: what the next boot brings, by tunables.read_sysctl, read_tuned and tmpfiles.d.
            at_boot=None,
            drop_in=units.unit_file(host, UNIT, DROP_IN, "drop-in", host.files.read_optional(DROP_IN)),
            status=systemd.enabled(host.files, UNIT),
        )

    def resolve(self, declaration: RdmaDeclaration, state: RdmaState) -> RdmaDesired:
        raise NotImplementedError("TODO: say what the declaration means on this machine")

    def restore(self, baseline: Baseline, state: RdmaState) -> RdmaDesired:
        raise NotImplementedError("TODO: say what was there before us")

    def plan(self, state: RdmaState, desired: RdmaDesired, scope: Scope) -> Plan:
        rows: List[Setting] = []
        one = state.tunable
        if one is not None:
            row = Setting(one.object, one.setting, desired.value, one.value, state.at_boot, one.path)
            rows.append(replace(row, effective_matters=scope.immediate, boot_matters=scope.carries))
        if scope.permanent:
            rows += state.drop_in.rows_in(desired.drop_in_text, immediate=scope.immediate)
            rows += units.start_row(UNIT, desired.start, state.status)
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in rows):
            steps = tuple(_steps(state, desired, rows))
        return Plan(tuple(rows), steps)

    def perform(self, step: Step, host: Host) -> None:
        from ..._kinds import steps

        steps.perform(step, host)

    def report(self, state: RdmaState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        raise NotImplementedError("TODO: say what is in effect, and what the next boot brings")


CONCERN = Rdma()


def _steps(state: RdmaState, desired: RdmaDesired, rows: Sequence[Setting]) -> List[Step]:
    """The next boot first, then the running system."""
    wrong = {row.setting: row for row in rows if row.status != IN_SYNC}
    steps: List[Step] = []
    for row in wrong.values():
        if row.identity == TUNABLE and row.effective_matters and row.effective != row.wanted:
            steps.append(tunables.write_step(TUNABLE, effective_change(row)))
    write, reload = state.drop_in.steps(wrong.get("drop-in"), desired.drop_in_text)
    steps += write
    if units.START in wrong:
        steps.append(units.start_step(wrong[units.START], state.status))
    steps += reload
    return steps
