# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that set at boot what is declared, and the values of nvidia-smi in the units used here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, List, Mapping, Tuple

from ..._core.setting import Scalar
from ..._kinds import smi_writers
from ..._kinds.foreign_values import conflicts_of
from ..._nvidia import smi_arguments
from ..._nvidia.gpus import COMPUTE_MODES
from .driver import ECC_MODES, watts
from .spec import CLOCKS, COMPUTE_MODE, DEFAULT, ECC, GRAPHICS_CLOCKS, MEMORY_CLOCKS, POWER, TIME_SLICE
from .time_slices import SLICES

if TYPE_CHECKING:
    from ..._core.change import Conflict
    from ..._core.contract import Scope
    from .state import GpuSettingsDesired, GpuSettingsState

# 0/DEFAULT, 2/PROHIBITED, 3/EXCLUSIVE_PROCESS. Its manual calls 1 prohibited in an example, its help a mode that is
# deprecated, so what it does is not known.
_COMPUTE_MODES: Mapping[str, Scalar] = {
    text: COMPUTE_MODES[number] for number in (0, 2, 3) for text in (str(number), COMPUTE_MODES[number].upper())
}


def find_conflicts(state: GpuSettingsState, desired: GpuSettingsDesired, scope: Scope) -> Tuple[Conflict, ...]:
    """Raises ``OwnedByAnother`` where one of them would undo a declared value at boot."""
    found = []
    for want in desired.wants:
        for write in smi_writers.last_of_gpu(state.foreign, want.gpu.reading.gpu):
            if write.setting not in _MEANINGS:
                continue
            setting, value_of = _MEANINGS[write.setting]
            value, wanted = value_of(write.value), want.values.get(setting)
            if wanted is not None and (value != wanted or value is None):
                found.append(smi_writers.finding(write, want.gpu.name, setting, value, wanted))
    return conflicts_of(found, scope)


def _compute_mode(text: str) -> Scalar:
    return _COMPUTE_MODES.get(text)


def _ecc(text: str) -> Scalar:
    enabled = smi_arguments.switch(text)
    return None if enabled is None else ECC_MODES[enabled]


def _watts(text: str) -> Scalar:
    """nvidia-smi takes watts with a fraction, NVML milliwatts."""
    try:
        return watts(round(float(text) * 1000))
    except (ValueError, OverflowError):
        return None


def _clocks(text: str) -> Scalar:
    """``MIN,MAX`` in MHz, or one number for both."""
    if text == smi_arguments.DEFAULT:
        return DEFAULT
    clocks = CLOCKS.fullmatch(text.replace(",", "-"))
    if clocks is None:
        return None
    low, high = int(clocks[1]), int(clocks[2] or clocks[1])
    return f"{low}-{high}" if low != high else str(low)


def _time_slice(text: str) -> Scalar:
    numbers: List[str] = [str(number) for number in range(len(SLICES))]
    return SLICES[int(text)] if text in numbers else None


_MEANINGS: Mapping[str, Tuple[str, Callable[[str], Scalar]]] = {
    smi_arguments.COMPUTE_MODE: (COMPUTE_MODE, _compute_mode),
    smi_arguments.ECC: (ECC, _ecc),
    smi_arguments.POWER: (POWER, _watts),
    smi_arguments.GRAPHICS_CLOCKS: (GRAPHICS_CLOCKS, _clocks),
    smi_arguments.MEMORY_CLOCKS: (MEMORY_CLOCKS, _clocks),
    smi_arguments.TIME_SLICE: (TIME_SLICE, _time_slice),
}
