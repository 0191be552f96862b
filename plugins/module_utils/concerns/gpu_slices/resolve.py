# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declaration means on this machine: the slices with their values, and what is left to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.wording import first_of
from ..._linux import cpulist
from . import files as slice_files
from . import topology
from .launch import rule_text
from .observation import SCHEDULERS
from .spec import GpuSlicesDeclaration, SliceOptions
from .state import AVOID, CPUS, LOADED, MEMORY, PREFERENCE, SCORE, SWAP, WEIGHT, GpuSlicesDesired, WantedSlice

if TYPE_CHECKING:
    from .state import GpuSlicesState, Values

NODE = "node"
NO_SWAP_ACCOUNTING = "this kernel does not count swap by cgroup"


def desired(declaration: GpuSlicesDeclaration, state: GpuSlicesState) -> GpuSlicesDesired:
    """Raises ``DeclarationError`` for what this machine cannot have."""
    unmanaged = list(state.unserved)
    services = _services(declaration, state)
    lost = tuple(gpu for gpu in state.gpus if gpu.identity.lost) if declaration.entries else ()
    found: List[WantedSlice] = []
    rule: Optional[str] = None
    if declaration.has_slices and state.scheduler and not declaration.beside_scheduler:
        unmanaged.append(_left_to_scheduler(state.scheduler))
    elif declaration.has_slices and state.systemd_runs and state.no_cgroup:
        unmanaged.append(_unconfined(state.no_cgroup))
    elif declaration.has_slices:
        found += _of_gpus(declaration, state, unmanaged)
        found += _of_nodes(declaration, state, unmanaged)
        if declaration.group:
            if state.group_fault:
                cause, _semicolon, hint = state.group_fault.partition("; ")
                raise DeclarationError("let {} use gpufleet run", object=declaration.group, cause=cause, hint=hint)
            rule = rule_text(declaration.group)
    return GpuSlicesDesired(
        slices=tuple(found),
        services=services,
        rule=rule,
        keep=tuple(slice_files.of_gpu(gpu.identity.index) for gpu in lost),
        unresponsive=tuple(gpu.name for gpu in lost),
        unmanaged=tuple(unmanaged),
    )


def _left_to_scheduler(unit: str) -> Unmanaged:
    return Unmanaged(
        NODE,
        "slices",
        f"{unit} is enabled: {SCHEDULERS[unit]} places the jobs of this node, and confines them itself",
        goal="make slices for GPUs",
        hint="leave them out, or set beside_scheduler: true for a node where people work beside it",
    )


def _unconfined(reason: str) -> Unmanaged:
    return Unmanaged(
        NODE,
        "slices",
        reason,
        goal="make slices for GPUs",
        hint="boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line, or leave them out",
    )


def _of_gpus(declaration: GpuSlicesDeclaration, state: GpuSlicesState, unmanaged: List[Unmanaged]) -> List[WantedSlice]:
    found = []
    for gpu, winner in zip(state.gpus, state.winners):
        if winner is None:
            continue
        name = slice_files.of_gpu(gpu.identity.index)
        room = topology.of_gpu(gpu, state.topology)
        if room is None:
            unmanaged.append(Unmanaged(gpu.name, LOADED, topology.NOT_TOLD, goal="make a slice"))
            continue
        about = slice_files.about_gpu(gpu.identity.index, gpu.identity.uuid)
        values = _values(name, room, declaration.options[winner], declaration, state, unmanaged)
        found.append(WantedSlice(name, about, values))
    return found


def _of_nodes(
    declaration: GpuSlicesDeclaration, state: GpuSlicesState, unmanaged: List[Unmanaged]
) -> List[WantedSlice]:
    found = []
    for entry in declaration.numa_nodes:
        if not topology.has_node(entry.number, state.topology):
            if entry.optional:
                continue
            raise DeclarationError(
                "make the slice of {}",
                object=entry.where,
                cause=f"this machine has no NUMA node {entry.number}",
                hint=f"it has {cpulist.render(state.topology.nodes or (0,))}; correct it, or set optional: true",
            )
        name = slice_files.of_node(entry.number)
        room = topology.of_node(entry.where, entry.number, state.topology)
        values = _values(name, room, entry.options, declaration, state, unmanaged)
        found.append(WantedSlice(name, f"NUMA node {entry.number}", values))
    return found


def _values(
    name: str,
    room: topology.Room,
    options: SliceOptions,
    declaration: GpuSlicesDeclaration,
    state: GpuSlicesState,
    unmanaged: List[Unmanaged],
) -> Values:
    cpus = room.cpus - declaration.reserved
    beyond = declaration.reserved - state.topology.possible
    if beyond:
        there = cpulist.render(state.topology.possible)
        cause = f"there is no CPU {cpulist.render(beyond)}; this machine has {there}"
        raise DeclarationError("use {}", object="reserved_cpus", cause=cause)
    if not cpus:
        raise DeclarationError(
            "make the slice {}",
            object=name,
            cause=f"all its CPUs ({cpulist.render(room.cpus)}) are reserved",
            hint="leave some of them out of reserved_cpus",
        )
    values: Dict[str, str] = {CPUS: cpulist.render(cpus), MEMORY: cpulist.render(room.memory)}
    if not options.swap:
        if state.counts_swap:
            values[SWAP] = "0"
        else:
            unmanaged.append(Unmanaged(name, SWAP, NO_SWAP_ACCOUNTING))
    if options.io_weight is not None:
        values[WEIGHT] = str(options.io_weight)
        reason = _not_enforced(state)
        if reason:
            unmanaged.append(Unmanaged(name, WEIGHT, reason, excused=True))
    for limit, device, number in options.limits:
        if not state.devices[device]:
            raise DeclarationError(
                "limit I/O of {}",
                object=device,
                cause="this machine has no such block device",
                hint="correct the path, or leave the limit out",
            )
        values[slice_files.limit_of(limit, device)] = str(number)
    return values


def _not_enforced(state: GpuSlicesState) -> str:
    """Why a weight is a number without effect; empty where all disks heed it."""
    heedless = [name for name in state.disks if name not in state.weighted]
    if not heedless:
        return ""
    return f"it is set, and not enforced on {first_of(heedless, 4)}: only the scheduler bfq and io.cost heed a weight"


def _services(declaration: GpuSlicesDeclaration, state: GpuSlicesState) -> Dict[str, Values]:
    found: Dict[str, Values] = {}
    for service in declaration.protected:
        if not state.services[service.unit].there:
            if service.optional:
                continue
            raise DeclarationError(
                "protect {}",
                object=service.unit,
                cause="this machine has no such unit",
                hint="leave it out, or set optional: true for it",
            )
        # systemd-oomd has a say only where it is on, and older releases of systemd do not know the line.
        preference = {PREFERENCE: AVOID} if state.oomd else {}
        found[service.unit] = {SCORE: str(service.score), **preference}
    return found
