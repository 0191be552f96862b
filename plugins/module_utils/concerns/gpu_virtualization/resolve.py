# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declaration means on this machine, and why it cannot be had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from ..._core.errors import CannotLook, DeclarationError, OwnedByAnother
from ..._core.nearest import did_you_mean
from ..._core.setting import Setting
from ..._core.wording import first_of
from ..._linux import systemd
from ..._nvidia.errors import NoDriver
from ..._nvidia.gpus import VFIO
from . import files as unit_files
from .files import Recorded
from .observation import TOOL
from .spec import NAME, NVIDIA
from .state import Function, Goal, GpuVirtualizationDesired, GpuVirtualizationState, VgpuGoal
from .vgpus import CURRENT, described, moves
from .vgpus import TOOL as SRIOV_TOOL

if TYPE_CHECKING:
    from .state import Claim
    from .vgpus import Counts, Vgpus

GIVE = "give {} to virtual machines"
IOMMU = "IOMMU"
DIVIDE = "divide {} into vGPUs"
BIND = f"bind {{}} to {VFIO}"
# What a group may have beside what is declared (Documentation/driver-api/vfio.rst).
HARMLESS = (None, VFIO, "pci-stub")
SHOWN = 4


class NoIommu(CannotLook):
    """There is no IOMMU; ``kernel_cmdline`` may be about to bring it."""

    code = "no_iommu"


def desired(state: GpuVirtualizationState) -> GpuVirtualizationDesired:
    """Raises ``DeclarationError`` and ``NoIommu`` for what this machine cannot have, and ``OwnedByAnother``."""
    for name in state.missing:
        raise DeclarationError(
            f"bind GPUs to {name}",
            cause=f"this kernel has no module {name}",
            hint="install it, or remove the declaration",
        )
    if not state.has_tool:
        raise DeclarationError(
            "give GPUs to virtual machines",
            cause=f"this machine has no {TOOL}, which lets the driver of NVIDIA let go of them",
            hint="install it, or set immediate: false and reboot",
        )
    bound = {address: state.functions[address] for address, driver in state.wanted.items() if driver == VFIO}
    for address, driver in state.wanted.items():
        _refuse_claim(address, driver, state.claims.get(address))
    for function in bound.values():
        if function.is_gpu:
            _refuse_gpu(function, state, bound)
    if bound:
        _refuse_unit(state)
    if state.no_iommu and not state.comes:
        _refuse_without_iommu(state, (*bound, *state.counts))
    goals = _given_up(state)
    for address, driver in state.wanted.items():
        goals[address] = Goal(driver, VFIO if driver == VFIO else None)
    shared = {}
    for address, counts in state.counts.items():
        _refuse_vgpus(state.functions[address], state.vgpus[address], counts, state)
        shared[address] = VgpuGoal(enabled=True, counts=counts)
    text = unit_files.render(_recorded(bound[address], state.recorded) for address in sorted(bound)) if bound else None
    return GpuVirtualizationDesired(goals, shared, text)


def _refuse_without_iommu(state: GpuVirtualizationState, addresses: Sequence[str]) -> None:
    """Raises ``NoIommu`` where any GPU is for virtual machines."""
    if addresses:
        error = NoIommu(GIVE, object=first_of(addresses, SHOWN), cause=f"there is no IOMMU: {state.no_iommu}")
        error.settings = tuple(
            Setting(address, IOMMU, "on", "off", None, address, boot_matters=False) for address in addresses
        )
        raise error


def _recorded(function: Function, known: Mapping[str, Recorded]) -> Recorded:
    before = known.get(function.address)
    same = before is not None and before.ids == function.ids
    return before if before is not None and same else Recorded(function.address, function.ids, function.driver)


def _given_up(state: GpuVirtualizationState) -> Dict[str, Goal]:
    """What an earlier declaration bound returns to what it was bound to before; not what stands in its place by now."""
    goals = {}
    for address, before in state.recorded.items():
        function = state.functions.get(address)
        if function is not None and function.ids == before.ids and address not in state.wanted:
            claim = state.claims.get(address)
            goals[address] = Goal(before.driver if claim is None else claim.driver, None)
    return goals


def _refuse_claim(address: str, driver: str, claim: Optional[Claim]) -> None:
    if claim is not None and claim.driver != driver:
        place = claim.path if claim.line is None else f"{claim.path} line {claim.line}"
        raise OwnedByAnother(
            f"bind {{}} to {driver}",
            object=address,
            cause=f"{claim.owner} binds it to {claim.driver} at boot, by {place}",
            found=claim.value,
            wanted=driver,
            hint="remove it there, or leave the GPU out of the declaration",
        )


def _refuse_gpu(gpu: Function, state: GpuVirtualizationState, bound: Mapping[str, Function]) -> None:
    if gpu.console:
        raise DeclarationError(
            BIND,
            object=gpu.address,
            cause="it is the console of this machine (boot_vga), which would go dark",
            hint="make another device the console in the firmware, or leave the GPU out of the declaration",
        )
    if gpu.virtual:
        raise DeclarationError(
            BIND,
            object=gpu.address,
            cause=f"its {gpu.virtual} virtual functions are enabled, so it is divided into vGPUs",
            hint=f"disable them by sriov-manage -d {gpu.address}, or leave the GPU out of the declaration",
        )
    if not gpu.group and not state.no_iommu:
        raise DeclarationError(
            BIND,
            object=gpu.address,
            cause="it is in no IOMMU group, although this machine has an IOMMU",
            hint="look for DMAR or AMD-Vi in the kernel log, or leave the GPU out of the declaration",
        )
    others = [
        one
        for one in state.functions.values()
        if gpu.group and one.group == gpu.group and one.address not in bound and one.driver not in HARMLESS
    ]
    if others:
        raise DeclarationError(
            BIND,
            object=gpu.address,
            cause=f"its IOMMU group {gpu.group} has {first_of(_described(others), SHOWN)} as well, and a virtual"
            " machine gets all of a group or nothing",
            hint="put the GPU into another slot, enable ACS in the firmware, or declare all GPUs of the group",
        )


def _described(functions: Sequence[Function]) -> Sequence[str]:
    return [f"{one.address} ({one.driver})" for one in functions]


def _refuse_vgpus(gpu: Function, found: Vgpus, counts: Counts, state: GpuVirtualizationState) -> None:
    if gpu.driver is None:
        raise NoDriver(DIVIDE, object=gpu.address, cause="no driver is bound to it", hint=f"load the module {NVIDIA}")
    cause, hint = _why_no_vgpus(gpu, found, counts, state)
    if cause:
        raise DeclarationError(DIVIDE, object=gpu.address, cause=cause, hint=hint)


def _why_no_vgpus(gpu: Function, found: Vgpus, counts: Counts, state: GpuVirtualizationState) -> Tuple[str, str]:
    """Why this GPU cannot have these vGPUs, and what to do; empty where it can."""
    if gpu.driver != NVIDIA:
        return f"it is bound to {gpu.driver}, and vGPUs need {NVIDIA}", f"declare driver: {NVIDIA} first"
    if found.mediated:
        return (
            "its vGPUs are mediated devices (mdev), which are not managed",
            "make them by mdevctl, or upgrade to Linux 6.8 and a driver that has vGPUs without them",
        )
    if not found.total:
        return "it has no virtual functions", "enable SR-IOV in the firmware, and install the driver for hosts of vGPUs"
    if any(one.current is None for one in found.functions):
        return f"its virtual functions have no {CURRENT}", "install the driver for hosts of vGPUs (vGPU 17 or later)"
    if not found.functions and not state.has_sriov_tool:
        return f"there is no {SRIOV_TOOL} to enable its virtual functions", "install the driver for hosts of vGPUs"
    offered = sorted(found.names.values())
    for name in counts:
        if name not in offered:
            there = f"it offers {', '.join(offered)}" if offered else "the loaded driver offers none"
            return f"it does not offer the type {name}; {there}", did_you_mean(name, offered, otherwise="")
    if sum(counts.values()) > found.total:
        return f"{sum(counts.values())} vGPUs are wanted, and it has {found.total} virtual functions", "declare fewer"
    goes, comes = moves(found, counts)
    free = {number for one in found.functions if not one.current for number in one.creatable}
    for name in comes if found.functions and not goes else ():
        if found.number(name) not in free:
            has = described(found.counts) or "no vGPU"
            return f"the driver makes no more {name} beside {has}", "declare fewer, or of one type only"
    return "", ""


def _refuse_unit(state: GpuVirtualizationState) -> None:
    goal = "keep GPUs for virtual machines by {}"
    if state.unit.text is not None and not unit_files.is_ours(state.unit.text):
        cause = f"{state.unit.path} was not written by {NAME}"
        raise OwnedByAnother(goal, object=unit_files.UNIT, cause=cause, hint="remove it, or the declaration")
    if state.status == systemd.MASKED:
        hint = f"run systemctl unmask {unit_files.UNIT}, or remove the declaration"
        raise OwnedByAnother(goal, object=unit_files.UNIT, cause="it is masked", hint=hint)
