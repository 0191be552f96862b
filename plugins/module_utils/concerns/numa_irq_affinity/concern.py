# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``numa_irq_affinity``: interrupts and queues where they are, and where they are declared to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Set, Tuple

from ..._core.baseline import load as load_baseline
from ..._core.change import Blocker, Change, Plan, Refuse, Step
from ..._core.declared import WANTED
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._kinds.foreign_values import find_conflicts
from ..._linux import boot_service
from ..._linux.boot_service import BootCarrier
from ..._linux.systemd import ENABLED
from . import foreign, hotplug, irqbalance
from .devices import setting_of
from .observation import observe_devices, overview
from .options import OPTIONS
from .spec import COOPERATE, IGNORE, NAME, IrqAffinityDeclaration, parse
from .state import IrqAffinityDesired, IrqAffinityState, WantedAffinity, text_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Conflict
    from ..._core.contract import Scope
    from ..._core.errors import DeclarationError
    from ..._core.protocols import Files, Host


class NumaIrqAffinity:
    """``convergence.Concern`` for interrupts."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # The driver of the GPUs requests their interrupts with its first client, and again after a reset. Threads of cores
    # come and go before, and it is decided which CPUs are for the system.
    registration = Registration(
        after=("node_tools", "kernel_modules", "cpu_power", "cpu_isolation", "nvidia_persistence", "mig_layout"),
        owns=("kernel argument irqaffinity", "unit irqbalance.service"),
    )

    def parse(self, params: Mapping[str, Any]) -> IrqAffinityDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> IrqAffinityDeclaration:
        changed: Dict[str, Set[str]] = {}
        for identity, setting in baseline.values:
            changed.setdefault(identity.partition(" ")[0], set()).add(setting.partition(" ")[0])
        return IrqAffinityDeclaration(changed=changed)

    def observe(self, host: Host, declaration: IrqAffinityDeclaration, scope: Scope) -> IrqAffinityState:
        files = host.files
        processors = None
        if scope.restoring:
            from .plan import observe_changed

            processors, (devices, wants, unmanaged) = observe_changed(files, declaration.changed)
        else:
            devices, wants, unmanaged = observe_devices(files, declaration)
        daemon = irqbalance.observe(host)
        overridden, contradiction = _beside_others(files, declaration, scope)
        is_off = daemon.startable and (daemon.status != ENABLED or daemon.process is None)
        return IrqAffinityState(
            declaration=None if scope.restoring else declaration,
            devices=devices,
            wants=wants,
            unmanaged=unmanaged,
            daemon=daemon,
            later=hotplug.observe(host) if scope.permanent else None,
            baseline=load_baseline(files, NAME) if is_off else None,
            carrier=boot_service.carrier(files, scope) if scope.permanent else BootCarrier(),
            processors=processors,
            overridden=overridden,
            contradiction=contradiction,
            foreign=() if scope.restoring or not wants else foreign.read(files, wants, scope),
        )

    def resolve(self, declaration: IrqAffinityDeclaration, state: IrqAffinityState) -> IrqAffinityDesired:
        daemon, mode, places = state.daemon, declaration.balancing, bool(declaration.entries)
        unmanaged = tuple(state.unmanaged.values())
        if not places and mode == COOPERATE:
            # Nothing is at odds with irqbalance, so it shall be as it was before us.
            return IrqAffinityDesired(state.wants, irqbalance.restore(daemon, state.baseline), unmanaged)
        irqbalance.refuse_impossible(daemon, mode)
        addresses = [device.address for device in state.devices]
        cooperates = mode == COOPERATE and daemon.startable
        return IrqAffinityDesired(
            wants=state.wants,
            balancing=irqbalance.wanted(daemon, mode, addresses, state.baseline),
            unmanaged=unmanaged,
            unit=hotplug.unit_text(irqbalance=cooperates) if places else None,
            mode=None if mode == IGNORE and not places else mode,
        )

    def restore(self, baseline: Baseline, state: IrqAffinityState) -> IrqAffinityDesired:
        from . import plan

        return plan.restore(baseline, state)

    def plan(self, state: IrqAffinityState, desired: IrqAffinityDesired, scope: Scope) -> Plan:
        settings = tuple(_setting(want, state, scope) for want in desired.wants)
        beside = _settings_beside(state, desired, scope)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in (*settings, *beside)):
            from .plan import steps_of

            steps = steps_of(state, desired, settings, beside, scope)
        blocker = None
        if state.contradiction is not None:
            # The step is never taken, and there where nothing else is to be done than to declare it.
            blocker, steps = Blocker(state.contradiction), steps or (Step(Refuse(state.contradiction)),)
        return Plan(
            settings=(*settings, *beside),
            steps=steps,
            unmanaged=desired.unmanaged,
            conflicts=(
                *state.overridden,
                *(() if desired.mode is None else irqbalance.conflicts(state.daemon, desired.mode, beside)),
                *_foreign(state, desired, scope),
            ),
            blocker=blocker,
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
            at_boot = {
                name: {**row, "cpus": row["wanted"] if state.carrier.applies else None} for name, row in rows.items()
            }
            boot[device.name] = {**place, "interrupts": at_boot}
        return {"devices": effective, "irqbalance": irqbalance.report(state.daemon)}, {"devices": boot}

    def devices(self, state: IrqAffinityState) -> List[Dict[str, Any]]:
        return overview(state.devices, state.wants) if state.declaration else []


CONCERN = NumaIrqAffinity()


def _beside_others(
    files: Files, declaration: IrqAffinityDeclaration, scope: Scope
) -> Tuple[Tuple[Conflict, ...], Optional[DeclarationError]]:
    """Isolated CPUs that entries name, and what contradicts a declaration that is not on the node yet.

    One that is there was held against the others when it came, and all together are by whoever looks at all.
    """
    names_cpus = any(entry.cpus and not entry.isolated for entry in declaration.entries)
    comes = scope.carries and scope.declared != WANTED and bool(declaration.entries)
    if not names_cpus and not (comes and declaration.reserved):
        return (), None
    from . import claims

    ours = claims.of_declaration(declaration)
    return claims.overridden(files, ours), claims.contradiction(files, ours) if comes else None


def _foreign(state: IrqAffinityState, desired: IrqAffinityDesired, scope: Scope) -> Tuple[Conflict, ...]:
    """Other owners that send them to CPUs at boot. Raises ``OwnedByAnother`` where that would stay."""
    if not state.foreign:
        return ()
    wanted = {(want.object, want.setting): text_of(want.wanted) for want in desired.wants}
    return find_conflicts(state.foreign, wanted, scope)


def _settings_beside(state: IrqAffinityState, desired: IrqAffinityDesired, scope: Scope) -> Tuple[Setting, ...]:
    """What it takes beside the placing: irqbalance must leave our devices alone, and later ones must be placed too."""
    made = irqbalance.settings(state.daemon, desired.balancing, immediate=scope.immediate, permanent=scope.permanent)
    if state.later is None:
        return made
    return (*made, *hotplug.settings(state.later, unit=desired.unit, immediate=scope.immediate))


def _setting(want: WantedAffinity, state: IrqAffinityState, scope: Scope) -> Setting:
    wanted = text_of(want.wanted)
    return Setting(
        object=want.object,
        setting=want.setting,
        wanted=wanted,
        effective=wanted if want.effective == want.wanted else text_of(want.effective),
        boot=wanted if state.carrier.applies else None,
        identity=want.key[0],
        effective_matters=scope.immediate,
        boot_matters=scope.carries,
    )
