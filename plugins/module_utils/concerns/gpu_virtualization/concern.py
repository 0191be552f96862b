# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``gpu_virtualization``: GPUs that belong to virtual machines, now and after a boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.value import replace
from ..._nvidia.gpus import NOT_THERE, VFIO
from . import files as unit_files
from . import plan, resolve
from .observation import observe
from .options import OPTIONS
from .spec import NAME, GpuVirtualizationDeclaration, parse, patience
from .state import DRIVER, FUNCTIONS, OVERRIDE, VGPUS, Goal, GpuVirtualizationDesired, GpuVirtualizationState, VgpuGoal
from .vgpus import parse_counts

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .vgpus import Vgpus


class GpuVirtualization:
    """``convergence.Concern`` for GPUs of virtual machines."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    # Where the initramfs loads the driver of the host, that has the GPU before our unit, and the boot service moves it.
    apply_at_boot = True
    # A GPU that is bound anew has lost its clocks and limits, so they come later.
    registration = Registration(
        after=(
            "node_tools",
            "kernel_modules",
            "kernel_cmdline",
            "nvml",
            "nvidia_persistence",
            "fabric_manager",
            "mig_layout",
        ),
        disturbs=("nvidia_persistence", "gpu_settings", "mps", "dcgm", "container_runtime", "numa_irq_affinity"),
        deadline=DRIVER_DEADLINE,
        owns=(f"unit {unit_files.UNIT}",),
    )

    def parse(self, params: Mapping[str, Any]) -> GpuVirtualizationDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> GpuVirtualizationDeclaration:
        touched = [key for key in baseline.values if key[1] in (DRIVER, OVERRIDE)]
        known = {
            identity: _driver(baseline.values[identity, setting].effective)
            for identity, setting in touched
            if setting == DRIVER
        }
        addresses = tuple(dict.fromkeys(identity for identity, _setting in touched))
        shared = tuple(
            dict.fromkeys(identity for identity, setting in baseline.values if setting in (FUNCTIONS, VGPUS))
        )
        return GpuVirtualizationDeclaration(
            known=known, touched=(*addresses, *shared), shared=shared, **patience(params)
        )

    def observe(self, host: Host, declaration: GpuVirtualizationDeclaration, scope: Scope) -> GpuVirtualizationState:
        return observe(host, declaration, scope)

    def resolve(
        self, declaration: GpuVirtualizationDeclaration, state: GpuVirtualizationState
    ) -> GpuVirtualizationDesired:
        return resolve.desired(state)

    def restore(self, baseline: Baseline, state: GpuVirtualizationState) -> GpuVirtualizationDesired:
        goals: Dict[str, Goal] = {}
        unmanaged: Dict[str, Unmanaged] = {}
        shared: Dict[str, VgpuGoal] = {}
        for (identity, setting), value in baseline.values.items():
            before = value.effective
            if setting in (FUNCTIONS, VGPUS) and identity in state.vgpus:
                shared[identity] = _vgpu_goal(setting, _driver(before), shared.get(identity), state.vgpus[identity])
            if setting not in (DRIVER, OVERRIDE):
                continue
            if not unit_files.ADDRESS.fullmatch(identity) or not _is_driver(before):
                raise ValueError(f"{identity} has {before!r}, which is not the driver of a PCI function")
            function = state.functions.get(identity)
            if function is None:
                unmanaged[identity] = Unmanaged(identity, DRIVER, NOT_THERE)
                continue
            goal = goals.get(identity, Goal(function.driver, function.override))
            driver = _driver(before)
            goals[identity] = Goal(driver, goal.override) if setting == DRIVER else Goal(goal.driver, driver)
        return GpuVirtualizationDesired(goals, shared, unmanaged=tuple(unmanaged.values()))

    def plan(self, state: GpuVirtualizationState, desired: GpuVirtualizationDesired, scope: Scope) -> Plan:
        return plan.plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: GpuVirtualizationState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {}
        boot: Dict[str, Any] = {}
        for gpu in state.gpus:
            effective[gpu.address] = {
                "driver": gpu.driver,
                "iommu_group": gpu.group or None,
                "devices": list(gpu.devices) if gpu.driver == VFIO else [],
            }
            boot[gpu.address] = {"driver": plan.at_boot(state, gpu)}
            if gpu.address in state.vgpus:
                effective[gpu.address]["vgpus"] = dict(state.vgpus[gpu.address].counts)
                wanted = state.counts.get(gpu.address) if state.carrier.applies else None
                boot[gpu.address]["vgpus"] = dict(wanted or {})
        return {"gpus": effective}, {"gpus": boot}


CONCERN = GpuVirtualization()


def _vgpu_goal(setting: str, before: Optional[str], known: Optional[VgpuGoal], found: Vgpus) -> VgpuGoal:
    """What was there before us. Raises ``ValueError`` on what never was."""
    goal = known or VgpuGoal(enabled=bool(found.functions), counts=found.counts)
    if setting == VGPUS:
        return replace(goal, counts=parse_counts(before))
    if before not in (plan.ENABLED, plan.DISABLED):
        raise ValueError(f"virtual functions were {before!r}")
    return replace(goal, enabled=before == plan.ENABLED)


def _is_driver(value: object) -> bool:
    return value is None or (isinstance(value, str) and unit_files.NAME_OF_DRIVER.fullmatch(value) is not None)


def _driver(value: object) -> Optional[str]:
    return None if value is None else str(value)
