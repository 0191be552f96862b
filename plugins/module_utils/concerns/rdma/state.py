# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is seen of RDMA devices and of GPU memory, and what is wanted of them."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from ..._core.change import Conflict, Unmanaged
from ..._core.setting import Scalar
from ..._core.value import frozen
from ..._kinds.foreign_values import ForeignValue
from ..._kinds.hotplug import Hotplug
from ..._linux.boot_service import BootCarrier
from .devices import Device, Port
from .firewalls import Firewalls
from .gpu_memory import GpuMemory
from .spec import RdmaDeclaration

# The one setting that is of no device.
GPU_MEMORY, GPUDIRECT = "GPU memory", "gpudirect"


@frozen
class RdmaState:
    """What was seen. ``loads_rdma_cm`` is whether rdma_cm must be loaded before a port can be set by it, ``missing``
    the identities of ports whose values cannot be restored. ``foreign`` is what services and scripts give ports at
    boot.
    """

    declaration: RdmaDeclaration
    devices: Tuple[Device, ...]
    ports: Tuple[Port, ...]
    loads_rdma_cm: bool = False
    gpu_memory: Optional[GpuMemory] = None
    missing: Tuple[str, ...] = ()
    has_lldpad: bool = False
    carrier: BootCarrier = BootCarrier()
    later: Optional[Hotplug] = None
    firewalls: Firewalls = Firewalls()
    foreign: Tuple[ForeignValue, ...] = ()


@frozen
class RdmaDesired:
    """What is wanted of this machine: ``wanted`` are the settings by port that it can have, and ``gpudirect`` the way
    to GPU memory, None for none; ``sets_gpudirect`` is whether anything is wanted of it.
    """

    wanted: Mapping[str, Mapping[str, Scalar]]
    gpudirect: Scalar = None
    sets_gpudirect: bool = False
    unmanaged: Tuple[Unmanaged, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()
    unit: Optional[str] = None
    rules: Optional[str] = None
