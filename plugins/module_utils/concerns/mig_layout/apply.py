# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only the layout of GPUs has: reset groups that are repartitioned, each in a transaction."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Collection,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
)

from ..._core import steps
from ..._core.change import Step
from ..._core.errors import CannotLook, GpuFleetError, InUse, NotInEffect, NotPermitted, Refused
from ..._core.value import replace
from ..._nvidia import reset_counts
from ..._nvidia.errors import GOAL, DriverHangs
from . import busy, consumers, services, transaction
from .actions import GpuTarget, Repartition, ResetGroup, SettleInterrupted
from .driver import DriverInstance, MigReading, read
from .driver_apply import IN_USE, Activation, change, set_mode, set_persistence
from .journal import journal
from .preconditions import NVIDIA_SMI
from .records import INTERRUPTED_RUN, NOTIFIED
from .spec import DISABLED, ENABLED
from .text import instance_text, layout_text
from .transaction import NUMBERS, Record, Snapshot, TargetLayout, has

if TYPE_CHECKING:
    from ..._core.protocols import Host

RESET_SECONDS = 120.0
# Of those who hold a GPU.
SHOWN = 4

T = TypeVar("T")
Readings = Mapping[str, MigReading]
# What the lists of consumers depend on: MIG mode, and the instances with their numbers.
Partitioning = Tuple[bool, Tuple[DriverInstance, ...]]


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, Repartition):
        repartition(step.action, host)
    elif isinstance(step.action, SettleInterrupted):
        settle_interrupted(step.action, host)
    else:
        steps.perform(step, host)


def repartition(action: Repartition, host: Host) -> None:
    """Change the groups in order. One that fails is brought back to what it was, and those after it are not touched.

    Services and persistence mode that an interrupted run has left come back, too. Raises what went wrong, which says
    what was brought back.
    """
    run = _Run(host, transaction.interrupted_run(host.files), action)
    failures: List[BaseException] = []
    try:
        run.begin([work for group in action.groups for work in group.gpus])
        for group in action.groups:
            run.change(group, action.stop_services)
    except BaseException as error:
        # A deadline, too: services that stand still are worse than a late end.
        failures.append(error)
        # What must be brought back is asked anew, should it have interrupted a question.
        host.nvml.close()
    failures.extend(run.end())
    # The next look is that of another client.
    host.nvml.close()
    if failures:
        # What is none of ours, such as a deadline, must reach who set it.
        first = next((error for error in failures if not isinstance(error, GpuFleetError)), failures[0])
        _add(first, [str(error) for error in failures if error is not first])
        raise first


def settle_interrupted(action: SettleInterrupted, host: Host) -> None:
    record = transaction.interrupted_run(host.files) or Record()
    transaction.keep(host.files, _only(record, action.unsettled))


class _Run:
    """One run, and its record of what is to be brought back. It begins with that of an interrupted run."""

    def __init__(self, host: Host, interrupted_run: Optional[Record], action: Repartition) -> None:
        self._host = host
        self._unsettled = set(action.unsettled)
        self._hold = action.hold
        self._held: Set[str] = set()
        self._record = interrupted_run or Record()
        self._killed = interrupted_run is not None
        self._begun = False
        self._found: Dict[str, Partitioning] = {}
        self._noted: Optional[str] = None

    def begin(self, works: Sequence[GpuTarget]) -> None:
        readings = _readings(self._host)
        self._drop_missing_gpus(readings)
        found = {work.uuid: _before(readings, work) for work in works}
        # What an interrupted run has found is older than what it left.
        gpus = dict(self._record.gpus)
        for work in works:
            before = gpus.get(work.uuid, found[work.uuid])
            persistence = found[work.uuid].persistence if before.persistence is None else before.persistence
            toward = TargetLayout(work.mig, work.target)
            gpus[work.uuid] = replace(before, persistence=persistence, toward=toward)
        self._keep(replace(self._record, gpus=gpus))
        self._found = {work.uuid: _divided(readings[work.uuid]) for work in works}
        # Now, so that they are notified also when this run is killed.
        self._noted = self._host.files.read_optional(NOTIFIED)
        consumers.record(self._host)
        self._begun = True

    def change(self, group: ResetGroup, stop_services: Sequence[str]) -> None:
        before = {work.uuid: self._record.gpus[work.uuid] for work in group.gpus}
        try:
            if group.reset:
                self._stop(stop_services)
            _bring(self._host, group, before)
        except BaseException as error:
            self._held.clear()
            self._unsettled.update(before)
            notes, settled = _restore(self._host, group, before)
            self._unsettled.difference_update(settled)
            _add(error, notes)
            raise
        self._unsettled.difference_update(before)
        if self._hold:
            self._held.update(before)
        else:
            self._keep(_only(self._record, set(self._record.gpus).difference(before)))

    def end(self) -> List[BaseException]:
        """Bring back persistence mode and services, and say what went wrong with that.

        Each gets its try whatever happened to the others; what could not be brought back is kept for the next run.
        Who must be notified is recorded before services start, which then know what is there.
        """
        failures: List[BaseException] = []
        for bring_back in (self._restore_persistence, self._record_consumers, self._start_services, self._save_record):
            try:
                bring_back()
            except OSError as error:
                cause = error.strerror or str(error)
                failures.append(NotPermitted("keep the record of a change", object=INTERRUPTED_RUN, cause=cause))
            except BaseException as error:
                # A deadline, too.
                failures.append(error)
        return failures

    def _restore_persistence(self) -> None:
        _set_persistence(self._host, self._record.gpus)
        # Persistence mode is right now, and from here on the matter of its own concern.
        gpus = {uuid: replace(one, persistence=None) for uuid, one in self._record.gpus.items()}
        self._record = _only(replace(self._record, gpus=gpus), self._unsettled | self._held)

    def _start_services(self) -> None:
        services.start(self._host, self._record.stopped)
        self._record = replace(self._record, stopped=())

    def _save_record(self) -> None:
        self._keep(self._record)

    def _record_consumers(self) -> None:
        """All that are there now, for who started in the middle may have seen any step of the change.

        Where everything is as it was before, by its numbers too, nobody has to be notified.
        """
        if not self._begun:
            return
        consumers.record(self._host)
        readings = _readings(self._host)
        now = {uuid: _divided(readings[uuid]) for uuid in self._found if uuid in readings}
        if self._killed or now != self._found:
            consumers.record(self._host, consumers.devices(self._host.files, readings.values()))
        elif self._noted is None:
            self._host.files.remove(NOTIFIED)
        else:
            self._host.files.replace(NOTIFIED, self._noted)

    def _drop_missing_gpus(self, readings: Readings) -> None:
        """What a run that was killed found of a GPU that has gone since: there is nothing to bring back any more."""
        for uuid in sorted(set(self._record.gpus).difference(readings)):
            journal(self._host, f"{uuid} has gone, and its previous layout is dropped", object=uuid)
        there = {uuid: known for uuid, known in self._record.gpus.items() if uuid in readings}
        self._record = replace(self._record, gpus=there)

    def _stop(self, units: Sequence[str]) -> None:
        running = tuple(unit for unit in services.running(self._host, units) if unit not in self._record.stopped)
        if running:
            # First the record: whatever happens, somebody starts them again.
            self._keep(replace(self._record, stopped=(*self._record.stopped, *running)))
            services.stop(self._host, running)

    def _keep(self, record: Record) -> None:
        self._record = record
        transaction.keep(self._host.files, record)


def _only(record: Record, uuids: Collection[str]) -> Record:
    return replace(record, gpus={uuid: before for uuid, before in record.gpus.items() if uuid in uuids})


# --- one group --------------------------------------------------------------------------------------------------------


def _bring(host: Host, group: ResetGroup, before: Mapping[str, Snapshot]) -> None:
    """Give all GPUs of a group their mode and their instances. Raises at the first that does not take them."""
    readings = _switched(host, group)
    # It keeps the driver on the GPU, and with it what comes next.
    _set_persistence(host, before)
    for work in group.gpus:
        _divide(host, work, readings)


def _restore(host: Host, group: ResetGroup, before: Mapping[str, Snapshot]) -> Tuple[List[str], Set[str]]:
    """Bring all GPUs of a group back to what they were, each as far as it goes.

    Says what they are now, and by their UUIDs which of them are what they were.
    """
    settled: Set[str] = set()
    notes = {work.name: f"{work.name} may have any layout now: its restoration was interrupted" for work in group.gpus}
    try:
        for work, note, back in _restored(host, group, before):
            notes[work.name] = note
            settled.update({work.uuid} if back else ())
    finally:
        # A deadline may end it.
        for name, note in notes.items():
            journal(host, note, object=name)
    return list(notes.values()), settled


def _restored(host: Host, group: ResetGroup, before: Mapping[str, Snapshot]) -> List[Tuple[GpuTarget, str, bool]]:
    """Of each GPU what it is now, and whether that is what it was."""
    old = [replace(work, mig=before[work.uuid].mig, target=before[work.uuid].layout) for work in group.gpus]
    # New handles; and a question that was interrupted has ended.
    host.nvml.close()
    causes: List[str] = []
    try:
        readings = _switched(host, replace(group, gpus=tuple(old)))
        _set_persistence(host, before)
    except GpuFleetError as error:
        causes.append(str(error))
    try:
        readings = _readings(host)
        for work in old:
            try:
                _divide(host, work, readings)
            except GpuFleetError as error:
                causes.append(str(error))
        readings = _readings(host)
    except GpuFleetError as error:
        why = "the driver does not respond" if isinstance(error, DriverHangs) else _sentence([*causes, str(error)])
        return [(work, f"{work.name} may have any layout now: {why}", False) for work in old]
    return [(work, *_note(work, readings.get(work.uuid), before[work.uuid], causes)) for work in old]


def _note(work: GpuTarget, reading: Optional[MigReading], before: Snapshot, causes: Sequence[str]) -> Tuple[str, bool]:
    if reading is not None and not reading.gpu.lost and has(reading, before):
        return f"{work.name} has its previous layout again: {_text(reading)}", True
    why = f": {_sentence(causes)}" if causes else ""
    now = f"; it now has {_text(reading)}" if reading is not None and not reading.gpu.lost else ""
    return f"{work.name} could not be restored{why}{now}", False


def _text(reading: MigReading) -> str:
    current, pending = reading.mode or (False, False)
    text = layout_text(reading.layout, reading.geometry or NUMBERS) if current else "MIG mode disabled"
    if current == pending:
        return text
    return f"{text} (MIG mode will be {'enabled' if pending else 'disabled'} after a reset)"


def _switched(host: Host, group: ResetGroup) -> Readings:
    """All GPUs of a group with their MIG mode; where it stays pending they are all reset, if they may be.

    Raises ``InUse`` where somebody keeps the driver from it. Where only a new start of this virtual machine will bring
    it, it stays pending.
    """
    readings = _readings(host)
    changing = [work for work in group.gpus if not _has_mode(readings, work)]
    if not changing:
        return readings
    # With a reset goes what the driver keeps of a GPU, such as locked clocks, and nobody could tell afterwards.
    reset_counts.note(host.files, [work.uuid for work in (group.gpus if group.reset else changing)])
    for work in changing:
        if _is_on(readings, work) and not work.mig:
            _ask_to_change(host, work, change, ())
    by_reset = [
        work.uuid for work in changing if _is_on(readings, work) != work.mig and not readings[work.uuid].resetless
    ]
    resettable = group.reset and bool(by_reset)
    if resettable:
        # The daemon has the GPU open while that is on, and the driver resets no GPU that somebody has open.
        _switch_persistence(host, dict.fromkeys(by_reset, False))
    answers = {work.uuid: _ask_to_change(host, work, set_mode, work.mig) for work in changing}
    readings = _anew(host)
    waiting = [work for work in changing if not answers[work.uuid].at_restart and not _has_mode(readings, work)]
    if waiting and resettable:
        _reset(host, group)
        readings = _anew(host)
        waiting = [work for work in waiting if not _has_mode(readings, work)]
        if waiting:
            raise NotInEffect(
                _switching(waiting),
                object=", ".join(work.name for work in waiting),
                cause="the GPU was reset, and the mode is still pending",
                hint="check the kernel log for NVRM",
            )
    if waiting:
        raise _kept_pending(host, waiting, answers)
    return readings


def _switching(works: Sequence[GpuTarget]) -> str:
    modes = {work.mig for work in works}
    return f"{'change' if len(modes) > 1 else 'enable' if modes == {True} else 'disable'} MIG mode"


def _kept_pending(host: Host, waiting: Sequence[GpuTarget], answers: Mapping[str, Activation]) -> GpuFleetError:
    """Why the mode of these GPUs is not in effect."""
    used = [work for work in waiting if answers[work.uuid].status == IN_USE]
    if not used:
        return Refused(
            _switching(waiting),
            object=", ".join(work.name for work in waiting),
            cause=f"{answers[waiting[0].uuid].said}, and keeps it pending",
            hint="reset the GPU while it is idle, or reboot the node",
        )
    error = InUse(
        _switching(used),
        object=", ".join(work.name for work in used),
        cause="the driver keeps it pending, because the GPU is in use",
        hint="stop what uses it, and run again",
    )
    _add(error, _who_uses(host, used, working=False))
    return error


def _reset(host: Host, group: ResetGroup) -> None:
    names = ", ".join(work.name for work in group.gpus)
    if host.commands.find(NVIDIA_SMI) is None:
        raise Refused(
            "reset {}",
            object=names,
            cause=f"there is no {NVIDIA_SMI} on this node, and GPUs cannot be reset without it",
            hint="install the driver package that has it, or reboot the node",
        )
    _switch_persistence(host, {work.uuid: False for work in group.gpus})
    # We have the GPUs open as well.
    host.nvml.close()
    addresses = ",".join(work.pci_address for work in group.gpus)
    completed = host.commands.run((NVIDIA_SMI, "--gpu-reset", "-i", addresses), timeout=RESET_SECONDS)
    if completed.timed_out:
        raise Refused(
            "reset {}",
            object=names,
            cause=f"{NVIDIA_SMI} did not end within {RESET_SECONDS:g} s",
            hint="check the kernel log for NVRM; the node may need a reboot",
        )
    if completed.status != 0:
        said = " ".join(f"{completed.output} {completed.errors}".split()).rstrip(".")
        error = Refused(
            "reset {}",
            object=names,
            cause=f"{NVIDIA_SMI} ended with status {completed.status}: {said or 'no output'}",
            hint="stop what has these GPUs open, or name its service in stop_services",
        )
        _add(error, _who_uses(host, group.gpus, working=False))
        raise error
    for work in group.gpus:
        journal(host, f"{work.name} was reset", object=work.name, setting="reset")


def _divide(host: Host, work: GpuTarget, readings: Readings) -> None:
    if work.mig and work.target is not None and _is_on(readings, work):
        _ask_to_change(host, work, change, work.target)


def _ask_to_change(host: Host, work: GpuTarget, question: Callable[..., T], wanted: Any) -> T:
    """Ask a question that changes a GPU. Where somebody uses what it would take away, the error says who."""
    try:
        return host.nvml.ask(question, work.uuid, wanted)
    except InUse as error:
        _add(error, _who_uses(host, [work], working=question is change))
        raise


def _who_uses(host: Host, works: Sequence[GpuTarget], *, working: bool) -> List[str]:
    """Who holds these GPUs, as one sentence; none where nobody is found, or nobody can say.

    ``working``: who merely has the GPU open, as a monitor has, is in nobody's way.
    """
    try:
        readings = _readings(host)
        there = [readings[work.uuid] for work in works if work.uuid in readings]
        found = busy.find(host, there, ignore_units=())
    except (GpuFleetError, OSError):
        return []
    uses = [
        f"{one.name} uses {_used(one, reading)}"
        for reading in there
        for one in found.get(reading.gpu.uuid, ())
        if one.work or one.start is not None or not (working or reading.resetless)
    ]
    more = f", and {len(uses) - SHOWN} more" if len(uses) > SHOWN else ""
    return [", ".join(uses[:SHOWN]) + more] if uses else []


def _used(holding: busy.Holding, reading: MigReading) -> str:
    for instance in reading.layout:
        if instance.start == holding.start:
            return f"{instance_text(instance, reading.geometry or NUMBERS)} of {reading.gpu.name}"
    return reading.gpu.name


# --- what is there ----------------------------------------------------------------------------------------------------


def _readings(host: Host) -> Readings:
    return {reading.gpu.uuid: reading for reading in host.nvml.ask(read)}


def _anew(host: Host) -> Readings:
    """The same with new handles: those from before a reset are good for nothing, and a mode may change by one."""
    host.nvml.close()
    return _readings(host)


def _before(readings: Readings, work: GpuTarget) -> Snapshot:
    reading = _reading(readings, work)
    return Snapshot(reading.is_on, reading.layout, reading.persistence)


def _reading(readings: Readings, work: GpuTarget) -> MigReading:
    reading = readings.get(work.uuid)
    if reading is None or reading.gpu.lost:
        cause = reading.gpu.lost if reading else "the GPU is gone"
        raise CannotLook(GOAL, object=work.name, cause=cause, hint="check the kernel log for NVRM")
    return reading


def _has_mode(readings: Readings, work: GpuTarget) -> bool:
    # A GPU without MIG can be reset together with others.
    return _reading(readings, work).mode in ((work.mig, work.mig), None)


def _is_on(readings: Readings, work: GpuTarget) -> bool:
    return _reading(readings, work).is_on


def _divided(reading: MigReading) -> Partitioning:
    return reading.is_on, reading.instances


# --- persistence mode -------------------------------------------------------------------------------------------------


def _set_persistence(host: Host, before: Mapping[str, Snapshot]) -> None:
    _switch_persistence(host, {uuid: known.persistence for uuid, known in before.items()})


def _switch_persistence(host: Host, modes: Mapping[str, Optional[bool]]) -> None:
    """Give GPUs this persistence mode, by UUID; None leaves one alone. Each gets its try; raises the first error."""
    errors: List[GpuFleetError] = []
    for uuid, wanted in modes.items():
        try:
            name = host.nvml.ask(set_persistence, uuid, wanted) if wanted is not None else ""
        except GpuFleetError as error:
            errors.append(error)
            continue
        if name:
            before, after = (DISABLED, ENABLED) if wanted else (ENABLED, DISABLED)
            message = f"{name} persistence_mode: {before} -> {after}"
            journal(host, message, object=name, setting="persistence_mode", before=before, after=after)
    if errors:
        raise errors[0]


# --- words ------------------------------------------------------------------------------------------------------------


def _add(error: BaseException, notes: Sequence[str]) -> None:
    """Let an error say more, in its message and in its hint. One that is not ours has no message to add to."""
    notes = [note for note in notes if note not in str(error)]
    if isinstance(error, GpuFleetError) and notes:
        error.args = (" ".join([str(error), *(f"{note.rstrip('.')}." for note in notes)]),)
        error.hint = "; ".join(filter(None, [error.hint, *notes]))


def _sentence(causes: Sequence[str]) -> str:
    return " ".join(causes).rstrip(".")
