# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only GPU settings have: set the values of all GPUs, and see which the driver took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, List, Set, Tuple

from ..._core import steps
from ..._core.change import Step
from ..._core.errors import CannotLook, Refused
from ..._core.setting import Scalar
from ..._core.value import frozen
from ..._nvidia import reset_counts
from ..._nvidia.gpus import COMPUTE_MODES
from . import locks
from .driver import ECC_MODES, clock_of, read
from .plan import GpuValues, SetGpus
from .spec import COMPUTE_MODE, DEFAULT, ECC, GRAPHICS_CLOCKS, LOCKS, MEMORY_CLOCKS, POWER, TIME_SLICE, range_of
from .time_slices import set_time_slice

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from ..._nvidia.driver import Driver, Gpu

SET_LOCK = {GRAPHICS_CLOCKS: "nvmlDeviceSetGpuLockedClocks", MEMORY_CLOCKS: "nvmlDeviceSetMemoryLockedClocks"}
RESET_LOCK = {GRAPHICS_CLOCKS: "nvmlDeviceResetGpuLockedClocks", MEMORY_CLOCKS: "nvmlDeviceResetMemoryLockedClocks"}
# How long a clock may take to come below a new lock.
SETTLE_SECONDS = 2.0
HINT = (
    "every other value is set, and what the next boot brings is as before; give this GPU an entry of its own, or "
    "declare what it takes"
)


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, SetGpus):
        set_gpus(step.action, host)
    else:
        steps.perform(step, host)


@frozen
class GpuRefusal:
    """The value that one GPU did not take, and why."""

    uuid: str
    gpu: str
    setting: str
    value: Scalar
    cause: str


def set_gpus(action: SetGpus, host: Host) -> None:
    """Every value gets its try. Raises ``Refused``, which names all that were not taken."""
    touched = {(gpu.uuid, setting) for gpu in action.gpus for setting, _value in gpu.values if setting in LOCKS}
    before = locks.read_record(host.files)
    if touched:
        # A run that ends in between leaves no lock that is believed.
        locks.keep(host.files, locks.doubted(before, touched))
    refusals = (*host.nvml.ask(set_values, action.gpus), *_set_time_slices(action, host))
    if touched:
        _record(action, host, before, {(refusal.uuid, refusal.setting) for refusal in refusals})
    # The next look is that of another client: what the driver forgets when we let go of it is gone then.
    host.nvml.close()
    if refusals:
        first = refusals[0]
        others = [f"; {r.gpu}, {r.setting} {r.value}: {r.cause}" for r in refusals[1:]]
        raise Refused(
            f"set {first.setting}",
            object=first.gpu,
            cause=first.cause + "".join(others),
            wanted=first.value,
            hint=HINT,
        )


def _set_time_slices(action: SetGpus, host: Host) -> List[GpuRefusal]:
    refusals = []
    for gpu in action.gpus:
        for setting, value in gpu.values:
            cause = set_time_slice(host.commands, gpu.uuid, str(value)) if setting == TIME_SLICE else ""
            if cause:
                refusals.append(GpuRefusal(gpu.uuid, gpu.name, setting, value, cause))
    return refusals


def _record(action: SetGpus, host: Host, before: locks.Record, refused: Set[Tuple[str, str]]) -> None:
    """Keep the locks that were set, with what they were set during."""
    record = locks.read_record(host.files)
    holder, released = locks.holder_of(host.files), reset_counts.read(host.files)
    readings = {reading.gpu.uuid: reading for reading in host.nvml.ask(read, frozenset(LOCKS))}
    for gpu in action.gpus:
        of_gpu = record.setdefault(gpu.uuid, {})
        for lock, value in gpu.values:
            if lock not in LOCKS:
                continue
            if (gpu.uuid, lock) in refused:
                entry = before.get(gpu.uuid, {}).get(lock)
            elif action.restoring or gpu.uuid not in readings:
                entry = None
            else:
                entry = locks.entry_of(readings[gpu.uuid], value, holder, released.get(gpu.uuid, 0))
            if entry is None:
                of_gpu.pop(lock, None)
            else:
                of_gpu[lock] = entry
    locks.keep(host.files, record)


# --- in the process that asks the driver ------------------------------------------------------------------------------


def set_values(driver: Driver, gpus: Tuple[GpuValues, ...]) -> Tuple[GpuRefusal, ...]:
    """A question that changes: every value of every GPU that the driver's library sets, and those that were refused."""
    refusals: List[GpuRefusal] = []
    for wanted in gpus:
        try:
            gpu = driver.gpu(wanted.uuid)
        except CannotLook:
            refusals.extend(GpuRefusal(wanted.uuid, wanted.name, *value, "the GPU is gone") for value in wanted.values)
            continue
        for setting, value in wanted.values:
            cause = "" if setting == TIME_SLICE else _set(gpu, setting, value)
            if cause:
                refusals.append(GpuRefusal(wanted.uuid, wanted.name, setting, value, cause))
    return tuple(refusals)


def _set(gpu: Gpu, setting: str, value: Scalar) -> str:
    """Set one value. Empty when the driver took it, else why not."""
    function, arguments = _call(setting, value)
    # What sets a value returns nothing, or the reason why it is lacking.
    cause = gpu.read(function, *arguments).lacking
    if cause and setting == COMPUTE_MODE and (gpu.mig_mode().value or (0, 0))[0]:
        return f"{cause}; MIG mode is on"
    if not cause and setting in LOCKS and value != DEFAULT:
        _settle(gpu, setting, range_of(value)[1])
    return cause


def _call(setting: str, value: Scalar) -> Tuple[str, Tuple[Any, ...]]:
    if setting == POWER:
        return "nvmlDeviceSetPowerManagementLimit", (round(float(value or 0) * 1000),)
    if setting == COMPUTE_MODE:
        return "nvmlDeviceSetComputeMode", (COMPUTE_MODES.index(str(value)),)
    if setting == ECC:
        return "nvmlDeviceSetEccMode", (ECC_MODES.index(str(value)),)
    return (RESET_LOCK[setting], ()) if value == DEFAULT else (SET_LOCK[setting], range_of(value))


def _settle(gpu: Gpu, lock: str, high: int) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while (clock_of(gpu, lock) or 0) > high + locks.STEP_MHZ and time.monotonic() < deadline:
        time.sleep(0.02)
