# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The preconditions of a change: who uses the GPUs, and which have to be reset together."""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, FrozenSet, Mapping, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.value import replace
from ..._kinds import units
from ..._nvidia import holders
from ..._nvidia.gpus import VFIO, is_passed_through, on_the_bus
from ..._nvidia.holders import NVIDIA_DEVICES
from . import busy, links
from .state import Preconditions

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._nvidia.driver import Driver
    from .state import MigLayoutDesired, MigLayoutState, WantedGpu

# NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH: this machine is a virtual one, and the GPU was given to it.
PASSTHROUGH = 1
NVIDIA_SMI = "nvidia-smi"


def with_preconditions(host: Host, state: MigLayoutState, desired: MigLayoutDesired) -> MigLayoutState:
    """The state with all that a plan of these changes has to know."""
    passed_through = host.nvml.ask(passed_through_to_us)
    changing = [gpu for gpu in desired.gpus if not gpu.in_sync]
    resets = [gpu for gpu in changing if needs_reset(gpu) and gpu.reading.gpu.uuid not in passed_through]
    together, unmanaged = _together(host, state, resets) if resets else ({}, frozenset())
    touched = {gpu.reading.gpu.uuid for gpu in changing}.union(*together.values())
    reset = set().union(*together.values())
    # Services are stopped around a reset only.
    yielding = _yielding(host.files, state, reset) if resets else ()
    holdings = {
        **_holdings(host, state, touched - reset, ignore_units=()),
        **_holdings(host, state, reset, ignore_units=(*state.declaration.stop_services, *yielding)),
    }
    has_tool = not resets or host.commands.find(NVIDIA_SMI) is not None
    # Who may have to wait must not be the one that others wait for.
    host.nvml.close()
    modules = holders.kernel_modules(host.files) if resets else ()
    preconditions = Preconditions(together, unmanaged, holdings, modules, passed_through, has_tool, yielding)
    return replace(state, preconditions=preconditions)


def needs_reset(gpu: WantedGpu) -> bool:
    """Whether its mode changes with a reset only."""
    mode = gpu.reading.mode
    return mode is not None and mode[0] != gpu.mig and not gpu.reading.resetless


def explain_unbound(entries: Sequence[match.MatchEntry], files: Files, *, there: Sequence[str]) -> None:
    """Raise ``DeclarationError`` where an entry names a GPU that this machine has handed on to a virtual one.

    ``there`` are the addresses of those that it has itself: an entry that may be about one of them is not explained.
    """
    named = [(entry, match.Glob(entry.match.get("pci_address", ()))) for entry in entries if not entry.optional]
    unbound = [(entry, pattern) for entry, pattern in named if not any(map(pattern.match, there))]
    for address in on_the_bus(files):
        if not is_passed_through(files, address):
            continue
        for entry, pattern in unbound:
            if pattern.match(address):
                raise DeclarationError(
                    "partition {}",
                    object=address,
                    cause=f"{entry} names it, and it is bound to {VFIO}: a virtual machine has it",
                    hint="declare it inside that machine, or remove it from the match",
                )


def _holdings(
    host: Host, state: MigLayoutState, uuids: AbstractSet[str], *, ignore_units: Sequence[str]
) -> Mapping[str, Tuple[busy.Holding, ...]]:
    readings = [reading for reading in state.readings if reading.gpu.uuid in uuids]
    return busy.find(host, readings, ignore_units=ignore_units) if readings else {}


def _yielding(files: Files, state: MigLayoutState, reset: AbstractSet[str]) -> Tuple[str, ...]:
    """The services of ours that may be stopped for this reset: who has another GPU open may serve somebody there."""
    known = units.yielding(files)
    if not known:
        return ()
    own = {f"{NVIDIA_DEVICES}{reading.minor}" for reading in state.readings if reading.gpu.uuid in reset}
    elsewhere = {
        holder.unit
        for holder in holders.find(files).holders
        if any(device[len(NVIDIA_DEVICES) :].isdecimal() and device not in own for device in holder.devices)
    }
    return tuple(unit for unit in known if unit not in elsewhere)


def _together(
    host: Host, state: MigLayoutState, resets: Sequence[WantedGpu]
) -> Tuple[Mapping[str, Tuple[str, ...]], FrozenSet[str]]:
    uuids = {reading.gpu.pci_address: reading.gpu.uuid for reading in state.readings}
    groups, switched = links.read_links(host)
    found = {}
    for gpu in resets:
        own = gpu.reading.gpu
        others = (uuids[address] for address in groups.get(own.pci_address, ()) if address != own.pci_address)
        found[own.uuid] = (own.uuid, *others)
    return found, frozenset(uuids[address] for address in switched).intersection(found)


# --- in the process that asks the driver ------------------------------------------------------------------------------


def passed_through_to_us(driver: Driver) -> FrozenSet[str]:
    """A question: the UUIDs of the GPUs that a virtual machine was given, which is this one."""
    return frozenset(
        gpu.identity.uuid
        for gpu in driver.gpus()
        if not gpu.identity.lost and gpu.read("nvmlDeviceGetVirtualizationMode").value == PASSTHROUGH
    )
