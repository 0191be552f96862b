# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sysfs says of GPUs and of what goes with them, and who uses those that would change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core import match
from ..._core.declared import of_another
from ..._core.errors import CannotLook
from ..._core.value import replace
from ..._kinds import units
from ..._linux import boot_service, iommu, kernel_modules, systemd
from ..._linux.boot_service import BootCarrier
from ..._machine import processes
from ..._nvidia import holders
from ..._nvidia.gpus import PCI, VFIO, candidate_on_bus, ids_of, on_the_bus
from . import files as unit_files
from . import owners, vgpus
from .spec import NVIDIA
from .state import Function, GpuVirtualizationState

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from .spec import GpuVirtualizationDeclaration
    from .vgpus import Counts, Vgpus

GPUS_OF_DRIVER = "/proc/driver/nvidia/gpus"
DRI_DEVICES = "/dev/dri/"
UNSET = "(null)"
TOOL = "nvidia-smi"
KERNEL_CMDLINE = "kernel_cmdline"
# It lets go of a GPU whose persistence mode goes off, which is done before the GPU changes hands.
PERSISTENCED, PERSISTENCED_UNIT = processes.comm("nvidia-persistenced"), "nvidia-persistenced.service"


def observe(host: Host, declaration: GpuVirtualizationDeclaration, scope: Scope) -> GpuVirtualizationState:
    """Raises ``DeclarationError`` for an entry that is about no GPU."""
    files = host.files
    text = files.read_optional(unit_files.PATH)
    recorded = unit_files.parse(text)
    gpus = tuple(_gpus(files))
    winners = match.select(declaration.entries, [candidate_on_bus(gpu.address, gpu.ids) for gpu in gpus])
    functions = {gpu.address: gpu for gpu in gpus}
    wanted = {gpu.address: declaration.drivers[winner] for gpu, winner in zip(gpus, winners) if winner is not None}
    for address, driver in list(wanted.items()):
        if driver == VFIO:
            found = _companions(files, functions[address])
            functions.update({function.address: function for function in found})
            own = [function for function in found if function.slot == functions[address].slot]
            wanted.update({function.address: driver for function in own if not function.is_gpu})
    for address in (*recorded, *declaration.touched):
        if address not in functions and files.exists(f"{PCI}/{address}"):
            functions[address] = read_function(files, address)
    own = [functions[address] for address in dict.fromkeys((*wanted, *recorded)) if address in functions]
    claims = {} if scope.restoring else owners.claims(files, own)
    reason, comes = _iommu(files) if VFIO in wanted.values() or any(declaration.counts) else ("", False)
    targets = {**declaration.known, **{address: one.driver for address, one in recorded.items()}, **wanted}
    moving = [functions[address] for address, driver in targets.items() if _moves(functions.get(address), driver)]
    moving = moving if scope.immediate else []
    counts = {
        gpu.address: found
        for gpu, winner in zip(gpus, winners)
        for found in [None if winner is None else declaration.counts[winner]]
        if found is not None
    }
    shared = [address for address in dict.fromkeys((*counts, *declaration.shared)) if address in functions]
    return GpuVirtualizationState(
        gpus=gpus,
        winners=winners,
        wanted=wanted,
        functions=functions,
        unit=units.unit_file(host, unit_files.UNIT, unit_files.PATH, "unit", text),
        status=systemd.enabled(files, unit_files.UNIT),
        recorded=recorded,
        holders=holders_of(host, moving),
        claims=claims,
        conflicts=() if scope.restoring else tuple(owners.conflicts(files, wanted, claims)),
        no_iommu=reason,
        comes=comes,
        missing=_missing(files, wanted.values()),
        counts=counts,
        vgpus=_vgpus(host, [functions[address] for address in shared], counts, scope) if shared else {},
        has_sriov_tool=not counts or files.exists(vgpus.TOOL),
        carrier=boot_service.carrier(files, scope) if counts and scope.permanent else BootCarrier(),
        has_tool=not (counts or any(map(is_closed_first, moving))) or host.commands.find(TOOL) is not None,
        closed=tuple((files.read_optional(unit_files.CLOSED) or "").split()),
        when_busy=declaration.when_busy,
        busy_timeout=declaration.busy_timeout,
    )


def read_function(files: Files, address: str) -> Function:
    folder = f"{PCI}/{address}"

    def said(name: str) -> str:
        return (files.read_optional(f"{folder}/{name}") or "").strip()

    driver = _last(files, f"{folder}/driver")
    group = _last(files, f"{folder}/iommu_group") or ""
    override = said("driver_override")
    names = files.names(folder)
    return Function(
        address=address,
        ids=ids_of(files, address),
        kind=said("class"),
        driver=driver,
        override=None if override in ("", UNSET) else override,
        group=group,
        console=said("boot_vga") == "1",
        virtual=sum(name.startswith("virtfn") for name in names),
        devices=_devices(files, folder, address, driver, group),
    )


def holders_of(
    host: Host, functions: Sequence[Function], *, with_persistenced: bool = False
) -> Dict[str, Tuple[str, ...]]:
    """Who uses these functions, by address: processes, and the modules of the kernel that no process shows.

    nvidia-persistenced lets go when it is asked to, and counts only ``with_persistenced``.
    """
    from ..._kinds import workload

    bound = [function for function in functions if function.driver is not None]
    if not bound:
        return {}
    prefixes = (holders.NVIDIA_DEVICES, DRI_DEVICES, vgpus.VFIO_DEVICES)
    using = [
        one
        for one in workload.holders_of_gpus(host.files, prefixes)
        if with_persistenced or not one.is_daemon((PERSISTENCED,), (PERSISTENCED_UNIT,))
    ]
    modules = holders.kernel_modules(host.files)
    found: Dict[str, Tuple[str, ...]] = {}
    for function in bound:
        names = [one.name for one in using if _uses(function, one.devices)]
        if is_closed_first(function):
            names += modules
        if names:
            found[function.address] = tuple(names)
    return found


def _uses(function: Function, opened: Iterable[str]) -> bool:
    if is_closed_first(function) and not any(map(_is_gpu_file, function.devices)):
        # Which device file is its own the driver does not say: any may be.
        return any(map(_is_gpu_file, opened))
    return not set(function.devices).isdisjoint(opened)


def _is_gpu_file(path: str) -> bool:
    return path.startswith(holders.NVIDIA_DEVICES) and path[len(holders.NVIDIA_DEVICES) :].isdecimal()


def _vgpus(host: Host, gpus: Sequence[Function], counts: Mapping[str, Counts], scope: Scope) -> Dict[str, Vgpus]:
    """The vGPUs of these GPUs, and who has those open that may change. The types are asked of the driver."""
    found = {gpu.address: vgpus.read(host.files, gpu.address) for gpu in gpus}
    names: Mapping[str, Mapping[int, str]] = {}
    if any(gpu.driver == NVIDIA for gpu in gpus):
        try:
            names = host.nvml.ask(vgpus.supported_types)
        except CannotLook:
            # What is restored is then told by number, and needs no name where there was nothing before.
            if not scope.restoring:
                raise
    for gpu in gpus:
        one = replace(found[gpu.address], names=names.get(gpu.address, {}))
        if scope.immediate and one.counts != counts.get(gpu.address):
            one = with_users(host, gpu, one)
        found[gpu.address] = one
    return found


def with_users(host: Host, gpu: Function, one: Vgpus, *, with_persistenced: bool = False) -> Vgpus:
    """The same with who has the GPU and its virtual functions open. ``with_persistenced`` as in ``holders_of``."""
    from ..._kinds import workload

    opened = list(workload.holders_of_gpus(host.files, vgpus.VFIO_DEVICES))
    parts = [
        replace(part, holders=tuple(who.name for who in opened if not set(part.devices).isdisjoint(who.devices)))
        for part in one.functions
    ]
    users = holders_of(host, [gpu], with_persistenced=with_persistenced)
    return replace(one, functions=tuple(parts), users=users.get(gpu.address, ()))


def is_closed_first(function: Function) -> bool:
    """Whether the driver of NVIDIA has it, which must let no new client in before it is unbound."""
    return function.is_gpu and function.driver == NVIDIA


def _moves(function: Optional[Function], driver: Optional[str]) -> bool:
    return function is not None and function.driver not in (None, driver)


def _gpus(files: Files) -> Iterable[Function]:
    for address in on_the_bus(files):
        # A virtual function is a part of its GPU.
        if not files.exists(f"{PCI}/{address}/physfn"):
            yield read_function(files, address)


def _companions(files: Files, gpu: Function) -> List[Function]:
    """What shares the slot or the IOMMU group of a GPU: its functions for sound and USB, and what stands in the way.

    Bridges stay with the kernel (Documentation/driver-api/vfio.rst), and a virtual function is a part of its GPU.
    """
    addresses: Set[str] = {name for name in files.names(PCI) if name.startswith(f"{gpu.slot}.")}
    if gpu.group:
        addresses.update(files.names(f"{iommu.GROUPS}/{gpu.group}/devices"))
    found = [read_function(files, address) for address in sorted(addresses) if address != gpu.address]
    return [one for one in found if not one.is_bridge and not files.exists(f"{PCI}/{one.address}/physfn")]


def _devices(files: Files, folder: str, address: str, driver: Optional[str], group: str) -> Tuple[str, ...]:
    """The files by which programs use a function that has this driver."""
    if driver == VFIO:
        return vgpus.vfio_devices(files, folder, group)
    found = [f"{DRI_DEVICES}{name}" for name in files.names(f"{folder}/drm") if name.startswith(("card", "render"))]
    if driver == NVIDIA:
        text = files.read_optional(f"{GPUS_OF_DRIVER}/{address}/information") or ""
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        found += [f"{holders.NVIDIA_DEVICES}{minor[1]}"] if minor else []
    return tuple(found)


def _last(files: Files, path: str) -> Optional[str]:
    """The last part of where a link leads, None where there is no link."""
    return files.link(path).rpartition("/")[2] or None


def _iommu(files: Files) -> Tuple[str, bool]:
    """Why this machine has no IOMMU, empty where it has one, and whether the next boot brings it."""
    if files.names(iommu.GROUPS):
        return "", False
    running = (files.read_optional("/proc/cmdline") or "").split()
    off = next((word for word in running if word in ("intel_iommu=off", "amd_iommu=off", "iommu=off")), "")
    if off:
        return f"the kernel was started with {off}; remove that argument and reboot", False
    if "GenuineIntel" not in (files.read_optional("/proc/cpuinfo") or ""):
        return "the firmware has it off (AMD-Vi or SMMU); enable it there", False
    if "intel_iommu=on" in running:
        return "the kernel was started with intel_iommu=on, so the firmware has it off; enable VT-d there", False
    arguments = of_another(files, KERNEL_CMDLINE).get("arguments") or {}
    way = 'declare kernel_cmdline_arguments: {intel_iommu: "on"}, and reboot'
    return f"the kernel was started without intel_iommu=on; {way}", arguments.get("intel_iommu") == "on"


def _missing(files: Files, drivers: Iterable[str]) -> Tuple[str, ...]:
    """The drivers among these that this kernel has neither loaded nor on disk."""
    lacking = [name for name in dict.fromkeys(drivers) if not files.exists(f"{unit_files.DRIVERS}/{name}")]
    if not lacking:
        return ()
    installed = kernel_modules.read_installed(files)
    return tuple(name for name in lacking if installed.dependencies(name) is None and not installed.has_built_in(name))
