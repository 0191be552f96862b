# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an interrupted run left between old and new: which GPUs, what brings them out of it, and how a look names them.

A declaration of a GPU's instances finishes the change in its own way. Where there is none the GPU gets back what it
had before. Nothing of that takes an instance from a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Tuple

from ..._core.change import Change, Step
from ..._core.setting import EFFECTIVE, REBOOT, Setting
from ..._core.value import replace
from .actions import Repartition
from .model import Geometry, Layout
from .records import INTERRUPTED_RUN
from .restore import exactly
from .spec import DISABLED, ENABLED, INSTANCES, MIG
from .state import InterruptedGpu, InterruptedRun, MigLayoutDesired, WantedGpu, geometry_of
from .text import layout_text
from .transaction import Snapshot, has

if TYPE_CHECKING:
    from .driver import MigReading
    from .transaction import Record

SETTING = "interrupted_change"
WANTED = "finished by the next converge or gpufleet-boot.service"
AT_BOOT = "immediate is false, so it is left to gpufleet-boot.service at the next boot"
RUN, KILLED, FINISHED = "run", "interrupted", "finished"


def with_interrupted(record: Record, known: Iterable[MigReading], desired: MigLayoutDesired) -> MigLayoutDesired:
    """What is wanted, and besides what was interrupted, with the GPUs that have to be brought back for it."""
    chosen: Dict[str, WantedGpu] = {gpu.reading.gpu.uuid: gpu for gpu in desired.gpus}
    readings: Dict[str, MigReading] = {reading.gpu.uuid: reading for reading in known}
    found: List[InterruptedGpu] = []
    for uuid, before in record.gpus.items():
        reading = readings.get(uuid)
        if reading is None or reading.gpu.lost or _settled(reading, before, chosen.get(uuid), rebooted=record.rebooted):
            continue
        found.append(InterruptedGpu(reading.gpu.name, uuid, _between(before, geometry_of(reading), record.rebooted)))
        chosen[uuid] = _brought_back(reading, before, chosen.get(uuid))
    lost = tuple(uuid for uuid in record.gpus if uuid in readings and readings[uuid].gpu.lost)
    persistence = any(
        before.persistence not in (None, readings[uuid].persistence)
        for uuid, before in record.gpus.items()
        if uuid in readings and uuid not in lost
    )
    unfinished = bool(record.stopped) or persistence or len(found) + len(lost) < max(len(record.gpus), 1)
    return replace(desired, gpus=tuple(chosen.values()), interrupted_run=InterruptedRun(tuple(found), lost, unfinished))


def settings_of(
    interrupted_run: InterruptedRun, waiting: Mapping[str, Tuple[str, str]], *, immediate: bool
) -> List[Setting]:
    """What a look says of it, a line for each GPU. ``waiting`` says what keeps a GPU, and what it takes."""
    found = []
    for gpu in interrupted_run.gpus:
        pending, needs = waiting.get(gpu.name, ("", "")) if immediate else (AT_BOOT, REBOOT)
        found.append(
            Setting(
                object=gpu.name,
                setting=SETTING,
                wanted=WANTED,
                effective=gpu.between,
                boot=WANTED,
                identity=f"{INTERRUPTED_RUN} {gpu.uuid}",
                boot_matters=False,
                pending=pending,
                needs=needs,
            )
        )
    return found


def end_of(interrupted_run: InterruptedRun) -> Tuple[Tuple[Step, ...], Tuple[Setting, ...]]:
    """The step that brings back what is no layout, such as services that were stopped; none where there is nothing."""
    if not interrupted_run.unfinished:
        return (), ()
    change = Change(INTERRUPTED_RUN, RUN, KILLED, FINISHED, EFFECTIVE)
    setting = Setting(INTERRUPTED_RUN, RUN, FINISHED, KILLED, FINISHED, INTERRUPTED_RUN)
    return (Step(Repartition((), unsettled=interrupted_run.unsettled), (change,)),), (setting,)


def changes_of(gpu: WantedGpu, target: Layout) -> List[Change]:
    """What bringing this GPU back changes of what nobody declares."""
    mode = ENABLED if gpu.reading.is_on else DISABLED
    wanted = ENABLED if gpu.mig else DISABLED
    now, then = layout_text(gpu.reading.layout, gpu.geometry), layout_text(target, gpu.geometry)
    rows = [] if gpu.declared else [(MIG, mode, wanted)]
    rows += [] if gpu.wanted is None else [(INSTANCES, now, then)]
    return [Change(gpu.name, name, was, will, EFFECTIVE) for name, was, will in rows if was != will]


def _settled(reading: MigReading, before: Snapshot, declared: Optional[WantedGpu], *, rebooted: bool) -> bool:
    """Whether it is what it was, or what it was to be, or what is declared."""
    if declared is not None and declared.in_sync and (declared.wanted is not None or not declared.mig):
        return True
    toward = before.toward
    if has(reading, before):
        return True
    # Later GPUs than Ampere begin every boot without MIG, whatever they were.
    return (rebooted and reading.resetless) or (toward is not None and has(reading, toward))


def _brought_back(reading: MigReading, before: Snapshot, declared: Optional[WantedGpu]) -> WantedGpu:
    """The GPU as it is to be: as declared, and what is not declared as it was."""
    layout = before.layout if before.mig or before.layout is None else ()
    wanted = None if layout is None else exactly(layout)
    if declared is None:
        return WantedGpu(
            reading, before.mig, wanted if before.mig else (), geometry_of(reading), declared=False, undone=True
        )
    if declared.wanted is not None or not declared.mig:
        return declared
    return replace(declared, wanted=wanted, undone=True)


def _between(before: Snapshot, geometry: Geometry, rebooted: bool) -> str:
    toward = before.toward
    texts = [_text(before.mig, before.layout, geometry)]
    texts += [] if toward is None else [_text(toward.mig, toward.layout, geometry)]
    return f"{' -> '.join(texts)}{' (before the boot)' if rebooted else ''}"


def _text(mig: bool, layout: Optional[Layout], geometry: Geometry) -> str:
    if not mig:
        return DISABLED
    return ENABLED if layout is None else layout_text(layout, geometry)
