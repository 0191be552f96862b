# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``state: absent`` wants: every GPU as it was before the first change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core import baseline
from ..._core.change import Unmanaged
from ..._core.errors import CannotLook
from .model import Layout, WantedCompute, WantedInstance
from .spec import ENABLED, INSTANCES, MIG, NAME
from .state import MigLayoutDesired, MigLayoutState, WantedGpu, geometry_of, layout_of

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue, Key
    from .driver import MigReading


def as_before(changed: Mapping[Key, BaselineValue], state: MigLayoutState) -> MigLayoutDesired:
    """The GPUs that were changed, as they are to be again.

    While a GPU does not respond, nobody knows whether it is one of those that were changed and are not there.
    """
    there = {reading.gpu.uuid for reading in state.readings}
    gone = sorted({uuid for uuid, setting in changed if setting in (MIG, INSTANCES)} - there)
    chosen = []
    for reading in state.readings:
        mode, instances = (changed.get((reading.gpu.uuid, setting)) for setting in (MIG, INSTANCES))
        if reading.mode is not None and (mode or instances):
            chosen.append(_gpu(reading, mode, instances))
    return MigLayoutDesired(
        gpus=tuple(chosen),
        unresponsive=state.unresponsive if gone else (),
        unmanaged=() if state.unresponsive else tuple(Unmanaged(uuid, INSTANCES, state.missing) for uuid in gone),
    )


def _gpu(reading: MigReading, mode: Optional[BaselineValue], instances: Optional[BaselineValue]) -> WantedGpu:
    geometry = geometry_of(reading)
    # A pending mode is part of what was found ("disabled, enabled after a reset"); what was in effect counts.
    mig = str(mode.effective).startswith(ENABLED) if mode else reading.is_on
    if not mig:
        return WantedGpu(reading, False, (), geometry)
    if instances is None:
        return WantedGpu(reading, True, None, geometry)
    layout = layout_of(str(instances.effective), geometry, device_id=reading.device_id)
    if layout is None:
        raise CannotLook(
            "restore the previous layout",
            object=reading.gpu.name,
            cause=f"this driver has no such layout: {instances.effective}",
            hint=f"set the layout that you want, and remove {baseline.path_of(NAME)} to give up restoring",
        )
    return WantedGpu(reading, True, exactly(layout), geometry)


def exactly(layout: Layout) -> Tuple[WantedInstance, ...]:
    """The declaration of just this layout, place for place."""
    return tuple(
        WantedInstance(one.profile, one.start, tuple(WantedCompute(part.slices, part.start) for part in one.compute))
        for one in layout
    )
