# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``rdma``: RDMA devices that are ready, their RoCE mode, classes and priorities, and GPUDirect RDMA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ..._core.change import THEM, US, Conflict, Plan, Step, Unmanaged
from ..._core.planning import unread
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._kinds import hotplug
from ..._kinds.foreign_values import find_conflicts
from . import firewalls, later, lossless
from .devices import ACTIVE, Device, Port
from .gpu_memory import OLD_MODULE, SYS_MODULE, GpuMemory
from .observation import observe
from .options import OPTIONS
from .rulesets import is_ruleset
from .spec import AUTO, DMA_BUF, IGNORE, NAME, PEERMEM, ROCE_MODE, RdmaDeclaration, parse
from .state import GPU_MEMORY, GPUDIRECT, RdmaDesired, RdmaState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host

LINK = "link"
STATE = "state"
DOWN = "its link is down; see to the cable, the switch, and the subnet manager of InfiniBand"
NO_DRIVER = "the NVIDIA driver is not loaded"
NO_DEVICES = "there is no RDMA device"


class Rdma:
    """``convergence.Concern`` for RDMA devices."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # A new MTU and virtual functions bring devices or take them away, and tunables have the range of ephemeral ports.
    registration = Registration(after=("node_tools", "kernel_modules", "kernel_tunables", "nic_settings"))

    def parse(self, params: Mapping[str, Any]) -> RdmaDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> RdmaDeclaration:
        before: Dict[str, Dict[str, Scalar]] = {}
        for (identity, setting), value in baseline.values.items():
            # The baseline also has files, ours and the declaration, and firewall rules, which the look reads itself.
            if not identity.startswith("/") and identity != GPU_MEMORY and not is_ruleset(identity):
                before.setdefault(identity, {})[setting] = value.effective
        way = baseline.values.get((GPU_MEMORY, GPUDIRECT))
        return RdmaDeclaration(before=before, unload=way is not None and way.effective is None)

    def observe(self, host: Host, declaration: RdmaDeclaration, scope: Scope) -> RdmaState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: RdmaDeclaration, state: RdmaState) -> RdmaDesired:
        unmanaged: List[Unmanaged] = []
        wanted: Dict[str, Mapping[str, Scalar]] = {}
        for port in state.ports:
            wanted[port.name] = {setting: port.declared[setting] for setting in port.values}
            reasons = {**port.lacking, **port.unread}
            unmanaged += [Unmanaged(port.name, setting, reason) for setting, reason in reasons.items()]
            mode = wanted[port.name].get(ROCE_MODE)
            if mode is not None and mode != port.values[ROCE_MODE] and port.modes and mode not in port.modes:
                from .refusals import refuse_mode

                refuse_mode(port, mode)
            if port.managed and _differing(port):
                from .refusals import refuse_managed

                refuse_managed(port, _differing(port)[0])
        way, reason = "", ""
        conflicts: Tuple[Conflict, ...] = _of_lldpad(state)
        memory = state.gpu_memory
        if declaration.gpudirect != IGNORE and memory is not None:
            way, reason = _way(declaration.gpudirect, memory, state)
            if reason:
                unmanaged.append(Unmanaged(GPU_MEMORY, GPUDIRECT, reason))
            if memory.old_peermem:
                path = f"{SYS_MODULE}/{OLD_MODULE}"
                conflicts += (Conflict(OLD_MODULE, path, None, GPU_MEMORY, GPUDIRECT, "loaded", US),)
        unit, rules = later.texts(declaration)
        return RdmaDesired(wanted, way or None, bool(way), tuple(unmanaged), conflicts, unit, rules)

    def restore(self, baseline: Baseline, state: RdmaState) -> RdmaDesired:
        from . import plan

        return plan.restore(baseline, state)

    def plan(self, state: RdmaState, desired: RdmaDesired, scope: Scope) -> Plan:
        rows = [row for port in state.ports for row in _rows(port, state, desired, scope)]
        if desired.sets_gpudirect and state.gpu_memory is not None:
            rows.append(_gpudirect(state.gpu_memory, state, desired, scope))
        if scope.restoring:
            rows += [row for port in state.ports for row in _unread(port, immediate=scope.immediate)]
        accepted, blocked = firewalls.rows(state.firewalls, scope)
        beside: Tuple[Setting, ...] = ()
        if state.later is not None:
            beside = hotplug.settings(state.later, unit=desired.unit, rules=desired.rules, immediate=scope.immediate)
        steps: Tuple[Step, ...] = ()
        everything = (*rows, *accepted, *beside)
        if any(row.status != IN_SYNC for row in everything):
            from .plan import steps_of

            steps = steps_of(state, desired, rows, accepted, beside)
        conflicts = (*desired.conflicts, *_foreign(state, desired, scope))
        return Plan(everything, steps, (*desired.unmanaged, *blocked), conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: RdmaState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {"devices": {}}
        boot: Dict[str, Any] = {"devices": {}}
        for port in state.ports:
            now = effective["devices"].setdefault(port.device.name, _shown(port.device))
            now["ports"][port.number] = {
                STATE: port.state,
                "rate": port.rate,
                "link_layer": port.link_layer,
                **port.values,
            }
            applied = {setting: port.declared[setting] for setting in port.values} if state.carrier.applies else {}
            boot["devices"].setdefault(port.device.name, {"ports": {}})["ports"][port.number] = applied
        if state.gpu_memory is not None:
            effective[GPUDIRECT] = {
                PEERMEM: state.gpu_memory.peermem,
                DMA_BUF: not state.gpu_memory.dma_buf_lacks,
                "dma_buf_lacks": list(state.gpu_memory.dma_buf_lacks),
            }
        effective.update(firewalls.shown(state.firewalls))
        return effective, boot


CONCERN = Rdma()


def _foreign(state: RdmaState, desired: RdmaDesired, scope: Scope) -> Tuple[Conflict, ...]:
    """Other owners that set ports at boot. Raises ``OwnedByAnother`` where a declared value would not stay."""
    if not state.foreign:
        return ()
    wanted = {(name, setting): value for name, found in desired.wanted.items() for setting, value in found.items()}
    return find_conflicts(state.foreign, wanted, scope)


def _differing(port: Port) -> List[str]:
    """What dcb has to set."""
    return [
        setting
        for setting, value in port.values.items()
        if lossless.is_about(setting) and not setting.startswith(lossless.ECN) and value != port.declared[setting]
    ]


def _of_lldpad(state: RdmaState) -> Tuple[Conflict, ...]:
    """Where it agrees on priorities with the switch, it sets them again whenever the link comes up."""
    return tuple(
        Conflict("lldpad", lossless.LLDPAD, None, port.name, setting, "DCBX", THEM)
        for port in state.ports
        for setting in port.values
        if state.has_lldpad and setting.partition(" ")[0] in (lossless.PFC, lossless.DSCP)
    )


def _shown(device: Device) -> Dict[str, Any]:
    return {
        "driver": device.driver,
        "identity": device.identity,
        "netdevs": list(device.netdevs),
        "numa_node": device.numa_node,
        "relaxed_ordering": device.relaxed_ordering,
        "redirecting_bridges": list(device.redirecting),
        "ports": {},
    }


def _way(declared: str, memory: GpuMemory, state: RdmaState) -> Tuple[str, str]:
    """The way to GPU memory that is wanted, or why there is none. Raises where the declared one cannot be had."""
    if not memory.has_driver or not state.devices:
        return "", NO_DEVICES if memory.has_driver else NO_DRIVER
    if declared == AUTO:
        if not memory.dma_buf_lacks:
            return DMA_BUF, ""
        if memory.old_peermem or memory.no_peermem:
            other = f"{OLD_MODULE} is loaded in its place" if memory.old_peermem else memory.no_peermem
            return "", f"no DMA-BUF: {', '.join(memory.dma_buf_lacks)}; no {PEERMEM}: {other}"
        return PEERMEM, ""
    if (declared == DMA_BUF and memory.dma_buf_lacks) or (declared == PEERMEM and memory.old_peermem):
        from .refusals import refuse_way

        refuse_way(declared, memory)
    return ("", memory.no_peermem) if declared == PEERMEM and memory.no_peermem else (declared, "")


def _rows(port: Port, state: RdmaState, desired: RdmaDesired, scope: Scope) -> List[Setting]:
    applies = state.carrier.applies
    rows = [
        Setting(
            object=port.name,
            setting=setting,
            wanted=wanted,
            effective=port.values[setting],
            boot=wanted if applies else None,
            identity=port.identity,
            effective_matters=scope.immediate,
            boot_matters=scope.carries,
        )
        for setting, wanted in desired.wanted[port.name].items()
    ]
    if port.ready:
        row = Setting(
            object=port.name,
            setting=STATE,
            wanted=ACTIVE,
            effective=port.state,
            boot=None,
            identity=port.identity,
            effective_matters=scope.immediate,
            boot_matters=False,
            pending=DOWN,
            needs=LINK,
        )
        rows.append(row)
    return rows


def _unread(port: Port, *, immediate: bool) -> List[Setting]:
    """The settings that could not be read back, so it is not known whether they are restored."""
    return [
        unread(port.name, setting, port.declared[setting], identity=port.identity, reason=reason, immediate=immediate)
        for setting, reason in port.unread.items()
    ]


def _gpudirect(memory: GpuMemory, state: RdmaState, desired: RdmaDesired, scope: Scope) -> Setting:
    """DMA-BUF is there without any doing, and then it is what is in effect; a module has to be loaded, at boot too."""
    loads = desired.gpudirect != DMA_BUF
    return Setting(
        object=GPU_MEMORY,
        setting=GPUDIRECT,
        wanted=desired.gpudirect,
        effective=(PEERMEM if memory.peermem else None) if loads else DMA_BUF,
        boot=desired.gpudirect if state.carrier.applies or not loads else None,
        identity=GPU_MEMORY,
        effective_matters=scope.immediate,
        boot_matters=scope.carries and loads,
    )
