# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Persistence mode as it is, as the next boot brings it, and as declared."""

from __future__ import annotations

from typing import Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.value import frozen
from ..._kinds.smi_writers import SmiWrite
from ..._kinds.units import UnitFile
from ..._linux.boot_service import BootCarrier
from ..._nvidia.gpus import NOT_THERE
from .daemon import Persistenced
from .driver import PersistenceGpu

TEXT = "drop-in"


@frozen
class PersistenceState:
    """What was seen. ``wants`` are the declared modes, one a GPU; None where nothing is declared of it.

    ``carrier`` is what brings the next boot what the daemon does not. ``unserved`` is what nobody can set because there
    is no driver, and ``missing`` why a GPU is not seen. ``foreign`` is what services and scripts set at boot.
    """

    gpus: Tuple[PersistenceGpu, ...]
    wants: Tuple[Optional[str], ...]
    daemon: Persistenced
    drop_in: UnitFile
    carrier: BootCarrier = BootCarrier()
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE
    foreign: Tuple[SmiWrite, ...] = ()

    @property
    def alike(self) -> Optional[str]:
        """The mode that is wanted of every GPU where it is one, so that the daemon can start with it; else None."""
        wants = {want for gpu, want in zip(self.gpus, self.wants) if gpu.mode is not None}
        return wants.pop() if len(wants) == 1 and self.daemon.exists else None

    def boot(self, want: Optional[str]) -> str:
        """What the next boot makes of a GPU of which this is declared."""
        return want if want is not None and self.carrier.applies else self.daemon.boot


@frozen
class PersistenceDesired:
    """What is wanted of this machine.

    ``drop_in`` is its text, None for no such file. ``start`` and ``service`` are wanted of the daemon's unit, None
    where it may be as it is. ``unresponsive`` are the names of GPUs that do not respond, and ``later`` why persistence
    mode of one whose memory is coherent goes off only by a reboot.
    """

    wants: Tuple[Tuple[PersistenceGpu, str], ...]
    drop_in: Optional[str] = None
    start: Optional[str] = None
    service: Optional[str] = None
    unresponsive: Tuple[str, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
    later: str = ""
    force: bool = False
