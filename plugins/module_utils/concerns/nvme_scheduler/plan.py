# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block queues: what the kernel can have of what is declared, and the steps to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Sequence, Tuple

from ..._core.change import Change, RoomAction, RunCommand, Step, Unmanaged
from ..._core.errors import DeclarationError
from ..._core.planning import boot_change, effective_change
from ..._core.setting import BOOT, IN_SYNC, Scalar, Setting
from ..._core.value import frozen
from . import udev, udev_events
from .devices import Queue
from .modules import KNOWN_SCHEDULERS
from .owners import after_late
from .rules import OUR_RULES
from .spec import MAX_SCHED_RQ, NR_REQUESTS, SCHEDULER, TUNABLES, WBT
from .state import OUR_MODULES, NvmeSchedulerDesired, NvmeSchedulerState, WantedQueue

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope


@frozen
class CheckRules(RoomAction):
    """Let udev say whether it accepts a text before it counts."""

    optional_programs = ("udevadm",)
    text: str


@frozen
class QueueValues:
    """Write values into one queue in this order, or, when the kernel refuses one, put back those of ``previous``."""

    queue: str
    path: str
    values: Tuple[Tuple[str, Scalar], ...]
    previous: Tuple[Tuple[str, Scalar], ...]


@frozen
class SetQueues(RoomAction):
    """Set all these queues, each for itself: one that refuses does not keep the others from their values."""

    queues: Tuple[QueueValues, ...]


def restore(baseline: Baseline, state: NvmeSchedulerState) -> NvmeSchedulerDesired:
    """What ``state: absent`` wants: the values from before the first change, and no file of ours."""
    wants = []
    for queue in state.queues:
        values = {}
        for setting in TUNABLES:
            value = baseline.values.get((queue.identity, setting))
            if value is not None and value.effective is not None and setting in queue.values:
                values[setting] = value.effective
        if values.get(SCHEDULER, queue.values.get(SCHEDULER)) != queue.values.get(SCHEDULER):
            # What we never changed is right as it is, and must outlive the scheduler's way back.
            kept = queue.values.get(NR_REQUESTS)
            if kept is not None:
                values.setdefault(NR_REQUESTS, kept)
        if values:
            wants.append(WantedQueue(queue, {setting: values[setting] for setting in TUNABLES if setting in values}))
    return NvmeSchedulerDesired(tuple(wants), None, None, _gone(baseline, state))


def _gone(baseline: Baseline, state: NvmeSchedulerState) -> Tuple[Unmanaged, ...]:
    """What was changed on disks that are not there now: nothing is left to restore, and the record ends here."""
    there = {queue.identity for queue in state.queues}
    return tuple(
        Unmanaged(identity, setting, "the drive is missing, and its running values with it")
        for identity, setting in sorted(baseline.values)
        if setting in TUNABLES and identity not in there
    )


def refuse_impossible(queue: Queue, values: Mapping[str, Scalar], state: NvmeSchedulerState) -> None:
    """Raise ``DeclarationError`` for what the kernel would refuse, as far as it tells beforehand."""
    wanted = values.get(SCHEDULER)
    if wanted is not None and wanted not in queue.schedulers:
        # Blocks of a zoned device must be written in order: before 6.10 mq-deadline alone sees to that.
        if queue.limits.zoned != "none":
            raise DeclarationError(
                "set scheduler",
                object=queue.name,
                cause=f"it is a {queue.limits.zoned} zoned device, for which the kernel offers "
                f"{' and '.join(queue.schedulers)} only",
                found=queue.values[SCHEDULER],
                wanted=wanted,
            )
        if not state.modules.get(str(wanted)):
            there = [*queue.schedulers, *(name for name in KNOWN_SCHEDULERS if state.modules.get(name))]
            raise DeclarationError(
                "set scheduler",
                object=queue.name,
                cause=f"this kernel offers {', '.join(dict.fromkeys(there))}",
                found=queue.values[SCHEDULER],
                wanted=wanted,
            )
    number = values.get(NR_REQUESTS)
    scheduler = wanted or queue.values.get(SCHEDULER)
    if isinstance(number, int) and number != queue.values[NR_REQUESTS]:
        tags = queue.limits.tags
        bound = tags if scheduler == "none" else max(MAX_SCHED_RQ, tags or 0) if scheduler else None
        if bound is not None and number > bound:
            why = "the depth of the hardware queue" if scheduler == "none" else "the most the kernel keeps"
            raise DeclarationError(
                "set nr_requests",
                object=queue.name,
                cause=f"with scheduler {scheduler} it goes up to {bound}, {why}",
                found=queue.values[NR_REQUESTS],
                wanted=number,
            )
    sectors = values.get("max_sectors_kb")
    bound = queue.limits.max_hw_sectors_kb
    if isinstance(sectors, int) and bound is not None and sectors > bound:
        raise DeclarationError(
            "set max_sectors_kb",
            object=queue.name,
            cause=f"the hardware takes at most {bound} (max_hw_sectors_kb)",
            found=queue.values["max_sectors_kb"],
            wanted=sectors,
        )


def steps_of(
    state: NvmeSchedulerState, desired: NvmeSchedulerDesired, settings: Sequence[Setting], scope: Scope
) -> Tuple[Tuple[Setting, ...], Tuple[Step, ...]]:
    """The steps that make ``settings`` right, and what the kernel changes along with them."""
    by_object: Dict[str, List[Setting]] = {want.queue.name: [] for want in desired.wants}
    for setting in settings:
        by_object.get(setting.object, []).append(setting)
    reset: List[Setting] = []
    queues: List[QueueValues] = []
    changes: List[Change] = []
    for want in desired.wants:
        made = by_object[want.queue.name]
        along = _taken_along(want, state) if scope.immediate and _changes_scheduler(want) else []
        reset.extend(along)
        of_queue = _queue_changes([*made, *along])
        if of_queue:
            queues.append(_queue_values(want, of_queue))
            changes.extend(of_queue)
    checks, files = _file_steps(state, desired, settings)
    # udev is asked first: what it does not accept must not cost a change. The files come after the values, so that none
    # is left that the kernel refuses: one file is for all disks, and a disk that refuses keeps it as it was.
    steps = (Step(SetQueues(tuple(queues)), tuple(changes), probes=_files_of(queues[0])),) if queues else ()
    return tuple(reset), (*checks, *steps, *files)


def _taken_along(want: WantedQueue, state: NvmeSchedulerState) -> List[Setting]:
    """What the kernel resets on its own is a change as well: seen by the operator, recorded for the way back."""
    queue = want.queue
    return [
        Setting(
            object=queue.name,
            setting=setting,
            wanted=value,
            effective=queue.values[setting],
            boot=state.boot.get((queue.name, setting)),
            identity=queue.identity,
            boot_matters=False,
        )
        for setting, value in _reset(want)
        if setting not in want.values
    ]


def _changes_scheduler(want: WantedQueue) -> bool:
    return want.values.get(SCHEDULER, want.queue.values.get(SCHEDULER)) != want.queue.values.get(SCHEDULER)


def _reset(want: WantedQueue) -> List[Tuple[str, Scalar]]:
    """What a new scheduler makes of the settings it takes with it (block/elevator.c, block/bfq-iosched.c)."""
    queue = want.queue
    scheduler = want.values[SCHEDULER]
    reset: List[Tuple[str, Scalar]] = []
    tags = queue.limits.tags
    if NR_REQUESTS in queue.values and tags is not None:
        reset.append((NR_REQUESTS, tags if scheduler == "none" else 2 * min(tags, 128)))
    # bfq switches write-back throttling off; whoever follows it gets the default of a disk that does not rotate.
    if queue.values.get(WBT) is not None and "bfq" in (scheduler, queue.values[SCHEDULER]):
        reset.append((WBT, 0 if scheduler == "bfq" else 2000))
    return reset


def _queue_changes(made: Sequence[Setting]) -> List[Change]:
    return [
        effective_change(setting)
        for setting in made
        if setting.effective_matters and setting.effective != setting.wanted
    ]


def _queue_values(want: WantedQueue, changes: Sequence[Change]) -> QueueValues:
    queue = want.queue
    changed = {change.setting for change in changes}
    if SCHEDULER in changed:
        changed |= {NR_REQUESTS, WBT}
    return QueueValues(
        queue=queue.name,
        path=f"{queue.path}/queue",
        values=tuple((setting, value) for setting, value in want.values.items() if setting in changed),
        previous=tuple(
            (setting, queue.values[setting])
            for setting in TUNABLES
            if setting in changed and queue.values.get(setting) is not None
        ),
    )


def _files_of(queue: QueueValues) -> Tuple[str, ...]:
    return tuple(f"{queue.path}/{TUNABLES[setting].file}" for setting, _value in queue.values)


def _file_steps(
    state: NvmeSchedulerState, desired: NvmeSchedulerDesired, settings: Sequence[Setting]
) -> Tuple[List[Step], List[Step]]:
    checks: List[Step] = []
    steps: List[Step] = []
    for setting in settings:
        if setting.status == IN_SYNC:
            continue
        if setting.object == OUR_MODULES:
            steps.append(state.modules_file.step(desired.modules_text, (boot_change(setting),)))
        elif setting.object == OUR_RULES:
            if desired.rules_text is not None:
                checks.append(Step(CheckRules(desired.rules_text)))
            changes = (boot_change(setting), *_boot_changes(state, desired))
            steps.append(state.rules_file.step(desired.rules_text, changes))
            if state.udev_runs:
                # udevd would also notice by itself, within seconds; a run that ends here loses nothing.
                steps.append(Step(RunCommand(("udevadm", "control", "--reload"), "reload the rules of udev")))
    return checks, steps


def _boot_changes(state: NvmeSchedulerState, desired: NvmeSchedulerDesired) -> List[Change]:
    rule_files = udev.with_ours(state.texts, desired.rules_text)
    subjects = state.subjects or udev_events.subjects(state.disks)
    after = udev_events.boot(rule_files, state.disks, subjects, state.scripts)
    if state.late:
        after = after_late(state.late, state.disks, after)
    changes = []
    for want in desired.wants:
        for setting in want.values:
            key = (want.queue.name, setting)
            if state.boot.get(key) != after.get(key):
                changes.append(Change(*key, state.boot.get(key), after.get(key), BOOT))
    return changes
