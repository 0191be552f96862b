# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``gpu_slices``: slices of systemd next to GPUs, services that memory does not end, and who may launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ..._core.change import Plan, Step
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.value import replace
from ..._linux import systemd
from ..._linux.cpus import FOLDER, read_cpus
from ..._nvidia import gpus
from ..._nvidia.readings import ask
from . import files as slice_files
from . import observation, plan, resolve
from .launch import group_of, rule_text
from .options import OPTIONS
from .spec import NAME, GpuSlicesDeclaration, parse, patience
from .state import SCORE, GpuSlicesDesired, GpuSlicesState
from .topology import NumaTopology, SliceGpu, read, read_numa_topology

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


class GpuSlices:
    """``convergence.Concern`` for slices."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence"),
        deadline=DRIVER_DEADLINE,
        owns=("unit gpu-*.slice",),
    )

    def parse(self, params: Mapping[str, Any]) -> GpuSlicesDeclaration:
        return parse(params)

    def knobs(self, declaration: GpuSlicesDeclaration) -> Tuple[str, ...]:
        return tuple(f"OOMScoreAdjust of {service.unit}" for service in declaration.protected)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> GpuSlicesDeclaration:
        return GpuSlicesDeclaration(changed=baseline, **patience(params))

    def observe(self, host: Host, declaration: GpuSlicesDeclaration, scope: Scope) -> GpuSlicesState:
        files = host.files
        entries = declaration.entries
        found: Tuple[SliceGpu, ...] = ()
        unserved: Tuple[Any, ...] = ()
        if entries:
            host.nvml.begin()
            found, unserved, _missing = ask(host, read, entries=entries, restoring=scope.restoring)
        options = [*declaration.options, *(node.options for node in declaration.numa_nodes)]
        devices = {device for option in options for _limit, device, _number in option.limits}
        ours = observation.on_disk(files)
        names = [*ours, *(slice_files.of_gpu(gpu.identity.index) for gpu in found if not gpu.identity.lost)]
        names += [slice_files.of_node(node.number) for node in declaration.numa_nodes]
        names = list(dict.fromkeys(names))
        for name in ours:
            text = files.read_optional(slice_files.path_of(name)) or ""
            devices.update(slice_files.devices_in(slice_files.values_of([text])))
        numbers = {device: observation.device_number(files, device) for device in sorted(devices)}
        unit_files = systemd.unit_files(files)
        weights = any(option.io_weight is not None for option in options)
        disks = observation.disks(files) if weights else ()
        rule = observation.rule(files)
        protected = [service.unit for service in declaration.protected]
        if declaration.changed is not None:
            protected += [unit for unit, setting in declaration.changed.values if setting == SCORE]
        state = GpuSlicesState(
            gpus=found,
            winners=gpus.select(entries, [gpu.identity for gpu in found]),
            topology=read_numa_topology(files, found) if declaration.has_slices else NumaTopology(),
            slices=observation.slices(host, names, numbers),
            services=observation.services(host, protected, unit_files),
            rule=rule,
            systemd_runs=systemd.running(files),
            scheduler=observation.scheduler(unit_files) if declaration.has_slices else "",
            no_cgroup=observation.why_no_cgroup(files, limits=bool(devices) or weights),
            counts_swap=observation.counts_swap(files),
            disks=disks,
            weighted=observation.weighted(files, disks),
            devices=numbers,
            oomd=bool(protected) and unit_files.status(observation.OOMD) == systemd.ENABLED,
            group_fault=observation.launch_fault(host, declaration, rule_text(declaration.group), rule),
            parent_idle=observation.parent_idle(files, names),
            unserved=unserved,
            when_busy=declaration.when_busy,
            busy_timeout=declaration.busy_timeout,
        )
        changing = [] if scope.restoring else _changing(resolve.desired(declaration, state), state)
        bound = observation.bound(files, changing) if changing else ()
        return replace(state, bound=bound, online=read_cpus(files, f"{FOLDER}/online")) if bound else state

    def resolve(self, declaration: GpuSlicesDeclaration, state: GpuSlicesState) -> GpuSlicesDesired:
        return resolve.desired(declaration, state)

    def restore(self, baseline: Baseline, state: GpuSlicesState) -> GpuSlicesDesired:
        return plan.restore(baseline)

    def plan(self, state: GpuSlicesState, desired: GpuSlicesDesired, scope: Scope) -> Plan:
        return plan.plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: GpuSlicesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        group = group_of(state.rule.text or "") or None
        effective: Dict[str, Any] = {}
        boot: Dict[str, Any] = {}
        for name, one in state.slices.items():
            if one.file.text is None:
                continue
            place = {"about": slice_files.about(one.file.text)}
            effective[name] = {**place, "active": one.active, "in_use": bool(one.users), **one.effective}
            boot[name] = {**place, **one.boot}
        services = {unit: dict(one.effective) for unit, one in state.services.items()}
        later = {unit: {**one.others, **_of_drop_in(one.file.text)} for unit, one in state.services.items()}
        return (
            {"slices": effective, "services": services, "launch_group": group},
            {"slices": boot, "services": later, "launch_group": group},
        )


def _changing(desired: GpuSlicesDesired, state: GpuSlicesState) -> List[str]:
    """The slices that are to have other values, now or at boot. Only for these the services of the machine are read."""
    known = state.slices
    return [
        one.name
        for one in desired.slices
        if one.name not in known or not known[one.name].effective == known[one.name].boot == one.values
    ]


CONCERN = GpuSlices()


def _of_drop_in(text: Any) -> Dict[str, str]:
    found: List[Tuple[str, str]] = []
    for key, value in systemd.assignments(text or ""):
        found += [(setting, value) for setting, known in observation.SERVICE_KEYS.items() if known == key]
    return dict(found)
