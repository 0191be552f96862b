# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vGPUs on the virtual functions of a GPU, as NVIDIA's driver has them in sysfs since Linux 6.8 (vGPU 17, R550).

Each virtual function is a vGPU of the type whose number is in its ``nvidia/current_vgpu_type``, or none where it is 0.
Older ones are mediated devices, which are not managed. The driver tells the types of a GPU by NVML: in sysfs are only
those of which one more could be made now.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._nvidia.gpus import PCI

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._nvidia.driver import Driver

CURRENT, CREATABLE = "nvidia/current_vgpu_type", "nvidia/creatable_vgpu_types"
# What a type is called whose name the driver does not tell.
UNNAMED = "type "
MEDIATED = "mdev_supported_types"
VFIO_DEVICES = "/dev/vfio/"
TOOL = "/usr/lib/nvidia/sriov-manage"
# "1428 : NVIDIA H200X-141C", below a line of names in some releases.
_TYPE = regex(r"\s*([0-9]+)\s*:\s*(\S.*?)\s*")
# "2 x NVIDIA H100-20C, 1 x NVIDIA H100-40C"
_COUNTED = regex(r"([1-9][0-9]{0,3}) x ([A-Za-z0-9][A-Za-z0-9 ._-]*)")
# "NVIDIA A100-1-5C": with the slices of its GPU instance before the memory.
BACKED_BY_MIG = regex(r".*-[0-9]+-[0-9]+[A-Z]+")
_VENDOR = regex(r"(?:NVIDIA|GRID) (.*)")

Counts = Mapping[str, int]
"""How many vGPUs of each type, by its name without the vendor's."""


@frozen
class VirtualFunction:
    """One virtual function. ``current`` is the number of its type, 0 for no vGPU, None where the driver has none.

    ``creatable`` are the numbers that it would take, ``holders`` who has it open.
    """

    address: str
    current: Optional[int]
    creatable: Tuple[int, ...] = ()
    devices: Tuple[str, ...] = ()
    holders: Tuple[str, ...] = ()


@frozen
class Vgpus:
    """The virtual functions of a GPU, none where they are disabled, of ``total`` that it can have.

    ``names`` are the types that it offers, by number. ``mediated``: whether its vGPUs are mediated devices. ``users``
    are who has the GPU itself open.
    """

    address: str
    total: int = 0
    functions: Tuple[VirtualFunction, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    mediated: bool = False
    users: Tuple[str, ...] = ()

    @property
    def counts(self) -> Counts:
        found: Dict[str, int] = {}
        for function in self.functions:
            if function.current:
                name = self.name(function.current)
                found[name] = found.get(name, 0) + 1
        return found

    def name(self, number: int) -> str:
        return self.names.get(number, f"{UNNAMED}{number}")

    def number(self, name: str) -> int:
        """The number of a type, 0 for one that is not known."""
        if name.startswith(UNNAMED) and name[len(UNNAMED) :].isdecimal():
            return int(name[len(UNNAMED) :])
        return next((number for number, known in self.names.items() if known == name), 0)


def read(files: Files, address: str) -> Vgpus:
    """What sysfs says; ``names`` and who uses what are found elsewhere."""
    folder = f"{PCI}/{address}"
    # virtfn10 comes after virtfn9.
    links = sorted((name for name in files.names(folder) if name.startswith("virtfn")), key=lambda name: int(name[6:]))
    addresses = [files.link(f"{folder}/{name}").rpartition("/")[2] for name in links]
    total = (files.read_optional(f"{folder}/sriov_totalvfs") or "").strip()
    return Vgpus(
        address=address,
        total=int(total) if total.isdecimal() else 0,
        functions=tuple(_function(files, one) for one in addresses),
        mediated=any(files.is_folder(f"{PCI}/{one}/{MEDIATED}") for one in (address, *addresses)),
    )


def vfio_devices(files: Files, folder: str, group: str) -> Tuple[str, ...]:
    """The files by which a virtual machine uses a function: that of its IOMMU group, if any, and its own ones."""
    names = files.names(f"{folder}/vfio-dev")
    return (*([f"{VFIO_DEVICES}{group}"] if group else []), *(f"{VFIO_DEVICES}devices/{name}" for name in names))


def supported_types(driver: Driver) -> Mapping[str, Mapping[int, str]]:
    """A question: the types that each GPU offers, by its address."""
    found: Dict[str, Mapping[int, str]] = {}
    for gpu in driver.gpus():
        if gpu.identity.lost:
            continue
        numbers = [int(number) for number in gpu.read("nvmlDeviceGetSupportedVgpus").value or ()]
        names = {number: driver.read("nvmlVgpuTypeGetName", number).value for number in numbers}
        found[gpu.identity.pci_address] = {number: plain(str(name)) for number, name in names.items() if name}
    return found


def plain(name: str) -> str:
    """The name of a type without that of its vendor, as both are written."""
    vendor = _VENDOR.fullmatch(name)
    return vendor[1] if vendor else name


def is_type(name: str) -> bool:
    return _COUNTED.fullmatch(f"1 x {name}") is not None


def described(counts: Counts) -> Optional[str]:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or None


def parse_counts(text: Optional[str]) -> Counts:
    """The counts of a description. Raises ``ValueError`` for another text."""
    found = [_COUNTED.fullmatch(part) for part in text.split(", ")] if text else []
    if not all(found):
        raise ValueError(f"{text!r} does not describe vGPUs")
    return {one[2]: int(one[1]) for one in found if one}


def moves(vgpus: Vgpus, counts: Counts) -> Tuple[List[VirtualFunction], List[str]]:
    """The functions whose vGPU goes, and the names of those that come, so that there are as many of each as wanted.

    What is in use stays first, and stays where it is.
    """
    left = dict(counts)
    goes = []
    for function in sorted(vgpus.functions, key=lambda one: not one.holders):
        if function.current:
            name = vgpus.name(function.current)
            if left.get(name, 0) > 0:
                left[name] -= 1
            else:
                goes.append(function)
    return goes, [name for name, count in sorted(left.items()) for _vgpu in range(count)]


def creatable(text: str) -> Tuple[int, ...]:
    found = [_TYPE.fullmatch(line) for line in text.splitlines()]
    return tuple(int(one[1]) for one in found if one)


def _function(files: Files, address: str) -> VirtualFunction:
    folder = f"{PCI}/{address}"
    current = (files.read_optional(f"{folder}/{CURRENT}") or "").strip()
    group = files.link(f"{folder}/iommu_group").rpartition("/")[2]
    return VirtualFunction(
        address=address,
        current=int(current) if re.fullmatch("[0-9]+", current) else None,
        creatable=creatable(files.read_optional(f"{folder}/{CREATABLE}") or ""),
        devices=vfio_devices(files, folder, group),
    )
