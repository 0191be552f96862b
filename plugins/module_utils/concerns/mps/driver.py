# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says of the GPUs that MPS may serve: the question of every look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.value import frozen, replace
from ..._nvidia.errors import LOST
from ..._nvidia.gpus import COMPUTE_MODES

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Gpu, Identity

# nvmlComputeMode_t
MIB = 1 << 20


@frozen
class MigDevice:
    """A MIG device with the numbers of its GPU instance and its compute instance, which are in its name."""

    uuid: str
    instance: int
    compute: int

    def key(self, gpu: MpsGpu) -> str:
        """What its daemon is called."""
        return f"{gpu.name}-gi{self.instance}-ci{self.compute}"


@frozen
class MpsGpu:
    """One GPU. ``mig`` says whether it is divided, into ``devices``. ``major`` is the first number of its compute
    capability, ``memory`` its memory in MiB; None where the driver does not say.
    """

    identity: Identity
    mode: str = ""
    mig: bool = False
    devices: Tuple[MigDevice, ...] = ()
    major: Optional[int] = None
    memory: Optional[int] = None

    @property
    def name(self) -> str:
        return self.identity.name


def read(driver: Driver) -> Tuple[MpsGpu, ...]:
    """All GPUs."""
    return tuple(_read(gpu) for gpu in driver.gpus())


def branch(driver: Driver) -> int:
    """A question: the branch of the driver, such as 550."""
    number = str(driver.nvml.nvmlSystemGetDriverVersion()).partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _read(gpu: Gpu) -> MpsGpu:
    identity = gpu.identity
    if identity.lost:
        return MpsGpu(identity)
    mode = gpu.read("nvmlDeviceGetComputeMode")
    if mode.lacking == LOST:
        return MpsGpu(replace(identity, lost=LOST))
    divided = gpu.mig_mode().value
    mig = bool(divided and divided[0])
    capability = gpu.read("nvmlDeviceGetCudaComputeCapability").value
    memory = gpu.read("nvmlDeviceGetMemoryInfo").value
    return MpsGpu(
        identity=identity,
        mode="" if mode.value is None else COMPUTE_MODES[mode.value],
        mig=mig,
        devices=_devices(gpu) if mig else (),
        major=capability[0] if capability else None,
        memory=memory.total // MIB if memory else None,
    )


def _devices(gpu: Gpu) -> Tuple[MigDevice, ...]:
    from ..._nvidia import mig

    found = []
    for handle, instance, compute in mig.devices(gpu):
        uuid = gpu.driver.read("nvmlDeviceGetUUID", handle).value
        # One that goes while it is read has none.
        if uuid and instance is not None and compute is not None:
            found.append(MigDevice(uuid, instance, compute))
    return tuple(found)
