# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says about the fabric of each GPU: the question of every look where there is a fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.value import frozen
from ..._nvidia import fabric

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Identity
    from ..._nvidia.fabric import FabricReading


@frozen
class FabricGpu:
    """One GPU. ``reading`` is None where it has no fabric that the driver tells of, as before Hopper."""

    identity: Identity
    reading: Optional[FabricReading] = None

    @property
    def name(self) -> str:
        return self.identity.name


def read(driver: Driver) -> Tuple[FabricGpu, ...]:
    """All GPUs with their fabric."""
    return tuple(
        FabricGpu(gpu.identity, None if gpu.identity.lost else fabric.read(gpu).value) for gpu in driver.gpus()
    )
