# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of GPUs as they are, and as declared."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.setting import Scalar, Setting
from ..._core.value import frozen
from ..._kinds.smi_writers import SmiWrite
from ..._linux.boot_service import BootCarrier
from ..._nvidia.gpus import NOT_THERE
from .driver import GpuReading


@frozen
class SettingsGpu:
    """One GPU: what the driver says, and its settings in effect and after the next boot.

    ``wanted`` is what the entry that wins it declares, with None for a default that the driver does not say.
    """

    reading: GpuReading
    wanted: Optional[Mapping[str, Scalar]]
    effective: Mapping[str, Scalar]
    boot: Mapping[str, Scalar]

    @property
    def name(self) -> str:
        return self.reading.gpu.name


@frozen
class GpuSettingsState:
    """What was seen. ``carrier`` is what brings the next boot what the driver forgets.

    ``unserved`` is what cannot be set because there is no driver, and ``missing`` why a GPU is not seen. ``foreign``
    is what services and scripts set at boot.
    """

    gpus: Tuple[SettingsGpu, ...] = ()
    carrier: BootCarrier = BootCarrier()
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE
    foreign: Tuple[SmiWrite, ...] = ()


@frozen
class WantedSettings:
    """The values that one GPU shall have, in the order of setting."""

    gpu: SettingsGpu
    values: Mapping[str, Scalar]


@frozen
class GpuSettingsDesired:
    """The declaration on this machine. ``unresponsive`` are the names of GPUs that do not respond, and ``unread``
    the settings of which nothing says whether they are restored.
    """

    wants: Tuple[WantedSettings, ...]
    unmanaged: Tuple[Unmanaged, ...] = ()
    unresponsive: Tuple[str, ...] = ()
    unread: Tuple[Setting, ...] = ()
