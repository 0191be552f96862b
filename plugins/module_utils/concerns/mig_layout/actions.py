# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only the layout of GPUs has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.change import RoomAction
from ..._core.value import frozen
from .consumers import to_notify

if TYPE_CHECKING:
    from ..._core.change import Plan
    from ..._core.protocols import Host
    from .model import Layout


@frozen
class GpuTarget:
    """What one GPU is to become: its mode, and its layout, or None where its instances are left alone."""

    uuid: str
    name: str
    pci_address: str
    mig: bool
    target: Optional[Layout]


@frozen
class ResetGroup:
    """GPUs that are changed together. With ``reset`` they are reset together when the driver keeps a mode pending."""

    gpus: Tuple[GpuTarget, ...]
    reset: bool = False


@frozen
class Repartition(RoomAction):
    """Change these GPUs, group after group, each as a transaction. ``stop_services`` stand still around resets.

    ``unsettled`` are the UUIDs of the GPUs that an interrupted run left between old and new: they stay on record until
    they are one of these. With ``hold`` those that are new stay on it too, until a step settles them.
    """

    optional_programs = ("nvidia-smi", "systemctl")
    groups: Tuple[ResetGroup, ...]
    stop_services: Tuple[str, ...] = ()
    unsettled: Tuple[str, ...] = ()
    hold: bool = False

    @property
    def restarts(self) -> Tuple[str, ...]:
        return self.stop_services if any(group.reset for group in self.groups) else ()

    def followed_by(self, plan: Plan, host: Host) -> Tuple[str, ...]:
        return to_notify(host.files, self.restarts) if self.groups else ()


@frozen
class SettleInterrupted(RoomAction):
    """Take all GPUs from the record of the change but these, by UUID: what was begun has reached the next boot, too."""

    unsettled: Tuple[str, ...] = ()
