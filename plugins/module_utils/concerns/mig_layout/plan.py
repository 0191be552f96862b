# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The layout of GPUs: the target of each, the steps to it, and what is in their way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.change import Blocker, Change, Plan, Refuse, RemoveFile, ReplaceFile, Step
from ..._core.errors import DeclarationError, InUse, Refused
from ..._core.setting import BOOT, EFFECTIVE, REBOOT, Setting
from ..._core.value import replace
from ..._linux.boot_service import not_persisted
from ..._nvidia import unresponsive_gpu
from . import busy, interrupted
from .actions import GpuTarget, Repartition, ResetGroup, SettleInterrupted
from .model import Busy, Geometry, Instance, Layout, WantedInstance
from .preconditions import needs_reset
from .records import RECORD, record_text
from .solver import Impossible, left, moves, solve
from .spec import FAIL, SKIP, WAIT
from .text import instance_text, layout_text

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .busy import Holding
    from .driver import MigReading
    from .state import MigLayoutDesired, MigLayoutState, WantedGpu

IDLE = "idle_gpu"
VM_RESTART = "the GPU is passed through to this virtual machine, and its MIG mode changes when that is restarted"
SHOWN = 4


def targets_of(
    state: MigLayoutState, desired: MigLayoutDesired
) -> Tuple[Dict[str, Layout], Dict[str, Tuple[str, str]]]:
    """The layout that every GPU is to have, by its name; and why some cannot have it in this run, and what it takes.

    Raises ``DeclarationError`` for a layout that cannot be.
    """
    targets = {gpu.name: _target_of(gpu, state) for gpu in desired.gpus}
    waiting = _waiting(state, desired, targets)
    # What waits changes when nobody uses the GPU, or at the next boot: the jobs of this moment have no say in that.
    targets.update({gpu.name: _target_at_rest(gpu) for gpu in desired.gpus if gpu.name in waiting})
    return targets, waiting


def _waiting(
    state: MigLayoutState, desired: MigLayoutDesired, targets: Mapping[str, Layout]
) -> Dict[str, Tuple[str, str]]:
    found: Dict[str, Tuple[str, str]] = {}
    for gpu in desired.gpus:
        if gpu.in_sync:
            continue
        passed_through = gpu.reading.gpu.uuid in state.preconditions.passed_through
        if passed_through and gpu.reading.mode == (not gpu.mig, gpu.mig):
            found[gpu.name] = (VM_RESTART, REBOOT)
        elif state.declaration.when_busy == SKIP or not gpu.declared:
            # What nobody declares keeps nobody from what is declared.
            reasons = _in_the_way(gpu, state, targets)
            if reasons:
                why = _without_manager([gpu], state)
                found[gpu.name] = (f"{reasons[0]}; {why}" if why else reasons[0], IDLE)
    return found


def complete(
    state: MigLayoutState,
    desired: MigLayoutDesired,
    scope: Scope,
    settings: Sequence[Setting],
    targets: Mapping[str, Layout],
    waiting: Mapping[str, Tuple[str, str]],
) -> Plan:
    """The plan that makes these settings right: the GPUs, and when they were seen to be so, the record for the boot.

    What an interrupted run left of GPUs that nobody declares comes last, and keeps nothing else from its end.
    """
    finish: Tuple[Step, ...] = ()
    finished: Tuple[Setting, ...] = ()
    unsettled: Tuple[str, ...] = ()
    if desired.interrupted_run is not None:
        unsettled = desired.interrupted_run.unsettled
        settings = [
            *settings,
            *interrupted.settings_of(desired.interrupted_run, waiting, immediate=scope.immediate),
        ]
        finish, finished = interrupted.end_of(desired.interrupted_run) if scope.immediate else ((), ())
    changing = _changing(desired, settings) if scope.immediate else []
    at_boot = tuple(_changes(settings, BOOT, desired.gpus))
    steps: List[Step] = []
    # What a run that was killed has stopped is started again, whatever becomes of this one.
    if at_boot and state.carrier.missing:
        steps += [*finish, Step(Refuse(not_persisted(state.carrier.missing)))]
    groups = _groups(changing, state, targets)
    declared = {gpu.reading.gpu.uuid for gpu in changing if gpu.declared}
    undoing = tuple(group for group in groups if declared.isdisjoint(work.uuid for work in group.gpus))
    doing = tuple(group for group in groups if group not in undoing)
    stopped = tuple(dict.fromkeys((*state.declaration.stop_services, *state.preconditions.yielding)))
    if doing:
        made = tuple(change for step in finish for change in step.changes)
        begin = Repartition(doing, stopped, unsettled, hold=bool(at_boot))
        steps.append(Step(begin, (*_made_by(doing, changing, settings, targets, state), *made)))
    elif not steps:
        steps += finish
    if at_boot:
        steps.append(Step(ReplaceFile(RECORD, _record(state, desired, targets)), at_boot))
    if scope.restoring and scope.permanent and state.record is not None:
        steps.append(Step(RemoveFile(RECORD)))
    done = {work.uuid for group in doing for work in group.gpus}
    left = tuple(uuid for uuid in unsettled if uuid not in done)
    if doing and at_boot:
        # Only now, so that a power cut before the declaration is there finds how the GPUs were.
        steps.append(Step(SettleInterrupted(left)))
    if undoing:
        steps.append(
            Step(Repartition(undoing, stopped, left), tuple(_made_by(undoing, changing, settings, targets, state)))
        )
    settings = [*settings, *finished]
    if desired.unresponsive and scope.immediate:
        settings = [*settings, *(unresponsive_gpu.setting(name) for name in desired.unresponsive)]
        steps.append(unresponsive_gpu.refuse(desired.unresponsive))
    return Plan(
        settings=tuple(settings),
        steps=tuple(steps),
        unmanaged=(*state.unserved, *desired.unmanaged),
        conflicts=state.conflicts,
        blocker=_with_recovery_step(finish, _no_tool(changing, state) or _blocker(changing, state, targets)),
    )


def _made_by(
    groups: Sequence[ResetGroup],
    changing: Sequence[WantedGpu],
    settings: Sequence[Setting],
    targets: Mapping[str, Layout],
    state: MigLayoutState,
) -> Iterable[Change]:
    uuids = {work.uuid for group in groups for work in group.gpus}
    touched = [gpu for gpu in changing if gpu.reading.gpu.uuid in uuids]
    yield from _resets(groups, state)
    yield from _changes(settings, EFFECTIVE, touched)
    for gpu in touched:
        yield from interrupted.changes_of(gpu, targets[gpu.name]) if gpu.undone else ()


# --- targets ----------------------------------------------------------------------------------------------------------


def _target_of(gpu: WantedGpu, state: MigLayoutState) -> Layout:
    if gpu.wanted is None or gpu.in_sync:
        return gpu.reading.layout
    # A GPU whose mode changes begins or ends without an instance.
    if not gpu.mig or not gpu.reading.is_on:
        return _solved(gpu, gpu.wanted, (), {})
    holdings = state.preconditions.holdings.get(gpu.reading.gpu.uuid, ())
    return _solved(gpu, gpu.wanted, gpu.reading.layout, busy.busy_of(holdings, gpu.reading))


def _target_at_rest(gpu: WantedGpu) -> Layout:
    """The layout that it would be given if there were none, the recorded one if that will do."""
    return gpu.reading.layout if gpu.wanted is None else _solved(gpu, gpu.wanted, (), {})


def _solved(gpu: WantedGpu, wanted: Tuple[WantedInstance, ...], present: Layout, in_use: Busy) -> Layout:
    try:
        return solve(gpu.geometry, present, wanted, busy=in_use, preferred=gpu.recorded or ())
    except Impossible as error:
        raise _impossible(gpu, error) from error


def _impossible(gpu: WantedGpu, error: Impossible) -> DeclarationError:
    nearest = f"the nearest possible layout is {layout_text(error.nearest, gpu.geometry)}"
    beside = " or ".join(f"{count} x {profile.name}" for profile, count in left(gpu.geometry, error.nearest))
    return DeclarationError(
        "partition {}",
        object=gpu.name,
        cause=f"{error.reason}; on this {gpu.reading.gpu.model} there is no room for "
        f"{_counted(error.missing, gpu.geometry)}",
        hint=f"{nearest}, and it leaves room for {beside}" if beside else nearest,
    )


def _counted(wanted: Iterable[WantedInstance], geometry: Geometry) -> str:
    names = {profile.number: profile.name for profile in geometry.profiles}
    return ", ".join(f"{count} x {names[number]}" for number, count in Counter(one.profile for one in wanted).items())


# --- steps ------------------------------------------------------------------------------------------------------------


def _changing(desired: MigLayoutDesired, settings: Sequence[Setting]) -> List[WantedGpu]:
    """The GPUs that this run can make right."""
    waiting = {setting.object for setting in settings if setting.pending}
    return [gpu for gpu in desired.gpus if not gpu.in_sync and gpu.name not in waiting]


def _groups(
    changing: Sequence[WantedGpu], state: MigLayoutState, targets: Mapping[str, Layout]
) -> Tuple[ResetGroup, ...]:
    """Every GPU alone, and those that are reset together as one, with their neighbours as these are or shall be."""
    together = state.preconditions.together
    works = {gpu.reading.gpu.uuid: _work(gpu, targets) for gpu in changing}
    as_is = {reading.gpu.uuid: _work_as_is(reading) for reading in state.readings}
    groups: List[ResetGroup] = []
    done: Set[str] = set()
    # Those that take their neighbours with them first: a neighbour that changes too is changed with them.
    for uuid in sorted(works, key=lambda uuid: -len(together.get(uuid, ()))):
        if uuid not in done:
            members = together.get(uuid, (uuid,))
            chosen = [works.get(one, as_is[one]) for one in members]
            if uuid in together:
                # A reset takes all instances, those that are left alone too.
                chosen = [
                    work if work.target is not None else replace(work, target=as_is[work.uuid].target)
                    for work in chosen
                ]
            groups.append(ResetGroup(tuple(chosen), reset=uuid in together))
            done.update(members)
    return tuple(groups)


def _resets(groups: Sequence[ResetGroup], state: MigLayoutState) -> Iterable[Change]:
    """What is reset, and which others with it: no setting, and something to know before it happens."""
    for group in groups:
        first = group.gpus[0]
        for work in group.gpus if group.reset else ():
            alone = work is first or first.uuid not in state.preconditions.unmanaged
            why = "" if alone else ", as no fabric manager runs"
            yield Change(work.name, "reset", None, f"for the mode of {first.name}{why}", EFFECTIVE)


def _work(gpu: WantedGpu, targets: Mapping[str, Layout]) -> GpuTarget:
    own = gpu.reading.gpu
    return GpuTarget(own.uuid, own.name, own.pci_address, gpu.mig, None if gpu.wanted is None else targets[gpu.name])


def _work_as_is(reading: MigReading) -> GpuTarget:
    own = reading.gpu
    return GpuTarget(own.uuid, own.name, own.pci_address, reading.is_on, reading.layout)


def _changes(settings: Sequence[Setting], scope: str, of: Sequence[WantedGpu]) -> Iterable[Change]:
    names = [gpu.name for gpu in of]
    for setting in settings:
        matters = setting.effective_matters if scope == EFFECTIVE else setting.boot_matters
        found = setting.effective if scope == EFFECTIVE else setting.boot
        if setting.object in names and matters and found != setting.wanted:
            yield Change(setting.object, setting.setting, found, setting.wanted, scope)


def _record(state: MigLayoutState, desired: MigLayoutDesired, targets: Mapping[str, Layout]) -> str:
    """The record with the GPUs that are declared; of others, which may be away for now, it stays as it is."""
    present = {reading.gpu.uuid for reading in state.readings if not reading.gpu.lost}
    layouts: Dict[str, str] = {uuid: text for uuid, text in (state.record or {}).items() if uuid not in present}
    for gpu in desired.gpus:
        if gpu.wanted is not None and gpu.mig and not gpu.undone:
            layouts[gpu.reading.gpu.uuid] = layout_text(targets[gpu.name], gpu.geometry)
    return record_text(layouts)


# --- who is in the way ------------------------------------------------------------------------------------------------


def _in_the_way(gpu: WantedGpu, state: MigLayoutState, targets: Mapping[str, Layout]) -> Tuple[str, ...]:
    """Why a GPU cannot be changed now, one reason for each that uses it; empty where nothing is in the way."""
    preconditions = state.preconditions
    uuid = gpu.reading.gpu.uuid
    holdings = preconditions.holdings.get(uuid, ())
    if gpu.reading.is_on != gpu.mig and uuid not in preconditions.passed_through:
        if not needs_reset(gpu):
            return _users(gpu.name, holdings, working=True)
        names = {reading.gpu.uuid: reading.gpu.name for reading in state.readings}
        holding: List[str] = []
        for other in preconditions.together.get(uuid, ()):
            if other in preconditions.holdings:
                holding.extend(_users(names[other], preconditions.holdings[other], working=False))
            else:
                holding.append(f"{names[other]}, which has to be reset with {gpu.name}, does not respond")
        return (*holding, *(f"the kernel module {module}" for module in preconditions.modules))
    return _users_of_instances(gpu, holdings, targets[gpu.name])


def _users(name: str, holdings: Sequence[Holding], *, working: bool) -> Tuple[str, ...]:
    return tuple(f"{holding.name} uses {name}" for holding in holdings if holding.work or not working)


def _users_of_instances(gpu: WantedGpu, holdings: Sequence[Holding], target: Layout) -> Tuple[str, ...]:
    if gpu.wanted is None:
        return ()
    planned = moves(gpu.reading.layout, target)
    going = {instance.start: instance for instance in planned.destroy}
    parts = [(instance.start, part) for instance, destroyed, _created in planned.compute for part in destroyed]
    in_use = Counter(going[holding.start].profile for holding in holdings if holding.start in going)
    reasons = []
    for holding in holdings:
        if holding.start is None:
            # The driver creates no instance while something computes on the whole GPU.
            if holding.work and planned.create:
                reasons.append(f"{holding.name} uses all of {gpu.name}")
        elif holding.start in going:
            instance = going[holding.start]
            could_stay = in_use[instance.profile] <= [one.profile for one in gpu.wanted].count(instance.profile)
            why = _in_the_way_of(instance, planned.create, gpu.geometry) if could_stay else "which is not declared"
            reasons.append(f"{holding.name} uses {instance_text(instance, gpu.geometry)}, {why}")
        else:
            for start, part in parts:
                if start == holding.start and holding.compute_start in (None, part.start):
                    reasons.append(f"{holding.name} uses {part.slices}c@{part.start} of the instance at {start}")
    return tuple(dict.fromkeys(reasons))


def _in_the_way_of(instance: Instance, created: Layout, geometry: Geometry) -> str:
    others = [instance_text(one, geometry) for one in created if _overlap(instance, one, geometry)]
    return f"which blocks {' and '.join(others)}" if others else "which would have to move"


def _overlap(one: Instance, other: Instance, geometry: Geometry) -> bool:
    sizes = {profile.number: profile.size for profile in geometry.profiles}
    return one.start < other.start + sizes.get(other.profile, 0) and other.start < one.start + sizes.get(one.profile, 0)


def _blocker(changing: Sequence[WantedGpu], state: MigLayoutState, targets: Mapping[str, Layout]) -> Optional[Blocker]:
    """Who uses what would have to change. GPUs that are skipped for that are not among those that change."""
    found = [(gpu, reasons) for gpu in changing for reasons in [_in_the_way(gpu, state, targets)] if reasons]
    if not found:
        return None
    # Who uses one of those that are reset together is in the way of each.
    reasons = list(dict.fromkeys(reason for _gpu, of_gpu in found for reason in of_gpu))
    shown = reasons[:SHOWN] + ([f"and {len(reasons) - SHOWN} more"] if len(reasons) > SHOWN else [])
    why = _without_manager([gpu for gpu, _of_gpu in found], state)
    ways = ["start nvidia-fabricmanager, so that each GPU is reset alone"] if why else []
    ways.append("drain the node or stop these")
    ways += ["set when_busy: wait or skip"] if state.declaration.when_busy == FAIL else []
    if any(gpu.reading.gpu.uuid in state.preconditions.together for gpu, _of_gpu in found):
        ways.append("list in stop_services what may be stopped for a reset")
    error = InUse(
        "change the MIG layout",
        object=", ".join(gpu.name for gpu, _of_gpu in found),
        cause="; ".join(filter(None, [*shown, why])),
        hint=f"nothing was changed; {', or '.join(ways)}",
    )
    return Blocker(error, state.declaration.busy_timeout if state.declaration.when_busy == WAIT else 0.0)


def _without_manager(gpus: Sequence[WantedGpu], state: MigLayoutState) -> str:
    """Why these GPUs wait for who uses another one, where a fabric manager would let each be reset alone."""
    preconditions = state.preconditions
    borne: Set[str] = set()
    for gpu in gpus:
        uuid = gpu.reading.gpu.uuid
        group = preconditions.together.get(uuid, ())
        if uuid in preconditions.unmanaged and any(preconditions.holdings.get(one) for one in group if one != uuid):
            borne.update(group)
    if not borne:
        return ""
    names = ", ".join(reading.gpu.name for reading in state.readings if reading.gpu.uuid in borne)
    return f"NVSwitches connect {names}, and no fabric manager runs, so they are all reset together"


def _with_recovery_step(steps: Sequence[Step], blocker: Optional[Blocker]) -> Optional[Blocker]:
    return replace(blocker, recovery_step=steps[0]) if blocker is not None and steps else blocker


def _no_tool(changing: Sequence[WantedGpu], state: MigLayoutState) -> Optional[Blocker]:
    """A GPU alone is reset by the driver when its mode changes; several together only by nvidia-smi."""
    if state.preconditions.has_tool:
        return None
    for gpu in changing:
        if len(state.preconditions.together.get(gpu.reading.gpu.uuid, ())) > 1:
            return Blocker(
                Refused(
                    "reset {}",
                    object=gpu.name,
                    cause="NVLink connects it with others that have to be reset with it, which nvidia-smi does, and "
                    "there is none on this node",
                    hint="install the driver package that has it",
                )
            )
    return None
