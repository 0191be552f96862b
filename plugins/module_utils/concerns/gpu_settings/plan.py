# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPU settings: what the GPUs can have of what is declared, and the steps to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Sequence, Tuple

from ..._core.change import Change, Refuse, RoomAction, Step, Unmanaged
from ..._core.errors import DeclarationError, Refused
from ..._core.planning import effective_change, unread
from ..._core.setting import BOOT, GPU_RESET, NOW, Scalar, Setting
from ..._core.value import frozen
from ..._linux import boot_service
from ..._nvidia import unresponsive_gpu
from .driver import watts
from .spec import (
    DEFAULT,
    ECC,
    ENABLED,
    GRAPHICS_CLOCKS,
    LOCKS,
    MEMORY_CLOCKS,
    POWER,
    SETTINGS,
    TIME_SLICE,
    VOLATILE,
    range_of,
)
from .state import GpuSettingsDesired, GpuSettingsState, SettingsGpu, WantedSettings
from .time_slices import NOT_INSTALLED

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope


@frozen
class GpuValues:
    """What one GPU is to be set to, in this order."""

    uuid: str
    name: str
    values: Tuple[Tuple[str, Scalar], ...]


@frozen
class SetGpus(RoomAction):
    """Set all these GPUs, each value for itself: one that is refused does not keep the others from theirs."""

    optional_programs = ("nvidia-smi",)
    gpus: Tuple[GpuValues, ...]
    restoring: bool = False


class NoPersistence(Refused):
    """The values of GPUs would be gone with us, because nothing else keeps the driver on them."""

    code = "no_persistence"


def restore(baseline: Baseline, state: GpuSettingsState) -> GpuSettingsDesired:
    """What ``state: absent`` wants: the values from before the first change. Of locks of others nothing is known."""
    wants: List[WantedSettings] = []
    without: List[Unmanaged] = []
    not_read: List[Setting] = []
    for gpu in state.gpus:
        values: Dict[str, Scalar] = {}
        for setting in SETTINGS:
            before = baseline.values.get((gpu.reading.gpu.uuid, setting))
            reason = "" if gpu.reading.gpu.lost else gpu.reading.lacking.get(setting, "")
            if before is not None and reason and setting == TIME_SLICE:
                # The driver has it, and only the program that would list it fails.
                identity = gpu.reading.gpu.uuid
                row = unread(gpu.name, setting, before.effective, identity=identity, reason=reason, immediate=True)
                not_read.append(row)
            elif before is not None and reason:
                without.append(Unmanaged(gpu.name, setting, reason))
            if before is None or setting not in gpu.effective:
                continue
            if setting in LOCKS:
                if gpu.effective[setting] not in (None, DEFAULT):
                    values[setting] = DEFAULT
            else:
                values[setting] = before.boot if setting == ECC else before.effective
        if values:
            wants.append(WantedSettings(gpu, values))
    there = {gpu.reading.gpu.uuid for gpu in state.gpus if not gpu.reading.gpu.lost}
    gone = tuple(
        Unmanaged(uuid, setting, state.missing)
        for uuid, setting in sorted(baseline.values)
        if setting in SETTINGS and uuid not in there
    )
    # A GPU that does not respond may be one of them: its values are kept until it is back.
    lost = tuple(gpu.name for gpu in state.gpus if gpu.reading.gpu.lost) if gone else ()
    return GpuSettingsDesired(tuple(wants), (*without, *(() if lost else gone)), lost, tuple(not_read))


def lacking(gpu: SettingsGpu, wanted: Mapping[str, Scalar]) -> List[Unmanaged]:
    """What was declared and the GPU does not have. ECC that is not there is no ECC: an error where it is wanted.

    So is a time slice other than the driver's own.
    """
    found = []
    for setting, value in wanted.items():
        reason = gpu.reading.lacking.get(setting, "")
        if value is None and not reason:
            reason = "the driver does not report its default"
        if reason and setting == ECC and value == ENABLED:
            raise DeclarationError(
                "set ecc",
                object=gpu.name,
                cause=f"{gpu.reading.gpu.model} has none: {reason}",
                wanted=value,
                hint="give this GPU an entry of its own without it",
            )
        if reason and setting == TIME_SLICE and value is not None:
            hint = "install it, or leave the setting out" if reason == NOT_INSTALLED else "leave the setting out"
            raise DeclarationError(f"set {setting}", object=gpu.name, cause=reason, wanted=value, hint=hint)
        if reason:
            found.append(Unmanaged(gpu.name, setting, reason))
    return found


def refuse_impossible(gpu: SettingsGpu, values: Mapping[str, Scalar]) -> None:
    """Raise ``DeclarationError`` for what the driver would refuse or quietly change, as far as it tells beforehand."""
    limits = gpu.reading.limits
    power = values.get(POWER)
    if limits.milliwatts and isinstance(power, int) and power != gpu.reading.defaults[POWER]:
        low, high = limits.milliwatts
        if not low <= power * 1000 <= high:
            raise _impossible(gpu, POWER, power, f"{_model(gpu)} takes {watts(low)} to {watts(high)} W")
    graphics = values.get(GRAPHICS_CLOCKS, DEFAULT)
    if limits.graphics_clocks and graphics != DEFAULT:
        lowest, highest = limits.graphics_clocks
        low, high = range_of(graphics)
        if not lowest <= low <= high <= highest:
            raise _impossible(gpu, GRAPHICS_CLOCKS, graphics, f"{_model(gpu)} runs at {lowest} to {highest} MHz")
    memory = values.get(MEMORY_CLOCKS, DEFAULT)
    if limits.memory_clocks and memory != DEFAULT:
        for clock in range_of(memory):
            if clock not in limits.memory_clocks:
                nearest = min(limits.memory_clocks, key=lambda there: abs(there - clock))
                clocks = ", ".join(str(there) for there in limits.memory_clocks)
                cause = f"the memory of {_model(gpu)} runs at {clocks} MHz"
                raise _impossible(gpu, MEMORY_CLOCKS, memory, cause, hint=f"take {nearest} instead of {clock}")


def _impossible(gpu: SettingsGpu, setting: str, wanted: Scalar, cause: str, hint: str = "") -> DeclarationError:
    found = gpu.effective[setting]
    return DeclarationError(f"set {setting}", object=gpu.name, cause=cause, found=found, wanted=wanted, hint=hint)


def _model(gpu: SettingsGpu) -> str:
    return f"this {gpu.reading.gpu.model}"


def steps_of(
    state: GpuSettingsState, desired: GpuSettingsDesired, settings: Sequence[Setting], scope: Scope
) -> Tuple[Step, ...]:
    """The steps that make ``settings`` right."""
    by_object: Dict[str, List[Setting]] = {}
    for setting in settings:
        by_object.setdefault(setting.object, []).append(setting)
    gpus: List[GpuValues] = []
    not_retained: List[str] = []
    changes: List[Change] = []
    for want in desired.wants:
        gpu = want.gpu
        made = by_object.get(gpu.name, [])
        values = tuple((setting.setting, setting.wanted) for setting in made if _is_set(setting))
        changes.extend(change for setting in made for change in _changes(setting))
        if values:
            gpus.append(GpuValues(gpu.reading.gpu.uuid, gpu.name, values))
        if gpu.reading.persistence is False and any(
            setting in VOLATILE and value != gpu.reading.defaults[setting] for setting, value in values
        ):
            not_retained.append(gpu.name)
    steps = []
    if not_retained:
        steps.append(Step(Refuse(_not_retained(not_retained))))
    if state.carrier.missing and any(change.scope == BOOT and change.setting != ECC for change in changes):
        steps.append(Step(Refuse(boot_service.not_persisted(state.carrier.missing))))
    if changes:
        steps.append(Step(SetGpus(tuple(gpus), scope.restoring), tuple(changes)))
    if desired.unresponsive and scope.immediate:
        steps.append(unresponsive_gpu.refuse(desired.unresponsive))
    return tuple(steps)


def _not_retained(gpus: Sequence[str]) -> NoPersistence:
    return NoPersistence(
        "keep what is declared",
        object=", ".join(gpus),
        cause="persistence mode is off, and the driver drops clocks, power limit and compute mode when its last "
        "client exits",
        hint="run the role nvidia_persistence first, or declare default",
    )


def _is_set(setting: Setting) -> bool:
    """Whether it takes a call of the driver. What it keeps itself is set by what it will be, all else by what it is."""
    if setting.setting == ECC:
        return setting.boot != setting.wanted
    return setting.effective_matters and setting.effective != setting.wanted


def _changes(setting: Setting) -> List[Change]:
    made = []
    takes_effect = NOW
    if setting.setting == ECC:
        takes_effect = GPU_RESET if setting.effective != setting.wanted else NOW
    elif _is_set(setting):
        made.append(effective_change(setting))
    # The declaration on the node is what brings the rest, and it is written once the driver took the values.
    if setting.boot_matters and setting.boot != setting.wanted:
        made.append(Change(setting.object, setting.setting, setting.boot, setting.wanted, BOOT, takes_effect))
    return made
