# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``state: absent`` wants: every GPU as it was before the first change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Optional, Tuple

from .._core import before
from .._core.change import Unmanaged
from .._core.errors import CannotLook
from .look import Gpu, State, geometry_of, layout_of
from .model import Layout, Wanted, WantedCompute
from .spec import ENABLED, INSTANCES, MIG, NAME

if TYPE_CHECKING:
    from .._core.before import Found
    from .._host.protocols import Files
    from .driver import Reading


def as_before(files: Files, state: State) -> State:
    """The state with the GPUs that were changed, as they are to be again.

    While a GPU does not answer, nobody knows whether it is one of those that were changed and are not there.
    """
    found = before.load(files, NAME).found
    there = {reading.gpu.uuid for reading in state.readings}
    gone = sorted({uuid for uuid, setting in found if setting in (MIG, INSTANCES)} - there)
    chosen = []
    for reading in state.readings:
        mode, instances = (found.get((reading.gpu.uuid, setting)) for setting in (MIG, INSTANCES))
        if reading.mode is not None and (mode or instances):
            chosen.append(_gpu(reading, mode, instances))
    return replace(
        state,
        gpus=tuple(chosen),
        lost=state.lost if gone else (),
        unmanaged=() if state.lost else tuple(Unmanaged(uuid, INSTANCES, state.missing) for uuid in gone),
    )


def _gpu(reading: Reading, mode: Optional[Found], instances: Optional[Found]) -> Gpu:
    geometry = geometry_of(reading)
    # A pending mode is part of what was found ("disabled, enabled after a reset"); what was in effect counts.
    mig = str(mode.effective).startswith(ENABLED) if mode else bool(reading.mode and reading.mode[0])
    if not mig:
        return Gpu(reading, False, (), geometry)
    if instances is None:
        return Gpu(reading, True, None, geometry)
    layout = layout_of(str(instances.effective), geometry, device_id=reading.device_id)
    if layout is None:
        raise CannotLook(
            "restore the previous layout",
            object=reading.gpu.name,
            cause=f"this driver has no such layout: {instances.effective}",
            hint=f"divide the GPU as you want it, and remove {before.path_of(NAME)} to give up going back",
        )
    return Gpu(reading, True, exactly(layout), geometry)


def exactly(layout: Layout) -> Tuple[Wanted, ...]:
    """The declaration of just this layout, place for place."""
    return tuple(
        Wanted(one.profile, one.start, tuple(WantedCompute(part.slices, part.start) for part in one.compute))
        for one in layout
    )
