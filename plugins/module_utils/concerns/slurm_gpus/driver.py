# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says of the GPUs, their instances and links: the question of every look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Tuple

from ..._core.value import field, frozen

if TYPE_CHECKING:
    from ..._nvidia.driver import Driver, Gpu, Identity

# NVML_NVLINK_MAX_LINKS
LINKS = 18


@frozen
class GresInstance:
    """A compute instance: the numbers of its GPU instance and its own, and the name of its profile as Slurm has it."""

    instance: int
    compute: int
    profile: str


@frozen
class GresGpu:
    """One GPU. ``minor`` is the number of its device file, ``instances`` are those that jobs can be given in MIG mode.

    ``links`` are the active NVLinks by the PCI address of what is at their other end, a GPU or a switch.
    """

    identity: Identity
    minor: Optional[int] = None
    mig: bool = False
    instances: Tuple[GresInstance, ...] = ()
    links: Mapping[str, int] = field(default_factory=dict)


def read(driver: Driver) -> Tuple[GresGpu, ...]:
    """A question: all GPUs in the order of the PCI bus, which is that of Slurm."""
    return tuple(sorted(map(_read, driver.gpus()), key=lambda gpu: gpu.identity.pci_address))


def _read(gpu: Gpu) -> GresGpu:
    if gpu.identity.lost:
        return GresGpu(gpu.identity)
    divided = gpu.mig_mode().value
    mig = bool(divided and divided[0])
    return GresGpu(
        identity=gpu.identity,
        minor=gpu.read("nvmlDeviceGetMinorNumber").value,
        mig=mig,
        instances=_instances(gpu) if mig else (),
        links={} if mig else _links(gpu),
    )


def _instances(gpu: Gpu) -> Tuple[GresInstance, ...]:
    from ..._nvidia import mig

    found = []
    for one in mig.instances(gpu, mig.profiles(gpu)):
        name = mig.plain_name(gpu, one.profile)
        for part in one.parts:
            profile = name if part.slices == one.profile.slices else f"{part.slices}c.{name}"
            found.append(GresInstance(one.number, part.number, profile))
    return tuple(found)


def _links(gpu: Gpu) -> Dict[str, int]:
    from ..._nvidia.driver import pci_address

    found: Dict[str, int] = {}
    for link in range(LINKS):
        if not gpu.read("nvmlDeviceGetNvLinkState", link).value:
            continue
        remote = gpu.read("nvmlDeviceGetNvLinkRemotePciInfo", link).value
        if remote is not None:
            address = pci_address(remote.busId)
            found[address] = found.get(address, 0) + 1
    return found
