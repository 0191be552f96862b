# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says about persistence mode: the question of every look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.value import frozen, replace
from ..._nvidia.errors import LOST
from .spec import mode

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Identity

# nvmlDeviceAddressingModeType_t: the CPU and the GPU share page tables, as on Grace.
ATS = 2


@frozen
class PersistenceGpu:
    """One GPU. ``mode`` is None where it has none, and ``lacking`` then says why.

    The memory of a ``coherent`` one is memory of the machine, and goes offline with persistence mode.
    """

    identity: Identity
    mode: Optional[str] = None
    lacking: str = ""
    coherent: bool = False

    @property
    def name(self) -> str:
        return self.identity.name


def read(driver: Driver) -> Tuple[PersistenceGpu, ...]:
    """All GPUs with their mode."""
    found = []
    for gpu in driver.gpus():
        identity = gpu.identity
        if identity.lost:
            found.append(PersistenceGpu(identity))
            continue
        answer = gpu.persistence_mode()
        if answer.lacking == LOST:
            identity = replace(identity, lost=LOST)
        coherent = gpu.read("nvmlDeviceGetAddressingMode").value == ATS
        found.append(PersistenceGpu(identity, mode(answer.value), answer.lacking, coherent))
    return tuple(found)
