# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The questions that change MIG, for the process that asks the driver."""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional

from ..._core.errors import GpuFleetError, InUse, NotInEffect, Refused
from ..._core.value import replace
from ..._nvidia import mig as nvml_mig
from ..._nvidia.driver import FUNCTION_NOT_FOUND, explain, why_lacking
from .driver import driver_instance, reading
from .model import Compute, Geometry, Instance, Layout
from .preconditions import PASSTHROUGH
from .solver import moves
from .text import instance_text, layout_text

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Gpu

# nvmlReturn_t
RESET_REQUIRED = 16
IN_USE = 19


class Activation(NamedTuple):
    """What the driver says to a new MIG mode: a status and its words. ``at_restart``: only a new start of this virtual
    machine will bring it."""

    status: int
    said: str
    at_restart: bool


def set_mode(driver: Driver, uuid: str, mig: bool) -> Activation:
    """A question: switch MIG mode.

    The driver keeps a mode that it cannot activate pending, without an error: look again, with new handles.
    """
    gpu = driver.gpu(uuid)
    goal = f"{'enable' if mig else 'disable'} MIG mode"
    status = _call(gpu, goal, "nvmlDeviceSetMigMode", gpu.handle, int(mig))
    passed_through = gpu.read("nvmlDeviceGetVirtualizationMode").value == PASSTHROUGH
    return Activation(
        status=status,
        said=why_lacking(driver.nvml.NVMLError(status)),
        at_restart=status == RESET_REQUIRED and passed_through,
    )


def set_persistence(driver: Driver, uuid: str, wanted: bool) -> str:
    """A question: give a GPU this persistence mode. The name of the GPU, empty where it had that mode.

    It goes through NVML, which asks nvidia-persistenced where that runs.
    """
    gpu = driver.gpu(uuid)
    if gpu.persistence_mode().value == wanted:
        return ""
    gpu.change(f"{'enable' if wanted else 'disable'} persistence mode", "nvmlDeviceSetPersistenceMode", int(wanted))
    return gpu.identity.name


def change(driver: Driver, uuid: str, target: Layout) -> None:
    """A question: the way from the instances that are there to ``target``. What is in both is not touched.

    First goes what has to go, compute instances before the others: that is what somebody may hold. Raises ``InUse`` or
    ``Refused``, and ``NotInEffect`` where a call went well and the GPU is not as it should be after it.
    """
    divided = _PartitionedGpu(driver.gpu(uuid))
    planned = moves(divided.layout, target)
    for instance in planned.destroy:
        for part in instance.compute:
            divided.destroy_compute(instance.start, part)
    for instance, gone, _come in planned.compute:
        for part in gone:
            divided.destroy_compute(instance.start, part)
    for instance in planned.destroy:
        divided.destroy(instance.start)
    for instance in planned.create:
        divided.create(replace(instance, compute=()))
    for instance in planned.create:
        for part in instance.compute:
            divided.create_compute(instance.start, part)
    for instance, _gone, come in planned.compute:
        for part in come:
            divided.create_compute(instance.start, part)


class _PartitionedGpu:
    """The instances of one GPU. Every call is followed by a look: the GPU is what it should be at that moment."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._nvml = gpu.driver.nvml
        self._profiles = nvml_mig.profiles(gpu)
        self._geometry = reading(gpu, True).geometry or Geometry(())
        self._listed: Dict[int, nvml_mig.NvmlInstance] = {}
        self._look()

    @property
    def layout(self) -> Layout:
        return tuple(driver_instance(listed).instance for listed in self._listed.values())

    def destroy_compute(self, start: int, part: Compute) -> None:
        goal = f"destroy {_name(part)} of {self._text(start)}"
        listed = self._listed[start]
        handle = next(own.handle for own in listed.parts if own[:2] == (part.start, part.slices))
        self._call(goal, "nvmlComputeInstanceDestroy", handle)
        instance = driver_instance(listed).instance
        left = tuple(other for other in instance.compute if other != part)
        self._check(goal, start, replace(instance, compute=left))

    def destroy(self, start: int) -> None:
        goal = f"destroy {self._text(start)}"
        self._call(goal, "nvmlGpuInstanceDestroy", self._listed[start].handle)
        self._check(goal, start, None)

    def create(self, instance: Instance) -> None:
        profile = self._geometry.profile(instance.profile)
        if profile is None:
            cause = "the driver does not report where that may lie"
            raise Refused(f"create profile {instance.profile}", object=self._gpu.identity.name, cause=cause)
        goal = f"create {profile.name}@{instance.start}"
        # By reference: the binding hands on what it gets.
        place = byref(self._nvml.c_nvmlGpuInstancePlacement_t(instance.start, profile.size))
        self._call(goal, "nvmlDeviceCreateGpuInstanceWithPlacement", self._gpu.handle, profile.number, place)
        self._check(goal, instance.start, instance)

    def create_compute(self, start: int, part: Compute) -> None:
        goal = f"create {_name(part)} in {self._text(start)}"
        listed = self._listed[start]
        known = nvml_mig.compute_profiles(self._gpu, listed.handle)
        number = next((number for number, slices in known.items() if slices == part.slices), None)
        if number is None:
            cause = "the driver has no such compute instance"
            raise Refused(goal, object=self._gpu.identity.name, cause=cause)
        place = byref(self._nvml.c_nvmlComputeInstancePlacement_t(part.start, part.slices))
        try:
            self._nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(listed.handle, number, place)
        except self._nvml.NVMLError as error:
            if error.value != FUNCTION_NOT_FOUND:
                raise _explained(self._gpu, goal, error) from error
            # Drivers before R525 choose themselves, and the look tells whether that is the place.
            self._call(goal, "nvmlGpuInstanceCreateComputeInstance", listed.handle, number)
        instance = driver_instance(listed).instance
        self._check(goal, start, replace(instance, compute=tuple(sorted((*instance.compute, part)))))

    def _call(self, goal: str, function: str, *arguments: Any) -> None:
        _call(self._gpu, goal, function, *arguments)

    def _check(self, goal: str, start: int, expected: Optional[Instance]) -> None:
        others = tuple(instance for instance in self.layout if instance.start != start)
        wanted = tuple(sorted((*others, expected) if expected else others))
        self._look()
        if self.layout != wanted:
            raise NotInEffect(
                goal,
                object=self._gpu.identity.name,
                cause="the driver accepted it, but the GPU has another layout",
                found=layout_text(self.layout, self._geometry),
                wanted=layout_text(wanted, self._geometry),
                hint="check whether something else changes the instances of this GPU, such as nvidia-mig-manager",
            )

    def _look(self) -> None:
        self._listed = {listed.start: listed for listed in nvml_mig.instances(self._gpu, self._profiles)}

    def _text(self, start: int) -> str:
        return instance_text(driver_instance(self._listed[start]).instance, self._geometry)


def _name(part: Compute) -> str:
    return f"the compute instance {part.slices}c@{part.start}"


def _call(gpu: Gpu, goal: str, function: str, *arguments: Any) -> Any:
    try:
        return getattr(gpu.driver.nvml, function)(*arguments)
    except gpu.driver.nvml.NVMLError as error:
        raise _explained(gpu, goal, error) from error


def _explained(gpu: Gpu, goal: str, error: Any) -> GpuFleetError:
    if error.value != IN_USE:
        return explain(error, goal, gpu.identity.name)
    cause = "the driver reports that it is in use"
    return InUse(goal, object=gpu.identity.name, cause=cause, hint="stop what uses it, and run again")
