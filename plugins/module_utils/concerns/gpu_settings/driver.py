# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says about the settings of its GPUs: the question of every look.

Power limits are milliwatts in NVML, and whole watts here where they can be.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

from ..._core.setting import Scalar
from ..._core.value import field, frozen, replace
from ..._nvidia.errors import LOST
from ..._nvidia.gpus import COMPUTE_MODES
from .spec import COMPUTE_MODE, DEFAULT, DISABLED, ECC, ENABLED, GRAPHICS_CLOCKS, LOCKS, MEMORY_CLOCKS, POWER

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Gpu, Identity

# nvmlEnableState_t
ECC_MODES = (DISABLED, ENABLED)
# nvmlClockType_t
CLOCK_TYPES = {GRAPHICS_CLOCKS: 0, MEMORY_CLOCKS: 2}
MODULE = "/sys/module/nvidia"


@frozen
class GpuLimits:
    """What a GPU takes: milliwatts from lowest to highest, MHz likewise, and the few clocks of its memory.

    None and empty where the driver does not say.
    """

    milliwatts: Optional[Tuple[int, int]] = None
    graphics_clocks: Optional[Tuple[int, int]] = None
    memory_clocks: Tuple[int, ...] = ()


@frozen
class GpuReading:
    """One GPU. ``values`` are in effect, ``defaults`` what the driver gives by itself, both by setting.

    ``lacking`` says why the GPU does not have a setting. ``pending_ecc`` is the mode after the next reset. ``clocks``
    are those of this moment, by lock, and ``reasons`` the bits of why they are no higher. ``load`` tells one load of
    the kernel module from another; ``millijoules`` is what the GPU has used since then.
    """

    gpu: Identity
    values: Mapping[str, Scalar]
    defaults: Mapping[str, Scalar]
    lacking: Mapping[str, str]
    limits: GpuLimits = GpuLimits()
    persistence: Optional[bool] = None
    pending_ecc: Scalar = None
    clocks: Mapping[str, Optional[int]] = field(default_factory=dict)
    reasons: Optional[int] = None
    load: int = 0
    millijoules: Optional[int] = None


def read(driver: Driver, settings: FrozenSet[str]) -> Tuple[GpuReading, ...]:
    """A question: every GPU, with these settings and their limits."""
    readings = tuple(_read(gpu, settings) for gpu in driver.gpus())
    if not settings.intersection(LOCKS):
        return readings
    load = _load_of_module()
    return tuple(
        reading if reading.gpu.lost else _with_clocks(gpu, reading, settings, load)
        for gpu, reading in zip(driver.gpus(), readings)
    )


def _read(gpu: Gpu, settings: FrozenSet[str]) -> GpuReading:
    identity = gpu.identity
    if identity.lost:
        return GpuReading(identity, {}, {}, {})
    values: Dict[str, Scalar] = {}
    defaults: Dict[str, Scalar] = dict.fromkeys(LOCKS, DEFAULT)
    lacking: Dict[str, str] = {}
    limits = GpuLimits()
    pending_ecc: Scalar = None

    def ask(setting: str, function: str) -> Any:
        answer = gpu.read(function)
        if answer.value is None:
            lacking[setting] = answer.lacking
        return answer.value

    if COMPUTE_MODE in settings:
        mode = ask(COMPUTE_MODE, "nvmlDeviceGetComputeMode")
        if mode is not None:
            values[COMPUTE_MODE], defaults[COMPUTE_MODE] = COMPUTE_MODES[mode], DEFAULT
    if POWER in settings:
        limit = ask(POWER, "nvmlDeviceGetPowerManagementLimit")
        default = ask(POWER, "nvmlDeviceGetPowerManagementDefaultLimit")
        bounds = ask(POWER, "nvmlDeviceGetPowerManagementLimitConstraints")
        if POWER not in lacking:
            values[POWER], defaults[POWER] = watts(limit), watts(default)
            limits = replace(limits, milliwatts=(bounds[0], bounds[1]))
    if ECC in settings:
        modes = ask(ECC, "nvmlDeviceGetEccMode")
        if modes is not None:
            values[ECC], pending_ecc = ECC_MODES[modes[0]], ECC_MODES[modes[1]]
            # nvidia-ml-py answers a list of one.
            by_default = gpu.read("nvmlDeviceGetDefaultEccMode").value
            defaults[ECC] = by_default and ECC_MODES[by_default[0]]
    return GpuReading(
        gpu=replace(identity, lost=LOST) if LOST in lacking.values() else identity,
        values=values,
        defaults=defaults,
        lacking=lacking,
        limits=limits,
        persistence=gpu.persistence_mode().value,
        pending_ecc=pending_ecc,
    )


def _load_of_module() -> int:
    # The kernel gives every folder of sysfs a number of its own: that of a module is new with every load.
    try:
        return os.stat(MODULE).st_ino
    except OSError:
        return 0


def _with_clocks(gpu: Gpu, reading: GpuReading, settings: FrozenSet[str], load: int) -> GpuReading:
    """The reading with all that locks are judged by."""
    memory = gpu.read("nvmlDeviceGetSupportedMemoryClocks").value or []
    graphics: List[int] = []
    if GRAPHICS_CLOCKS in settings:
        for clock in memory:
            graphics.extend(gpu.read("nvmlDeviceGetSupportedGraphicsClocks", clock).value or ())
    return replace(
        reading,
        limits=replace(
            reading.limits,
            graphics_clocks=(min(graphics), max(graphics)) if graphics else None,
            memory_clocks=tuple(sorted(memory)),
        ),
        clocks={lock: clock_of(gpu, lock) for lock in LOCKS if lock in settings},
        # Newer drivers call it ...EventReasons as well; every driver knows this name.
        reasons=gpu.read("nvmlDeviceGetCurrentClocksThrottleReasons").value,
        load=load,
        millijoules=gpu.read("nvmlDeviceGetTotalEnergyConsumption").value,
    )


def clock_of(gpu: Gpu, lock: str) -> Optional[int]:
    """The clock of this moment, in MHz."""
    clock: Optional[int] = gpu.read("nvmlDeviceGetClockInfo", CLOCK_TYPES[lock]).value
    return clock


def watts(milliwatts: int) -> Scalar:
    """A number where it is a whole one, else a text such as ``72.5``."""
    return milliwatts // 1000 if milliwatts % 1000 == 0 else f"{milliwatts / 1000:g}"
