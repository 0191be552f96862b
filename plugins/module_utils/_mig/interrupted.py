# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an interrupted run left between old and new: which GPUs, what brings them out of it, and how a look names them.

A declaration of a GPU's instances finishes the change in its own way. Where there is none the GPU gets back what it
had before. Nothing of that takes an instance from a job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from .._core.change import EFFECTIVE, REBOOT, Change, Setting, Step
from .look import Gpu, State, geometry_of
from .model import Geometry, Layout, Relayout
from .records import LEFT_OVER
from .restore import exactly
from .spec import DISABLED, ENABLED, INSTANCES, MIG
from .text import layout_text
from .transaction import Before, Record, has, left_over

if TYPE_CHECKING:
    from .._host.protocols import Files
    from .driver import Reading

SETTING = "interrupted_change"
WANTED = "finished by the next converge or gpufleet-boot.service"
AT_BOOT = "immediate is false, so it is left to gpufleet-boot.service at the next boot"
RUN, KILLED, FINISHED = "run", "interrupted", "finished"


@dataclass(frozen=True)
class Interrupted:
    """A GPU between old and new: its name and UUID, and from what to what it was on its way."""

    name: str
    uuid: str
    between: str


@dataclass(frozen=True)
class Leftover:
    """What an interrupted run left. ``gpus`` are between old and new; ``lost`` are the UUIDs of those that do not
    answer, of which nobody knows. ``unfinished``: there is something to bring back besides."""

    gpus: Tuple[Interrupted, ...]
    lost: Tuple[str, ...]
    unfinished: bool

    @property
    def unsettled(self) -> Tuple[str, ...]:
        """The UUIDs that stay on record until they are old or new."""
        return (*(gpu.uuid for gpu in self.gpus), *self.lost)


def with_interrupted(files: Files, state: State) -> State:
    """The state with what was interrupted, and with the GPUs that have to be brought back for it.

    Raises ``CannotLook`` where the record is damaged.
    """
    record = left_over(files) or Record()
    chosen: Dict[str, Gpu] = {gpu.reading.gpu.uuid: gpu for gpu in state.gpus}
    readings: Dict[str, Reading] = {reading.gpu.uuid: reading for reading in state.readings}
    found: List[Interrupted] = []
    for uuid, before in record.gpus.items():
        reading = readings.get(uuid)
        if reading is None or reading.gpu.lost or _settled(reading, before, chosen.get(uuid), rebooted=record.rebooted):
            continue
        found.append(Interrupted(reading.gpu.name, uuid, _between(before, geometry_of(reading), record.rebooted)))
        chosen[uuid] = _brought_back(reading, before, chosen.get(uuid))
    lost = tuple(uuid for uuid in record.gpus if uuid in readings and readings[uuid].gpu.lost)
    persistence = any(
        before.persistence not in (None, readings[uuid].persistence)
        for uuid, before in record.gpus.items()
        if uuid in readings and uuid not in lost
    )
    unfinished = bool(record.stopped) or persistence or len(found) + len(lost) < max(len(record.gpus), 1)
    return replace(state, gpus=tuple(chosen.values()), left_over=Leftover(tuple(found), lost, unfinished))


def settings_of(leftover: Leftover, waiting: Mapping[str, Tuple[str, str]], *, immediate: bool) -> List[Setting]:
    """What a look says of it, a line for each GPU. ``waiting`` says what keeps a GPU, and what it takes."""
    found = []
    for gpu in leftover.gpus:
        pending, needs = waiting.get(gpu.name, ("", "")) if immediate else (AT_BOOT, REBOOT)
        found.append(
            Setting(
                object=gpu.name,
                setting=SETTING,
                wanted=WANTED,
                effective=gpu.between,
                boot=WANTED,
                identity=f"{LEFT_OVER} {gpu.uuid}",
                boot_matters=False,
                pending=pending,
                needs=needs,
            )
        )
    return found


def end_of(leftover: Leftover) -> Tuple[Tuple[Step, ...], Tuple[Setting, ...]]:
    """The step that brings back what is no layout, such as services that were stopped; none where there is nothing."""
    if not leftover.unfinished:
        return (), ()
    change = Change(LEFT_OVER, RUN, KILLED, FINISHED, EFFECTIVE)
    setting = Setting(LEFT_OVER, RUN, FINISHED, KILLED, FINISHED, LEFT_OVER)
    return (Step(Relayout((), unsettled=leftover.unsettled), (change,)),), (setting,)


def changes_of(gpu: Gpu, target: Layout) -> List[Change]:
    """What bringing this GPU back changes of what nobody declares."""
    mode = ENABLED if gpu.reading.mode and gpu.reading.mode[0] else DISABLED
    wanted = ENABLED if gpu.mig else DISABLED
    now, then = layout_text(gpu.reading.layout, gpu.geometry), layout_text(target, gpu.geometry)
    rows = [] if gpu.declared else [(MIG, mode, wanted)]
    rows += [] if gpu.wanted is None else [(INSTANCES, now, then)]
    return [Change(gpu.name, name, was, will, EFFECTIVE) for name, was, will in rows if was != will]


def _settled(reading: Reading, before: Before, declared: Optional[Gpu], *, rebooted: bool) -> bool:
    """Whether it is what it was, or what it was to be, or what is declared."""
    if declared is not None and declared.right and (declared.wanted is not None or not declared.mig):
        return True
    toward = before.toward
    if has(reading, before):
        return True
    # Later GPUs than Ampere begin every boot without MIG, whatever they were.
    return (rebooted and reading.resetless) or (toward is not None and has(reading, toward))


def _brought_back(reading: Reading, before: Before, declared: Optional[Gpu]) -> Gpu:
    """The GPU as it is to be: as declared, and what is not declared as it was."""
    layout = before.layout if before.mig or before.layout is None else ()
    wanted = None if layout is None else exactly(layout)
    if declared is None:
        return Gpu(reading, before.mig, wanted if before.mig else (), geometry_of(reading), declared=False, undone=True)
    if declared.wanted is not None or not declared.mig:
        return declared
    return replace(declared, wanted=wanted, undone=True)


def _between(before: Before, geometry: Geometry, rebooted: bool) -> str:
    toward = before.toward
    texts = [_text(before.mig, before.layout, geometry)]
    texts += [] if toward is None else [_text(toward.mig, toward.layout, geometry)]
    return f"{' -> '.join(texts)}{' (before the boot)' if rebooted else ''}"


def _text(mig: bool, layout: Optional[Layout], geometry: Geometry) -> str:
    if not mig:
        return DISABLED
    return ENABLED if layout is None else layout_text(layout, geometry)
