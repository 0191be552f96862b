# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a GPU or its MIG instances.

The driver lists processes that compute, draw or serve CUDA's MPS, with their instances. Who else keeps a device file
open is in the way of a reset all the same, and is found in ``/proc``; of a process that only root may look into, only
the driver's lists tell. What nobody saw is still safe: the driver takes no instance away from a process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.value import frozen, replace
from ..._machine import processes
from ..._nvidia import holders
from ..._nvidia.capabilities import MigPlace, capability_devices

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._nvidia.driver import Driver, Gpu
    from ..._nvidia.holders import Holder
    from .driver import DriverInstance, MigReading
    from .model import Busy

# The driver's word for no instance.
NONE = 0xFFFFFFFF
LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
# Daemons that do not block a reset. The first lets go of a GPU whose persistence mode goes off, the second must run for
# a reset of a single GPU behind an NVSwitch (nvidia-smi(1), --gpu-reset).
HARMLESS = tuple(processes.comm(name) for name in ("nvidia-persistenced", "nv-fabricmanager"))
HARMLESS_UNITS = ("nvidia-persistenced*", "nvidia-fabricmanager*")

WHOLE_GPU: MigPlace = (None, None)


@frozen
class RunningProcess:
    """A process as the driver lists it. ``name`` is its command, empty where the driver has none."""

    pid: int
    name: str
    place: MigPlace


@frozen
class Holding:
    """A process and what it uses of one GPU; one that uses two instances is there twice.

    ``start`` is the memory slice at which its GPU instance starts, None for the whole GPU, and ``compute_start`` the
    compute slice at which its compute instance starts, None for all of the GPU instance. ``work`` says that the driver
    lists it as one that computes, draws or serves MPS; another merely has the device open, as a monitor has.
    """

    name: str
    pid: int
    start: Optional[int]
    compute_start: Optional[int]
    work: bool


def find(
    host: Host, readings: Sequence[MigReading], *, ignore_units: Sequence[str]
) -> Mapping[str, Tuple[Holding, ...]]:
    """Who uses each of these GPUs, by UUID. Left out are we ourselves, what does not matter to a reset, and the
    processes of ``ignore_units`` (``nvidia-dcgm.service``), which are about to be stopped."""
    answering = [reading for reading in readings if not reading.gpu.lost]
    running = host.nvml.ask(list_processes, tuple(reading.gpu.uuid for reading in answering))
    opened = {holder.pid: holder for holder in holders.find(host.files).holders}
    found: Dict[str, Tuple[Holding, ...]] = {}
    for reading in answering:
        working = running[reading.gpu.uuid]
        places = _open_places(host.files, reading, opened.values())
        for process in working:
            places.setdefault(process.pid, set()).add(process.place)
        names = {process.pid: process.name for process in working}
        holdings: List[Holding] = []
        for pid in sorted(places):
            holder = opened.get(pid) or _described(host.files, pid, names[pid])
            if _matters(host.files, holder, ignore_units):
                holdings.extend(_holdings(reading, holder, places[pid], work=pid in names))
        found[reading.gpu.uuid] = tuple(holdings)
    return found


def busy_of(holdings: Sequence[Holding], reading: MigReading) -> Busy:
    """The instances that are used, for the solver. A monitor that has the GPU open uses none of them.

    A process that works on the GPU and whose instance nobody tells may be on any.
    """
    busy: Dict[int, FrozenSet[int]] = {}
    for holding in holdings:
        if holding.start is None and not holding.work:
            continue
        for driver_instance in reading.instances:
            instance = driver_instance.instance
            if holding.start not in (None, instance.start):
                continue
            starts = frozenset(compute.start for compute in instance.compute)
            if holding.compute_start is not None:
                starts &= {holding.compute_start}
            busy[instance.start] = busy.get(instance.start, frozenset()) | starts
    return busy


# --- in the process that asks the driver ------------------------------------------------------------------------------


def list_processes(driver: Driver, uuids: Sequence[str]) -> Mapping[str, Tuple[RunningProcess, ...]]:
    """A question: who computes, draws or serves MPS on each of these GPUs."""
    return {uuid: tuple(_running(driver.gpu(uuid))) for uuid in uuids}


def _running(gpu: Gpu) -> Iterator[RunningProcess]:
    """The processes of the GPU, and of its MIG devices: a driver may list some only there."""
    from ..._nvidia import mig

    driver = gpu.driver
    found: Set[Tuple[int, MigPlace]] = set(_listed(driver, gpu.handle, WHOLE_GPU))
    for device, instance, compute in mig.devices(gpu):
        found.update(_listed(driver, device, (instance, compute)))
    names: Dict[int, str] = {}
    for pid, place in sorted(found, key=repr):
        if pid not in names:
            names[pid] = os.path.basename(str(driver.read("nvmlSystemGetProcessName", pid).value or ""))
        yield RunningProcess(pid, names[pid], place)


def _listed(driver: Driver, handle: object, where: MigPlace) -> Iterator[Tuple[int, MigPlace]]:
    """Pids with their places; ``where`` counts where the list itself tells none."""
    for function in LISTS:
        answer = driver.read(function, handle)
        if answer.value is None:
            # Drivers before R510 know only this version.
            answer = driver.read(f"{function}_v2", handle)
        for process in answer.value or ():
            instance, compute = process.gpuInstanceId, process.computeInstanceId
            place = (instance, None if compute in (None, NONE) else compute)
            yield process.pid, where if instance in (None, NONE) else place


# --- between the lists ------------------------------------------------------------------------------------------------


def _open_places(files: Files, reading: MigReading, opened: Iterable[Holder]) -> Dict[int, Set[MigPlace]]:
    """What processes have open of a GPU, by pid. Whose minor number nobody tells has no device file to look for."""
    if reading.minor is None:
        return {}
    places: Dict[str, MigPlace] = {f"{holders.NVIDIA_DEVICES}{reading.minor}": WHOLE_GPU}
    for driver_instance in reading.instances:
        places.update(capability_devices(files, reading.minor, driver_instance.number, driver_instance.compute_numbers))
    found: Dict[int, Set[MigPlace]] = {}
    for holder in opened:
        held = {places[device] for device in holder.devices if device in places}
        if held:
            found[holder.pid] = held
    return found


def _described(files: Files, pid: int, name: str) -> Holder:
    """A process that only the driver lists. It may be in a container whose processes we do not see, or have ended."""
    try:
        holder = holders.describe(files, pid)
    except OSError:
        holder = holders.Holder(pid, holders.UNKNOWN, "", "", ())
    return replace(holder, command=name) if name and holder.command == holders.UNKNOWN else holder


def _matters(files: Files, holder: Holder, ignore_units: Sequence[str]) -> bool:
    if holder.is_daemon(HARMLESS, HARMLESS_UNITS) or (holder.unit and holder.unit in ignore_units):
        return False
    # Who asks the driver for us is a child of ours; it lets go before a reset.
    own = os.getpid()
    process = processes.read(files, holder.pid)
    return holder.pid != own and (process is None or process.parent != own)


def _holdings(reading: MigReading, holder: Holder, places: Set[MigPlace], *, work: bool) -> Iterator[Holding]:
    """One for each place that is not the whole of another: who uses a part has the device of the whole open, too."""
    parts: Set[MigPlace] = {(instance, None) for instance, compute in places if compute is not None}
    if any(instance is not None for instance, _compute in places):
        parts.add(WHOLE_GPU)
    for instance, compute in sorted(places - parts, key=repr):
        driver_instance = next((one for one in reading.instances if one.number == instance), None)
        start = None if driver_instance is None else driver_instance.instance.start
        compute_start = None if driver_instance is None else _compute_start(driver_instance, compute)
        yield Holding(holder.name, holder.pid, start, compute_start, work)


def _compute_start(driver_instance: DriverInstance, number: Optional[int]) -> Optional[int]:
    starts = {
        known: compute.start
        for known, compute in zip(driver_instance.compute_numbers, driver_instance.instance.compute)
    }
    return None if number is None else starts.get(number)
