# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says about MIG: the question of every look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Sequence, Tuple

from ..._core.value import frozen, replace
from .model import ALL_ME, GFX, ME, NO_ME, PLAIN, Compute, Geometry, Instance, Layout, Profile

if TYPE_CHECKING:
    from ..._nvidia import mig
    from ..._nvidia.driver import Driver, Gpu, Identity

# NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, and NVML_DEVICE_ARCH_HOPPER for drivers that do not know the field.
RESETLESS_FIELD = 184
HOPPER = 9
# The first driver that tells where an instance may lie, and the first that allows a 3g beside a 4g.
PLACEMENTS_TOLD = 470
THREE_BESIDE_FOUR = 510
# NVML_GPU_INSTANCE_PROFILE_*; those that are not here have nothing but their slices.
ATTRIBUTES: Mapping[int, str] = {
    **dict.fromkeys((7, 8), ME),
    **dict.fromkeys((10, 11, 12, 17), GFX),
    **dict.fromkeys((13, 14), NO_ME),
    **dict.fromkeys((15, 16), ALL_ME),
}
# nvmlReturn_t
NOT_FOUND = 6
NOT_TOLD = "the driver does not report what the GPU can be divided into; an older one does so only while MIG is on"
TOO_OLD = f"the driver is older than R{PLACEMENTS_TOLD}, and does not report where an instance may lie"


@frozen
class DriverInstance:
    """An instance with the driver's numbers of it and of its compute instances, in the order of these."""

    instance: Instance
    number: int
    compute_numbers: Tuple[int, ...]


@frozen
class MigReading:
    """One GPU. ``mode`` is MIG mode as it is, and as it will be after a reset; None where the GPU has none.

    ``geometry`` is None where the driver does not tell it, as some do not while MIG is off. ``lacking`` says why there
    is no mode, or no geometry. ``resetless``: the mode changes without a reset. ``device_id`` is that of PCI
    (0x2330), ``minor`` the number of the GPU's device file. ``beside``: this driver allows a 3g beside a 4g, also
    where it tells no geometry. Of a GPU that is lost there is nothing.
    """

    gpu: Identity
    mode: Optional[Tuple[bool, bool]] = None
    lacking: str = ""
    resetless: bool = False
    persistence: Optional[bool] = None
    geometry: Optional[Geometry] = None
    instances: Tuple[DriverInstance, ...] = ()
    device_id: int = 0
    minor: Optional[int] = None
    beside: bool = True

    @property
    def is_on(self) -> bool:
        """Whether MIG mode is in effect."""
        return self.mode is not None and self.mode[0]

    @property
    def layout(self) -> Layout:
        return tuple(driver_instance.instance for driver_instance in self.instances)


def read(driver: Driver) -> Tuple[MigReading, ...]:
    """A question: every GPU, those that are lost or have no MIG too. Raises ``CannotLook`` where it takes root."""
    branch = int(str(driver.nvml.nvmlSystemGetDriverVersion()).partition(".")[0])
    found = tuple(reading(gpu, branch >= THREE_BESIDE_FOUR) for gpu in driver.gpus())
    if branch >= PLACEMENTS_TOLD:
        return found
    return tuple(one if one.mode is None else replace(one, lacking=TOO_OLD) for one in found)


def reading(gpu: Gpu, beside: bool) -> MigReading:
    """One GPU; ``beside``: this driver allows a 3g beside a 4g."""
    from ..._nvidia.driver import DRIVER_NOT_LOADED, NO_PERMISSION, why_lost

    if gpu.identity.lost:
        return MigReading(gpu.identity, lacking=gpu.identity.lost)
    try:
        try:
            return _read(gpu, beside)
        except gpu.driver.nvml.NVMLError as error:
            if error.value != NOT_FOUND:
                raise
            # Somebody destroyed an instance while we read it.
            return _read(gpu, beside)
    except gpu.driver.nvml.NVMLError as error:
        if error.value in (DRIVER_NOT_LOADED, NO_PERMISSION):
            raise
        lost = why_lost(error)
        return MigReading(replace(gpu.identity, lost=lost), lacking=lost)


def _read(gpu: Gpu, beside: bool) -> MigReading:
    from ..._nvidia import mig
    from ..._nvidia.driver import FUNCTION_NOT_FOUND, NOT_SUPPORTED, why_lacking

    nvml = gpu.driver.nvml
    minor = gpu.read("nvmlDeviceGetMinorNumber").value
    try:
        current, pending = map(bool, nvml.nvmlDeviceGetMigMode(gpu.handle))
    except nvml.NVMLError as error:
        # Whoever answers in another way may well have MIG, and have it on.
        if error.value not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            raise
        return MigReading(gpu.identity, lacking=why_lacking(error), minor=minor)
    profiles = mig.profiles(gpu)
    geometry = _geometry(gpu, profiles, beside)
    return MigReading(
        gpu=gpu.identity,
        mode=(current, pending),
        lacking=NOT_TOLD if geometry is None else "",
        resetless=_resetless(gpu),
        persistence=gpu.persistence_mode().value,
        geometry=geometry,
        instances=tuple(driver_instance(listed) for listed in mig.instances(gpu, profiles)) if current else (),
        device_id=nvml.nvmlDeviceGetPciInfo(gpu.handle).pciDeviceId >> 16,
        minor=minor,
        beside=beside,
    )


def driver_instance(listed: mig.NvmlInstance) -> DriverInstance:
    compute = tuple(Compute(part.start, part.slices) for part in listed.parts)
    instance = Instance(listed.start, listed.profile.number, compute)
    return DriverInstance(instance, listed.number, tuple(part.number for part in listed.parts))


def _geometry(gpu: Gpu, profiles: Sequence[mig.NvmlProfile], beside: bool) -> Optional[Geometry]:
    from ..._nvidia.mig import placements

    made = []
    for profile in profiles:
        places = placements(gpu, profile)
        if places is None:
            return None
        attribute = ATTRIBUTES.get(profile.kind, PLAIN)
        made.append(
            Profile(
                number=profile.number,
                name=profile.name or _name(gpu, profile, attribute),
                slices=profile.slices,
                size=max((size for _start, size in places), default=0),
                starts=tuple(start for start, _size in places),
                most=profile.most,
                attribute=attribute,
                memory_mib=profile.memory_mib,
            )
        )
    return Geometry(tuple(made), beside) if made else None


def _name(gpu: Gpu, profile: mig.NvmlProfile, attribute: str) -> str:
    """The name that newer drivers give."""
    from ..._nvidia import mig

    joint = "" if attribute in (PLAIN, NO_ME) else "+"
    return f"{mig.plain_name(gpu, profile)}{joint}{attribute}"


def _resetless(gpu: Gpu) -> bool:
    resetless = gpu.fields([RESETLESS_FIELD])[0][0]
    if resetless is not None:
        return bool(resetless)
    return (gpu.read("nvmlDeviceGetArchitecture").value or 0) >= HOPPER
