# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that kinds plan: files and values, units, and the menu of a boot loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._linux import systemd_apply
from .._linux.bootloader_plan import Regenerate, regenerate

if TYPE_CHECKING:
    from .._core.change import Step
    from .._core.protocols import Host


def perform(step: Step, host: Host) -> None:
    """Take one of them. Raises ``GpuFleetError`` with what the system said."""
    if isinstance(step.action, Regenerate):
        regenerate(step.action, host)
    else:
        systemd_apply.perform(step, host)
