# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Into which instances every GPU is divided, now and at boot, and what is wanted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, FrozenSet, Mapping, Optional, Tuple

from ..._core.change import Conflict, Unmanaged
from ..._core.setting import Scalar
from ..._core.value import field, frozen, replace
from ..._kinds.smi_writers import SmiWrite
from ..._linux.boot_service import BootCarrier
from ..._nvidia.gpus import NOT_THERE
from .boards import geometry_of as published
from .driver import MigReading
from .model import Geometry, Layout, WantedInstance
from .satisfied import satisfied
from .spec import MigEntry, MigLayoutDeclaration
from .text import parse_layout

if TYPE_CHECKING:
    from .busy import Holding
    from .consumers import Consumer
    from .transaction import Record


@frozen
class MigGpu:
    """A GPU that is declared, or restored: its mode and its instances in effect and at boot, by their setting."""

    name: str
    effective: Mapping[str, Scalar]
    boot: Mapping[str, Scalar]


@frozen
class WantedGpu:
    """What is wanted of one GPU, beside what the driver says of it.

    ``wanted`` is None where its instances are left alone. ``geometry`` is the driver's, or the published one while the
    driver does not tell it. ``recorded`` is the layout that the boot service makes, None where none is recorded.
    ``undone``: its instances, and where it is not ``declared`` its mode, are those from before an interrupted change.
    """

    reading: MigReading
    mig: bool
    wanted: Optional[Tuple[WantedInstance, ...]]
    geometry: Geometry
    recorded: Optional[Layout] = None
    declared: bool = True
    undone: bool = False

    @property
    def name(self) -> str:
        return self.reading.gpu.name

    @property
    def in_sync(self) -> bool:
        """Whether it is as declared, and still will be after its next reset."""
        has_mode = self.reading.mode in (None, (self.mig, self.mig))
        return has_mode and (self.wanted is None or satisfied(self.reading.layout, self.wanted))


@frozen
class InterruptedGpu:
    """A GPU between old and new: its name and UUID, and from what to what it was on its way."""

    name: str
    uuid: str
    between: str


@frozen
class InterruptedRun:
    """What an interrupted run left. ``gpus`` are between old and new.

    ``unresponsive`` are the UUIDs of those that do not answer, of which nobody knows. ``unfinished``: there is
    something to bring back besides.
    """

    gpus: Tuple[InterruptedGpu, ...]
    unresponsive: Tuple[str, ...]
    unfinished: bool

    @property
    def unsettled(self) -> Tuple[str, ...]:
        """The UUIDs that stay on record until they are old or new."""
        return (*(gpu.uuid for gpu in self.gpus), *self.unresponsive)


@frozen
class Preconditions:
    """``together``: by UUID of a GPU that has to be reset, the UUIDs of all that are reset with it, itself first.

    ``unmanaged``: the UUIDs of those among them that are reset with others only because no fabric manager runs.
    ``holdings``: by UUID who uses a GPU that changes. ``modules``: kernel modules that keep GPUs from being reset.
    ``passed_through``: the UUIDs of GPUs whose mode changes only when this virtual machine is started anew.
    ``has_tool``: whether nvidia-smi is there where GPUs are reset. ``yielding``: the services of other concerns of ours
    that stand still meanwhile.
    """

    together: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    unmanaged: FrozenSet[str] = frozenset()
    holdings: Mapping[str, Tuple[Holding, ...]] = field(default_factory=dict)
    modules: Tuple[str, ...] = ()
    passed_through: FrozenSet[str] = frozenset()
    has_tool: bool = True
    yielding: Tuple[str, ...] = ()


@frozen
class MigLayoutState:
    """What was seen: all GPUs that there are, those that an entry wins, and in ``gpus`` those that are asked for.

    ``carrier`` is what makes the layouts at the next boot. ``record`` are the recorded layouts as text by UUID.
    ``preconditions`` are those of a change, and empty where there is none to make. ``interrupted`` is the record of an
    interrupted run. ``unserved`` is what cannot be set because there is no driver, and ``missing`` why a GPU is not
    seen. ``foreign`` is what services and scripts set at boot.
    """

    gpus: Tuple[MigGpu, ...] = ()
    readings: Tuple[MigReading, ...] = ()
    won: Tuple[Tuple[MigEntry, MigReading], ...] = ()
    carrier: BootCarrier = BootCarrier()
    declaration: MigLayoutDeclaration = MigLayoutDeclaration()
    record: Optional[Mapping[str, str]] = None
    consumers: Tuple[Consumer, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()
    interrupted: Optional[Record] = None
    preconditions: Preconditions = Preconditions()
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE
    foreign: Tuple[SmiWrite, ...] = ()

    @property
    def unresponsive(self) -> Tuple[str, ...]:
        """The names of GPUs that do not respond."""
        return tuple(reading.gpu.name for reading in self.readings if reading.gpu.lost)


@frozen
class MigLayoutDesired:
    """What is wanted of every GPU that is declared, restored or brought back.

    ``unmanaged`` is what cannot be had. ``unresponsive`` are the names of GPUs of which nobody knows whether they have
    it, and ``interrupted_run`` is what an interrupted run left between old and new.
    """

    gpus: Tuple[WantedGpu, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
    unresponsive: Tuple[str, ...] = ()
    interrupted_run: Optional[InterruptedRun] = None

    @property
    def in_sync(self) -> bool:
        return all(gpu.in_sync for gpu in self.gpus)


def geometry_of(reading: MigReading) -> Geometry:
    """What a GPU can be divided into: as the driver says, or as published while it does not say."""
    if reading.geometry is not None:
        return reading.geometry
    return replace(published(reading.device_id) or Geometry(()), three_beside_four=reading.beside)


def layout_of(text: Optional[str], geometry: Geometry, *, device_id: int) -> Optional[Layout]:
    """A recorded layout; None where there is none, or none that this GPU can have."""
    try:
        return None if text is None else parse_layout(text, geometry, device_id=device_id)
    except ValueError:
        return None
