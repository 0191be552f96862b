# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``numa_irq_affinity``: interrupts and queues where they are, and where they are declared to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core import declared
from ..._core.change import Change, Plan, Step
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.shared_options import SHARED_OPTIONS
from ..._linux.boot_service import why_not_persisted
from . import companions, irqbalance
from .devices import IRQ, setting_of
from .observation import observe_devices
from .options import OPTIONS
from .overview import overview
from .spec import INTERRUPTS, NAME, parse
from .state import IrqAffinityDesired, IrqAffinityState, WantedAffinity, text_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.protocols import Files, Host


class NumaIrqAffinity:
    """``convergence.Concern`` for interrupts."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # The driver of the GPUs requests their interrupts with its first client, and again after a reset.
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvidia_persistence", "mig_layout"),
        owns=("kernel argument irqaffinity",),
    )

    def observe(self, host: Host, params: Mapping[str, Any]) -> IrqAffinityState:
        files = host.files
        declaration = processors = None
        if params["state"] == "absent":
            from .plan import observe_changed

            processors, (devices, wants, unmanaged) = observe_changed(files)
        else:
            declaration = parse(params)
            devices, wants, unmanaged = observe_devices(files, declaration)
        permanent = params["permanent"]
        not_persisted = why_not_persisted(files) if permanent else ""
        return IrqAffinityState(
            declaration=declaration,
            devices=devices,
            wants=wants,
            unmanaged=unmanaged,
            companions=companions.observe(host, permanent=permanent),
            persisted=permanent and not not_persisted and declaration is not None and self._is_declared(files, params),
            not_persisted=not_persisted,
            read_only=_read_only(files, wants) if host.may_change else "",
            processors=processors,
        )

    def normalise(self, params: Mapping[str, Any], state: IrqAffinityState) -> IrqAffinityDesired:
        unmanaged = tuple(state.unmanaged.values())
        if params["strict"] and unmanaged:
            first = unmanaged[0]
            raise DeclarationError(
                f"set {first.setting}",
                object=first.object,
                cause=first.reason,
                hint="leave it out, or set strict: false",
            )
        return IrqAffinityDesired(
            wants=state.wants,
            goal=companions.wanted(
                state.companions,
                params["irqbalance"],
                [device.address for device in state.devices],
                entries=bool(params[INTERRUPTS]),
            ),
            unmanaged=unmanaged,
            immediate=params["immediate"],
            permanent=params["permanent"],
        )

    def restore(self, params: Mapping[str, Any], baseline: Baseline, state: IrqAffinityState) -> IrqAffinityDesired:
        from . import plan

        return plan.restore(params, baseline, state)

    def plan(self, state: IrqAffinityState, desired: IrqAffinityDesired) -> Plan:
        settings = tuple(_setting(want, state, desired) for want in desired.wants)
        beside = companions.settings(
            state.companions, desired.goal, immediate=desired.immediate, permanent=desired.permanent
        )
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in (*settings, *beside)):
            from .plan import steps_of

            steps = steps_of(state, desired, settings, beside)
        return Plan(
            settings=(*settings, *beside),
            steps=steps,
            unmanaged=desired.unmanaged,
            conflicts=companions.conflicts(state.companions, desired.goal, beside),
        )

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(step, host)

    def report(self, state: IrqAffinityState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        wanted = {want.key: text_of(want.wanted) for want in state.wants} if state.declaration else {}
        # Many have the same CPUs: those that were never placed.
        texts = {cpus: text_of(cpus) for device in state.devices for cpus in {one.cpus for one in device.interrupts}}
        effective: Dict[str, Any] = {}
        boot: Dict[str, Any] = {}
        for device in state.devices:
            rows: Dict[str, Dict[str, Optional[str]]] = {}
            for interrupt in device.interrupts:
                goal = wanted.get((device.address, setting_of(interrupt.name)))
                rows[interrupt.name] = {"cpus": texts[interrupt.cpus], "wanted": goal, "managed": interrupt.managed}
            place = {"pci_address": device.address, "numa_node": device.node}
            effective[device.name] = {**place, "interrupts": rows}
            at_boot = {name: {**row, "cpus": row["wanted"] if state.persisted else None} for name, row in rows.items()}
            boot[device.name] = {**place, "interrupts": at_boot}
        return {"devices": effective, "irqbalance": irqbalance.report(state.companions.daemon)}, {"devices": boot}

    def devices(self, state: IrqAffinityState) -> List[Dict[str, Any]]:
        return overview(state)

    def _is_declared(self, files: Files, params: Mapping[str, Any]) -> bool:
        return declared.plan_present(files, self, params, SHARED_OPTIONS)[0].boot == declared.WANTED


CONCERN = NumaIrqAffinity()


def _setting(want: WantedAffinity, state: IrqAffinityState, desired: IrqAffinityDesired) -> Setting:
    wanted = text_of(want.wanted)
    return Setting(
        object=want.object,
        setting=want.setting,
        wanted=wanted,
        effective=wanted if want.effective == want.wanted else text_of(want.effective),
        boot=wanted if state.persisted else None,
        identity=want.key[0],
        effective_matters=desired.immediate,
        boot_matters=desired.permanent and not desired.restoring,
    )


def _read_only(files: Files, wants: Sequence[WantedAffinity]) -> str:
    """Where root may not write: what access(2) denies root is on a read-only file system, as in a container."""
    tunables = {IRQ: [f"{IRQ}/default_smp_affinity"] if any(want.device for want in wants) else []}
    tunables["/sys"] = [want.path for want in wants if want.path][:1]
    denied = (place for place, paths in tunables.items() for path in paths if files.exists(path))
    return next((place for place in denied if not all(map(files.writable, tunables[place]))), "")
