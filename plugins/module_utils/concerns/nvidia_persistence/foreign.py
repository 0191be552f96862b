# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that switch persistence mode at boot with nvidia-smi."""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from ..._kinds import smi_writers
from ..._kinds.foreign_values import conflicts_of
from ..._nvidia import smi_arguments
from .spec import SETTING, mode

if TYPE_CHECKING:
    from ..._core.change import Conflict
    from ..._core.contract import Scope
    from .state import PersistenceDesired, PersistenceState


def find_conflicts(state: PersistenceState, desired: PersistenceDesired, scope: Scope) -> Tuple[Conflict, ...]:
    """Raises ``OwnedByAnother`` where one of them would undo a declared mode at boot."""
    found = []
    for gpu, want in desired.wants:
        for write in smi_writers.last_of_gpu(state.foreign, gpu.identity):
            value = mode(smi_arguments.switch(write.value))
            if write.setting == smi_arguments.PERSISTENCE and value != want:
                found.append(smi_writers.finding(write, gpu.name, SETTING, value, want))
    return conflicts_of(found, scope)
