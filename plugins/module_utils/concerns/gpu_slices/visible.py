# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs and MIG instances somebody means, and how CUDA is told (CUDA_VISIBLE_DEVICES)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import frozen
from ..._nvidia import affinity, mig
from .topology import SliceGpu

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Gpu

GOAL = "run on GPU {}"


@frozen
class VisibleGpu:
    """A GPU with the UUIDs of its MIG instances in the driver's order; None where its MIG mode is off."""

    gpu: SliceGpu
    instances: Optional[Tuple[str, ...]] = None

    @property
    def index(self) -> int:
        return self.gpu.identity.index


@frozen
class Chosen:
    """A GPU, and the UUID by which CUDA finds it or an instance of it."""

    gpu: SliceGpu
    uuid: str


def read(driver: Driver) -> Tuple[VisibleGpu, ...]:
    """A question: all GPUs, those that are lost without anything but their number."""
    found = []
    for gpu in driver.gpus():
        if gpu.identity.lost:
            found.append(VisibleGpu(SliceGpu(gpu.identity)))
        else:
            found.append(VisibleGpu(SliceGpu(gpu.identity, affinity.read(gpu)), _instances(gpu)))
    return tuple(found)


def choose(texts: Sequence[str], gpus: Sequence[VisibleGpu]) -> Tuple[Chosen, ...]:
    """Each is the number of a GPU, its UUID, ``0:1`` for an instance of it, or the UUID of an instance.

    Raises ``DeclarationError`` for one that is not there, and for what CUDA would not see.
    """
    found = [_choose(text.strip(), gpus) for text in texts]
    uuids = [one.uuid for one in found]
    twice = next((uuid for index, uuid in enumerate(uuids) if uuid in uuids[:index]), None)
    if twice is not None:
        raise DeclarationError(GOAL, object=twice, cause="it is named twice", hint="name each GPU once")
    instances = [uuid for uuid in uuids if uuid.startswith("MIG-")]
    if instances and len(uuids) > 1:
        raise DeclarationError(
            GOAL,
            object=", ".join(texts),
            cause="a process of CUDA sees one MIG instance, and no GPU beside it",
            hint="start a command for each instance",
        )
    return tuple(found)


def _instances(gpu: Gpu) -> Optional[Tuple[str, ...]]:
    mode = gpu.mig_mode().value
    if mode is None or not mode[0]:
        return None
    uuids = (gpu.driver.read("nvmlDeviceGetUUID", handle).value for handle, _instance, _compute in mig.devices(gpu))
    return tuple(uuid for uuid in uuids if uuid)


def _choose(text: str, gpus: Sequence[VisibleGpu]) -> Chosen:
    if text.upper().startswith("MIG-"):
        for one in gpus:
            for uuid in one.instances or ():
                if uuid.lower() == text.lower():
                    return Chosen(one.gpu, uuid)
        raise _none_such(text, [uuid for one in gpus for uuid in one.instances or ()], "MIG instance")
    number, colon, part = text.partition(":")
    one = _gpu(number, gpus)
    identity = one.gpu.identity
    if identity.lost:
        raise DeclarationError(GOAL, object=text, cause=identity.lost, hint="name another one")
    names = [f"{identity.index}:{index}" for index in range(len(one.instances or ()))]
    if colon:
        if one.instances is None:
            cause = f"{identity.name} is not divided: its MIG mode is off"
            raise DeclarationError(GOAL, object=text, cause=cause, hint=f"name the GPU: {identity.index}")
        if not part.isdecimal() or int(part) >= len(names):
            raise _none_such(text, names, "MIG instance")
        return Chosen(one.gpu, one.instances[int(part)])
    if one.instances is not None:
        raise DeclarationError(
            GOAL,
            object=text,
            cause=f"{identity.name} is divided into MIG instances, of which CUDA would take the first",
            hint=f"name an instance: {', '.join(names)}" if names else "make an instance first",
        )
    return Chosen(one.gpu, identity.uuid)


def _gpu(text: str, gpus: Sequence[VisibleGpu]) -> VisibleGpu:
    for one in gpus:
        if text == str(one.index) or (one.gpu.identity.uuid and text.lower() == one.gpu.identity.uuid.lower()):
            return one
    raise _none_such(text, [str(one.index) for one in gpus], "GPU")


def _none_such(text: str, there: Sequence[str], what: str) -> DeclarationError:
    return DeclarationError(
        GOAL, object=text, cause=f"this machine has no such {what}", hint=f"there is {', '.join(there) or 'none'}"
    )
