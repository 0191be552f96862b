# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of slices, protected services and the launcher, and the steps from here to there.

A slice in which something runs is not changed: its processes would move to other CPUs, and their memory with them. One
in which nothing runs is stopped, and starts as its files then say with whatever is started in it next. For what systemd
takes off a slice that is loaded may stay in its cgroup (issue 43846 of systemd).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Blocker, Plan, RoomAction, Step, WriteAttribute
from ..._core.errors import InUse, OwnedByAnother
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from . import files as slice_files
from .observation import NEUTRAL, SERVICE_KEYS
from .spec import FAIL, NAME, SKIP, WAIT
from .state import ACTIVE, CPUS, INACTIVE, LOADED, PARENT, SCORE, GpuSlicesDesired, GpuSlicesState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from .state import ServiceState, SliceState, WantedSlice

IDLE = "idle_slice"


@frozen
class StopSlices(RoomAction):
    """Stop slices in which nothing runs; one in which something was started meanwhile is refused."""

    programs = ("systemctl",)
    names: Tuple[str, ...]


def plan(state: GpuSlicesState, desired: GpuSlicesDesired, scope: Scope) -> Plan:
    """Raises ``OwnedByAnother`` for a file of others that decides, or has the name of a slice."""
    if not (scope.immediate or scope.permanent):
        return Plan()
    wanted = {one.name: one for one in desired.slices}
    rows: List[Setting] = []
    changing: Dict[str, List[Setting]] = {}
    busy: List[SliceState] = []
    _refuse_affinities(state, desired)
    for name, found in state.slices.items():
        if name in desired.keep:
            continue
        own = _slice_rows(found, wanted.get(name), state, scope)
        if found.users and any(row.status != IN_SYNC for row in own):
            busy.append(found)
            if state.when_busy == SKIP:
                rows.append(_left(found))
                continue
        rows += own
        changing[name] = [row for row in own if row.status != IN_SYNC]
    for service in state.services.values():
        rows += _service_rows(service, desired, scope)
    rows += state.rule.rows(desired.rule)
    if desired.unresponsive and scope.immediate:
        from ..._nvidia import unresponsive_gpu

        rows += [unresponsive_gpu.setting(name) for name in desired.unresponsive]
    if all(row.status == IN_SYNC for row in rows):
        return Plan(tuple(rows), (), desired.unmanaged)
    steps = _slice_steps(state, wanted, changing, scope)
    steps += _service_steps(state, desired, rows)
    of_rule = [row for row in rows if row.object == state.rule.path and row.status != IN_SYNC]
    if of_rule:
        steps.append(state.rule.step(desired.rule, map(boot_change, of_rule)))
    if desired.unresponsive and scope.immediate:
        from ..._nvidia import unresponsive_gpu

        steps.append(unresponsive_gpu.refuse(desired.unresponsive))
    return Plan(tuple(rows), tuple(steps), desired.unmanaged, (), _blocker(busy, state))


def restore(baseline: Baseline) -> GpuSlicesDesired:
    """What ``state: absent`` wants: no file of ours, and the scores that processes had."""
    scores = {unit: str(value.effective) for (unit, setting), value in baseline.values.items() if setting == SCORE}
    for score in scores.values():
        int(score)
    return GpuSlicesDesired(restored=scores)


# Slices


def _slice_rows(found: SliceState, wanted: Optional[WantedSlice], state: GpuSlicesState, scope: Scope) -> List[Setting]:
    text = None if wanted is None else slice_files.render(wanted)
    if wanted is not None:
        _refuse_others(found, wanted, text or "")
    rows = found.file.rows_in(text, immediate=scope.immediate, what=found.name)
    if wanted is None:
        if found.active and rows and scope.immediate:
            rows.append(Setting(found.name, LOADED, INACTIVE, ACTIVE, None, found.name, boot_matters=False))
        return rows
    for setting in dict.fromkeys((*wanted.values, *slice_files.values_of([found.file.text or ""]))):
        rows.append(
            Setting(
                object=found.name,
                setting=setting,
                wanted=wanted.values.get(setting),
                effective=found.effective.get(setting),
                boot=found.boot.get(setting),
                identity=found.name,
                effective_matters=scope.immediate and state.systemd_runs,
                pending=found.file.pending(found.name),
                needs="daemon-reload",
            )
        )
    return rows


def _refuse_others(found: SliceState, wanted: WantedSlice, text: str) -> None:
    if found.foreign:
        raise OwnedByAnother(
            "make the slice {}",
            object=found.name,
            cause=f"{found.foreign} is a unit of this name, and not of {NAME}",
            hint="remove it, or leave its GPU or node out of the declaration",
        )
    after = slice_files.values_of((text, *found.others.values()))
    for setting, value in wanted.values.items():
        if after.get(setting) == value:
            continue
        alone = {path: slice_files.values_of((text, other)).get(setting) for path, other in found.others.items()}
        path = next((path for path, one in reversed(list(alone.items())) if one != value), "")
        raise OwnedByAnother(
            f"set {setting}",
            object=found.name,
            cause=f"{path} is read after {found.file.path}",
            found=after.get(setting),
            wanted=value,
            hint="remove it from that file; systemctl revert removes what systemctl set-property wrote",
        )


def _refuse_affinities(state: GpuSlicesState, desired: GpuSlicesDesired) -> None:
    """Raises where services could not start in a slice any more, because of the CPUs to which they bind themselves."""
    if not state.bound:
        return
    from ..._linux import cpu_affinity, cpulist, cpusets

    for one in desired.slices:
        if CPUS in one.values:
            bound = [service for service in state.bound if cpusets.has(one.name, service.slice)]
            cpus = frozenset(cpulist.parse(one.values[CPUS]))
            hint = "move the service to another slice with Slice="
            cpu_affinity.refuse("make the slice {}", one.name, bound, cpus=cpus, online=state.online, hint=hint)


def _left(found: SliceState) -> Setting:
    return Setting(
        object=found.name,
        setting=LOADED,
        wanted="as declared",
        effective="in use",
        boot=None,
        identity=found.name,
        boot_matters=False,
        pending=f"it is in use by {_shown(found)}",
        needs=IDLE,
    )


def _shown(found: SliceState) -> str:
    more = len(found.users) - 3
    return ", ".join(found.users[:3]) + (" and more" if more > 0 else "")


def _blocker(busy: Sequence[SliceState], state: GpuSlicesState) -> Optional[Blocker]:
    """Who runs in a slice that would have to change."""
    if not busy or state.when_busy == SKIP:
        return None
    ways = ["end what runs there", *(["set when_busy: wait or skip"] if state.when_busy == FAIL else [])]
    error = InUse(
        "change the slice {}" if len(busy) == 1 else "change the slices {}",
        object=", ".join(found.name for found in busy),
        cause=f"in use by {'; '.join(map(_shown, busy))}",
        hint=f"nothing was changed; {', or '.join(ways)}",
    )
    return Blocker(error, state.busy_timeout if state.when_busy == WAIT else 0.0)


def _slice_steps(
    state: GpuSlicesState,
    wanted: Mapping[str, WantedSlice],
    changing: Mapping[str, Sequence[Setting]],
    scope: Scope,
) -> List[Step]:
    """What is loaded stops first. Then the files, and systemd reads them."""
    from ..._linux.systemd_apply import AnnounceUnit, ReloadUnits

    steps: List[Step] = []
    names = [name for name, rows in changing.items() if rows]
    stopped = [name for name in names if state.slices[name].active and scope.immediate]
    going = [row for name in names for row in changing[name] if row.setting == LOADED]
    if stopped:
        parent = (PARENT,) if state.parent_idle and not wanted else ()
        steps.append(Step(StopSlices((*stopped, *parent)), tuple(map(effective_change, going))))
    late: List[Setting] = []
    announced = False
    for name in names:
        found, rows = state.slices[name], changing[name]
        at_boot = [row for row in rows if row.boot_matters and row.boot != row.wanted]
        text = slice_files.render(wanted[name]) if name in wanted else None
        now = [row for row in rows if row.effective_matters and row.effective != row.wanted and row.setting != LOADED]
        now = [row for row in now if not row.pending]
        if at_boot or now:
            steps.append(Step(AnnounceUnit(name)))
        if at_boot:
            steps.append(found.file.step(text, map(boot_change, at_boot)))
        announced = announced or bool(at_boot)
        late += now
    if announced or late:
        steps.append(Step(ReloadUnits(), tuple(map(effective_change, late))))
    return steps


# Services


def _service_rows(service: ServiceState, desired: GpuSlicesDesired, scope: Scope) -> List[Setting]:
    values = desired.services.get(service.unit)
    if values is not None:
        for setting, value in values.items():
            path = service.later.get(setting)
            if path and service.others[setting] != value:
                raise OwnedByAnother(
                    f"set the {setting}",
                    object=service.unit,
                    cause=f"{path} overrules {service.file.path}",
                    found=service.others[setting],
                    wanted=value,
                    hint="remove that line, or leave the service out of protected_services",
                )
    rows = service.file.rows_in(_drop_in(values), immediate=scope.immediate, what=service.unit)
    if not (scope.immediate and service.effective):
        return rows
    known = values or {}
    if service.unit in desired.restored and service.process:
        known = {SCORE: desired.restored[service.unit]}
    elif not known and service.file.text is not None:
        known = {SCORE: service.others[SCORE]}
    for setting, value in known.items():
        rows.append(
            Setting(
                object=service.unit,
                setting=setting,
                wanted=value,
                effective=service.effective[setting],
                boot=None,
                identity=service.unit,
                boot_matters=False,
                pending="" if setting == SCORE and service.process else service.file.pending(service.unit),
                needs="daemon-reload",
            )
        )
    return rows


def _drop_in(values: Optional[Mapping[str, str]]) -> Optional[str]:
    if values is None:
        return None
    lines = [f"{SERVICE_KEYS[setting].partition('.')[2]}={value}\n" for setting, value in values.items()]
    return "".join((header_of(NAME), "[Service]\n", *lines))


def _service_steps(state: GpuSlicesState, desired: GpuSlicesDesired, rows: Sequence[Setting]) -> List[Step]:
    """The drop-ins, then systemd reads them, and then the processes that run.

    A process that loses its protection does so first: once the drop-in is gone, nothing tells that it had one from us.
    """
    from ..._linux.systemd_apply import AnnounceUnit, ReloadUnits

    steps: List[Step] = []
    wrong = {(row.object, row.setting): row for row in rows if row.status != IN_SYNC and not row.pending}
    late: List[Setting] = []
    first: List[Step] = []
    last: List[Step] = []
    read = False
    for unit, service in state.services.items():
        file = next((row for row in rows if row.object == service.file.path and row.status != IN_SYNC), None)
        if file is not None and file.boot != file.wanted:
            steps.append(Step(AnnounceUnit(unit)))
            steps.append(service.file.step(_drop_in(desired.services.get(unit)), (boot_change(file),)))
            read = True
        elif file is not None and not file.pending:
            late.append(file)
        for setting in NEUTRAL:
            row = wrong.get((unit, setting))
            if row is None:
                continue
            if setting == SCORE and service.process:
                path = f"/proc/{service.process}/oom_score_adj"
                action = WriteAttribute(path, str(row.wanted))
                writes = last if unit in desired.services else first
                writes.append(Step(action, (effective_change(row),), probes=(path,)))
            else:
                late.append(row)
    if read or late:
        steps.append(Step(ReloadUnits(), tuple(map(effective_change, late))))
    return [*first, *steps, *last]
