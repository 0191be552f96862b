# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only the layout of GPUs has, each group a transaction. Imported when there is something to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from .._core import steps
from .._core.change import Step
from .._core.errors import CannotLook, GpuFleetError, InUse, NotInEffect, NotPermitted, Refused
from .._host.lost import NameLost, name_lost
from .._host.nvml import GOAL, DriverHangs
from . import consumers, services, transaction
from .driver import Numbered, Reading, read
from .driver_apply import change, set_mode, set_persistence
from .model import GpuWork, Group, RefuseUncarried, Relayout
from .records import HEARD, LEFT_OVER
from .spec import NAME
from .text import layout_text
from .transaction import NUMBERS, Before, Record

if TYPE_CHECKING:
    from .._host.protocols import Host

NVIDIA_SMI = "nvidia-smi"
RESET_SECONDS = 120.0

Readings = Mapping[str, Reading]


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, Relayout):
        relayout(step.action, host)
    elif isinstance(step.action, RefuseUncarried):
        refuse_uncarried(step.action)
    elif isinstance(step.action, NameLost):
        name_lost(step.action)
    else:
        steps.perform(step, host)


def refuse_uncarried(action: RefuseUncarried) -> None:
    cause, _semicolon, way = action.why.partition("; ")
    raise Refused("keep what is declared across a reboot", cause=cause, hint=f"{way} first, or say permanent: false")


def relayout(action: Relayout, host: Host) -> None:
    """Change the groups in order. One that fails is brought back to what it was, and those after it are not touched.

    What a run that was killed has left to do is done, too. Raises what went wrong, which says what was brought back.
    """
    run = _Run(host, transaction.left_over(host.files))
    failure: Optional[BaseException] = None
    try:
        run.begin([work for group in action.groups for work in group.gpus])
        for group in action.groups:
            run.change(group, action.stop_services)
    except BaseException as error:
        # A deadline, too: services that stand still are worse than a late end.
        failure = error
        # What must be brought back is asked anew, should it have interrupted a question.
        host.nvml.close()
    try:
        errors = run.end()
    finally:
        # The next look is that of another client.
        host.nvml.close()
    if failure is None and errors:
        failure = errors.pop(0)
    if failure is not None:
        _add(failure, [str(error) for error in errors])
        raise failure


class _Run:
    """One run, and its record of what is to be brought back. It begins with that of a run that was killed."""

    def __init__(self, host: Host, left_over: Optional[Record]) -> None:
        self._host = host
        self._record = left_over or Record()
        self._killed = left_over is not None
        self._found: Dict[str, Tuple[Numbered, ...]] = {}
        self._noted: Optional[str] = None

    def begin(self, works: Sequence[GpuWork]) -> None:
        readings = _readings(self._host)
        found = {work.uuid: _before(readings, work) for work in works}
        # What a run that was killed has found is older than what it left.
        self._keep(replace(self._record, gpus={**found, **self._record.gpus}))
        self._found = {work.uuid: readings[work.uuid].instances for work in works}
        # Now, so that they are told also when this run is killed.
        self._noted = self._host.files.read_optional(HEARD)
        consumers.record(self._host)

    def change(self, group: Group, stop_services: Sequence[str]) -> None:
        before = {work.uuid: self._record.gpus[work.uuid] for work in group.gpus}
        try:
            if group.reset:
                self._stop(stop_services)
            _bring(self._host, group, before)
        except BaseException as error:
            _add(error, _restore(self._host, group, before))
            raise
        others = {uuid: known for uuid, known in self._record.gpus.items() if uuid not in before}
        self._keep(replace(self._record, gpus=others))

    def end(self) -> List[GpuFleetError]:
        """Bring back persistence mode and services, whatever happened, and say what went wrong with that."""
        errors: List[GpuFleetError] = []
        left = self._record
        try:
            if left.gpus:
                _set_persistence(self._host, left.gpus)
            left = replace(left, gpus={})
        except GpuFleetError as error:
            errors.append(error)
        try:
            if left.stopped:
                services.start(self._host, left.stopped)
            left = replace(left, stopped=())
        except GpuFleetError as error:
            errors.append(error)
        try:
            self._forget_who_need_not_hear()
            # What could not be brought back is kept for the next run.
            self._keep(left)
        except GpuFleetError as error:
            errors.append(error)
        except OSError as error:
            cause = error.strerror or str(error)
            errors.append(NotPermitted("keep the record of a change", object=LEFT_OVER, cause=cause))
        return errors

    def _forget_who_need_not_hear(self) -> None:
        """Where the instances are those of before, by their numbers too, nobody has anything to hear."""
        if self._killed or not self._found:
            return
        readings = _readings(self._host)
        if any(uuid not in readings or readings[uuid].instances != found for uuid, found in self._found.items()):
            return
        if self._noted is None:
            self._host.files.remove(HEARD)
        else:
            self._host.files.replace(HEARD, self._noted)

    def _stop(self, units: Sequence[str]) -> None:
        running = tuple(unit for unit in services.running(self._host, units) if unit not in self._record.stopped)
        if running:
            # First the record: whatever happens, somebody starts them again.
            self._keep(replace(self._record, stopped=(*self._record.stopped, *running)))
            services.stop(self._host, running)

    def _keep(self, record: Record) -> None:
        self._record = record
        transaction.keep(self._host.files, record)


# --- one group --------------------------------------------------------------------------------------------------------


def _bring(host: Host, group: Group, before: Mapping[str, Before]) -> None:
    """Give all GPUs of a group their mode and their instances. Raises at the first that does not take them."""
    readings = _switched(host, group)
    # It keeps the driver on the GPU, and with it what comes next.
    _set_persistence(host, before)
    for work in group.gpus:
        _divide(host, work, readings)


def _restore(host: Host, group: Group, before: Mapping[str, Before]) -> List[str]:
    """Bring all GPUs of a group back to what they were, each as far as it goes, and say what they are now."""
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
        why = "the driver does not answer" if isinstance(error, DriverHangs) else _sentence([*causes, str(error)])
        notes = [f"{work.name} may have any layout now: {why}" for work in old]
    else:
        notes = [_note(work, readings.get(work.uuid), before[work.uuid], causes) for work in old]
    for note in notes:
        host.journal(f"{NAME}: {note}", {"GPUFLEET_CONCERN": NAME})
    return notes


def _note(work: GpuWork, reading: Optional[Reading], before: Before, causes: Sequence[str]) -> str:
    if reading and reading.mode in ((before.mig, before.mig), None) and reading.layout == before.layout:
        return f"{work.name} has its layout of before again: {_text(reading)}"
    why = f": {_sentence(causes)}" if causes else ""
    now = f"; it now has {_text(reading)}" if reading and not reading.gpu.lost else ""
    return f"{work.name} could not be restored{why}{now}"


def _text(reading: Reading) -> str:
    current, pending = reading.mode or (False, False)
    text = layout_text(reading.layout, reading.geometry or NUMBERS) if current else "MIG mode disabled"
    if current == pending:
        return text
    return f"{text} (MIG mode will be {'enabled' if pending else 'disabled'} after a reset)"


def _switched(host: Host, group: Group) -> Readings:
    """All GPUs of a group with their MIG mode; where it stays pending they are all reset, if they may be.

    Raises ``InUse`` where somebody keeps the driver from it. Where only a new start of this virtual machine will bring
    it, it stays pending.
    """
    readings = _readings(host)
    changing = [work for work in group.gpus if not _has_mode(readings, work)]
    if not changing:
        return readings
    for work in changing:
        if _is_on(readings, work) and not work.mig:
            host.nvml.ask(change, work.uuid, ())
    by_reset = [
        work.uuid for work in changing if _is_on(readings, work) != work.mig and not readings[work.uuid].resetless
    ]
    resettable = group.reset and bool(by_reset)
    if resettable:
        # The daemon has the GPU open while that is on, and the driver resets no GPU that somebody has open.
        host.nvml.ask(set_persistence, dict.fromkeys(by_reset, False))
    at_restart = {work.uuid for work in changing if not host.nvml.ask(set_mode, work.uuid, work.mig)}
    readings = _anew(host)
    waiting = [work for work in changing if work.uuid not in at_restart and not _has_mode(readings, work)]
    if waiting and resettable:
        _reset(host, group)
        readings = _anew(host)
        waiting = [work for work in waiting if not _has_mode(readings, work)]
        if waiting:
            raise NotInEffect(
                "switch MIG mode",
                object=", ".join(work.name for work in waiting),
                cause="the GPU was reset, and the mode is still pending",
                hint="look at the kernel log for NVRM",
            )
    if waiting:
        raise InUse(
            "switch MIG mode",
            object=", ".join(work.name for work in waiting),
            cause="the driver keeps it pending, because somebody uses the GPU",
            hint="end what uses it, and run again",
        )
    return readings


def _reset(host: Host, group: Group) -> None:
    names = ", ".join(work.name for work in group.gpus)
    if host.commands.find(NVIDIA_SMI) is None:
        raise Refused(
            "reset a GPU",
            object=names,
            cause=f"there is no {NVIDIA_SMI} on this node, and nothing else resets GPUs",
            hint="install the package of the driver that brings it, or reboot the node",
        )
    host.nvml.ask(set_persistence, {work.uuid: False for work in group.gpus})
    # We have the GPUs open as well.
    host.nvml.close()
    addresses = ",".join(work.pci_address for work in group.gpus)
    completed = host.commands.run((NVIDIA_SMI, "--gpu-reset", "-i", addresses), timeout=RESET_SECONDS)
    if completed.status != 0:
        said = " ".join(f"{completed.output} {completed.errors}".split()).rstrip(".")
        raise Refused(
            "reset a GPU",
            object=names,
            cause=f"{NVIDIA_SMI} ended with status {completed.status}: {said or 'no output'}",
            hint="end what has these GPUs open, or name its service in stop_services",
        )


def _divide(host: Host, work: GpuWork, readings: Readings) -> None:
    if work.mig and work.target is not None and _is_on(readings, work):
        host.nvml.ask(change, work.uuid, work.target)


# --- what is there ----------------------------------------------------------------------------------------------------


def _readings(host: Host) -> Readings:
    return {reading.gpu.uuid: reading for reading in host.nvml.ask(read)}


def _anew(host: Host) -> Readings:
    """The same with new handles: those from before a reset are good for nothing, and a mode may change by one."""
    host.nvml.close()
    return _readings(host)


def _before(readings: Readings, work: GpuWork) -> Before:
    reading = _reading(readings, work)
    return Before(bool(reading.mode and reading.mode[0]), reading.layout, reading.persistence)


def _reading(readings: Readings, work: GpuWork) -> Reading:
    reading = readings.get(work.uuid)
    if reading is None or reading.gpu.lost:
        cause = reading.gpu.lost if reading else "the GPU has gone"
        raise CannotLook(GOAL, object=work.name, cause=cause, hint="look at the kernel log for NVRM")
    return reading


def _has_mode(readings: Readings, work: GpuWork) -> bool:
    # A GPU without MIG can be reset together with others.
    return _reading(readings, work).mode in ((work.mig, work.mig), None)


def _is_on(readings: Readings, work: GpuWork) -> bool:
    mode = _reading(readings, work).mode
    return bool(mode and mode[0])


def _set_persistence(host: Host, before: Mapping[str, Before]) -> None:
    host.nvml.ask(set_persistence, {uuid: known.persistence for uuid, known in before.items()})


# --- words ------------------------------------------------------------------------------------------------------------


def _add(error: BaseException, notes: Sequence[str]) -> None:
    """Let an error say more, in its message and in its hint. One that is not ours has no message to add to."""
    notes = [note for note in notes if note not in str(error)]
    if isinstance(error, GpuFleetError) and notes:
        error.args = (" ".join([str(error), *(f"{note.rstrip('.')}." for note in notes)]),)
        error.hint = "; ".join(filter(None, [error.hint, *notes]))


def _sentence(causes: Sequence[str]) -> str:
    return " ".join(causes).rstrip(".")
