# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Functions of PCI as sysfs shows them, what the next boot binds them to, and what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._linux.boot_service import BootCarrier
from ..._nvidia.gpus import DISPLAY_CLASSES
from .spec import FAIL

if TYPE_CHECKING:
    from ..._core.change import Conflict, Unmanaged
    from ..._kinds.units import UnitFile
    from .files import Recorded
    from .vgpus import Counts, Vgpus

# The settings of a function.
DRIVER, OVERRIDE, CLIENTS = "driver", "driver override", "new clients"
# Those of a GPU with vGPUs.
FUNCTIONS, VGPUS = "virtual functions", "vGPUs"
BRIDGE = "0x06"


@frozen
class Function:
    """A function of a PCI device. ``ids`` are its vendor and device (``10de:2330``), ``kind`` is its class.

    ``driver`` is the one that it is bound to, ``override`` the only one that it may be bound to, None where any may.
    ``group`` is its IOMMU group, empty without one, and ``devices`` are the device files by which programs use it.
    ``console``: whether the firmware chose it for the console. ``virtual`` counts its virtual functions.
    """

    address: str
    ids: str
    kind: str
    driver: Optional[str] = None
    override: Optional[str] = None
    group: str = ""
    console: bool = False
    virtual: int = 0
    devices: Tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.kind.startswith(DISPLAY_CLASSES)

    @property
    def is_bridge(self) -> bool:
        return self.kind.startswith(BRIDGE)

    @property
    def slot(self) -> str:
        """The device that it is a function of."""
        return self.address.rpartition(".")[0]


@frozen
class Claim:
    """What somebody else says of a function's driver at boot."""

    owner: str
    path: str
    line: Optional[int]
    driver: str
    value: str


@frozen
class GpuVirtualizationState:
    """What was seen.

    ``gpus`` are all, ``winners`` the entry that wins each, ``wanted`` the driver of each function that is declared.
    ``functions`` are all that matter, by address: the GPUs, their companions in the same slot, what shares an IOMMU
    group with one that is declared, and what we changed. ``recorded`` is what our unit binds. ``holders`` are who uses
    a function that would change, by its address. ``no_iommu`` says why there is none, and ``comes`` that the next boot
    brings it. ``missing`` are drivers that are wanted and that this kernel does not have. ``closed`` are GPUs that a
    run was about to unbind when it was killed. ``has_tool``: whether nvidia-smi is there, if it is needed. ``counts``
    are the vGPUs that are wanted by GPU, ``vgpus`` those that there are, of these GPUs and of those that we changed.
    """

    gpus: Tuple[Function, ...]
    winners: Tuple[Optional[int], ...]
    wanted: Mapping[str, str]
    functions: Mapping[str, Function]
    unit: UnitFile
    status: str
    recorded: Mapping[str, Recorded]
    holders: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    conflicts: Tuple[Conflict, ...] = ()
    no_iommu: str = ""
    comes: bool = False
    missing: Tuple[str, ...] = ()
    closed: Tuple[str, ...] = ()
    has_tool: bool = True
    counts: Mapping[str, Counts] = field(default_factory=dict)
    vgpus: Mapping[str, Vgpus] = field(default_factory=dict)
    has_sriov_tool: bool = True
    carrier: BootCarrier = field(default_factory=BootCarrier)
    when_busy: str = FAIL
    busy_timeout: float = 0.0


@frozen
class Goal:
    """What a function is to be bound to, None for no driver, and its override."""

    driver: Optional[str]
    override: Optional[str]


@frozen
class VgpuGoal:
    """Whether the virtual functions of a GPU are to be enabled, and which vGPUs are to be on them."""

    enabled: bool
    counts: Counts


@frozen
class GpuVirtualizationDesired:
    """What is wanted: ``goals`` by address, ``vgpus`` too, and the text of our unit, None for no unit."""

    goals: Mapping[str, Goal] = field(default_factory=dict)
    vgpus: Mapping[str, VgpuGoal] = field(default_factory=dict)
    text: Optional[str] = None
    unmanaged: Tuple[Unmanaged, ...] = ()
