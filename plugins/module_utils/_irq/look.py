# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``numa_irq_affinity``: interrupts and queues where they are, and where they are declared to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple

from .._core import declared
from .._core.change import RIGHT, Change, Plan, Setting, Step, Unmanaged
from .._core.errors import DeclarationError
from .._core.road import SHARED_OPTIONS
from .._host.boot_service import carries
from .._topology.cpulist import render
from . import around, irqbalance
from .around import Around, Goal
from .devices import IRQ, setting_of
from .model import Cpus, Device, Interrupt, Processors
from .planner import plan_interrupts
from .processors import read_processors
from .resolve import targets
from .spec import INTERRUPTS, NAME, OPTIONS, parse

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Files, Host
    from .spec import Declaration

NOBODY = "none"

Key = Tuple[str, str]
"""What an interrupt or a queue is known by: the PCI address of its device (of one of several interfaces, with its name)
and its setting (``interrupt nvidia``, ``rps rx-0``)."""


@dataclass(frozen=True)
class Want:
    """The CPUs of one interrupt or queue, as they shall be and as they are. ``path`` is the file of a queue.

    ``device`` is None for a queue: only interrupts must be looked up again before a write.
    """

    object: str
    key: Key
    wanted: Cpus
    effective: Cpus
    device: Optional[Device] = None
    path: str = ""

    @property
    def setting(self) -> str:
        return self.key[1]


Seen = Tuple[Tuple[Device, ...], Tuple[Want, ...], Mapping[Key, Unmanaged]]
"""Devices, the CPUs of their interrupts and queues, and which of these cannot be set, by key."""


@dataclass(frozen=True)
class State:
    """What was seen. ``wants`` are where the interrupts and queues of the declared ``devices`` belong, or, for
    ``state: absent``, those of devices that were ever changed, as they are. ``unmanaged`` are those that cannot be set.

    ``carried`` is whether the next boot applies this very declaration, and ``uncarried`` why it applies none.
    ``read_only`` is a folder of the kernel where nobody here may write. ``processors`` are there for ``state: absent``,
    where something was ever changed.
    """

    declaration: Optional[Declaration]
    devices: Tuple[Device, ...]
    wants: Tuple[Want, ...]
    unmanaged: Mapping[Key, Unmanaged]
    around: Around
    carried: bool = False
    uncarried: str = ""
    read_only: str = ""
    processors: Optional[Processors] = None


@dataclass(frozen=True)
class Desired:
    """The declaration on this machine; ``giving_back`` is ``state: absent``."""

    wants: Tuple[Want, ...]
    goal: Goal
    unmanaged: Tuple[Unmanaged, ...] = ()
    immediate: bool = True
    permanent: bool = True
    giving_back: bool = False


class NumaIrqAffinity:
    """``road.Concern`` for interrupts."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        files = host.files
        declaration = processors = None
        if params["state"] == "absent":
            from .plan import look_back

            processors, (devices, wants, unmanaged) = look_back(files)
        else:
            declaration = parse(params)
            devices, wants, unmanaged = look_at(files, declaration)
        permanent = params["permanent"]
        uncarried = carries(files) if permanent else ""
        return State(
            declaration=declaration,
            devices=devices,
            wants=wants,
            unmanaged=unmanaged,
            around=around.observe(host, permanent=permanent),
            carried=permanent and not uncarried and declaration is not None and self._is_declared(files, params),
            uncarried=uncarried,
            read_only=_read_only(files, wants) if host.may_change else "",
            processors=processors,
        )

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        unmanaged = tuple(state.unmanaged.values())
        if params["strict"] and unmanaged:
            first = unmanaged[0]
            raise DeclarationError(
                f"set {first.setting}",
                object=first.object,
                cause=first.reason,
                hint="leave it out, or say strict: false",
            )
        return Desired(
            wants=state.wants,
            goal=around.wanted(
                state.around,
                params["irqbalance"],
                [device.address for device in state.devices],
                entries=bool(params[INTERRUPTS]),
            ),
            unmanaged=unmanaged,
            immediate=params["immediate"],
            permanent=params["permanent"],
        )

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        from . import plan

        return plan.restore(params, found, state)

    def plan(self, state: State, desired: Desired) -> Plan:
        settings = tuple(_setting(want, state, desired) for want in desired.wants)
        beside = around.settings(state.around, desired.goal, immediate=desired.immediate, permanent=desired.permanent)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != RIGHT for setting in (*settings, *beside)):
            from .plan import steps_of

            steps = steps_of(state, desired, settings, beside)
        return Plan(
            settings=(*settings, *beside),
            steps=steps,
            unmanaged=desired.unmanaged,
            conflicts=around.conflicts(state.around, desired.goal, beside),
        )

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
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
            at_boot = {name: {**row, "cpus": row["wanted"] if state.carried else None} for name, row in rows.items()}
            boot[device.name] = {**place, "interrupts": at_boot}
        return {"devices": effective, "irqbalance": irqbalance.report(state.around.daemon)}, {"devices": boot}

    def _is_declared(self, files: Files, params: Mapping[str, Any]) -> bool:
        return declared.plan_present(files, self, params, SHARED_OPTIONS)[0].boot == declared.WANTED


CONCERN = NumaIrqAffinity()


def look_at(files: Files, declaration: Declaration) -> Seen:
    """The declared devices, and where their interrupts and queues belong."""
    processors = read_processors(files)
    found = targets(files, declaration, processors)
    devices = tuple(target.device for target in found)
    wants = tuple(want_of(place.device, place.interrupt, place.cpus) for place in plan_interrupts(processors, found))
    unmanaged = lacking(devices)
    if any(target.rps is not None or target.xps is not None for target in found):
        from . import steering

        queues, without = steering.look_at(files, found, isolated=processors.isolated)
        wants += queues
        unmanaged.update(without)
    return devices, wants, unmanaged


def lacking(devices: Sequence[Device]) -> Dict[Key, Unmanaged]:
    """The interrupts that the kernel places by itself."""
    return {
        (device.address, setting_of(interrupt.name)): Unmanaged(
            device.name, setting_of(interrupt.name), interrupt.managed
        )
        for device in devices
        for interrupt in device.interrupts
        if interrupt.managed
    }


def want_of(device: Device, interrupt: Interrupt, cpus: Cpus) -> Want:
    key = (device.address, setting_of(interrupt.name))
    return Want(device.name, key, wanted=cpus, effective=interrupt.cpus, device=device)


def text_of(cpus: Cpus) -> str:
    """A list of CPUs; a queue that is steered to no CPU is not steered at all."""
    return render(cpus) or NOBODY


def _setting(want: Want, state: State, desired: Desired) -> Setting:
    wanted = text_of(want.wanted)
    return Setting(
        object=want.object,
        setting=want.setting,
        wanted=wanted,
        effective=wanted if want.effective == want.wanted else text_of(want.effective),
        boot=wanted if state.carried else None,
        identity=want.key[0],
        effective_matters=desired.immediate,
        boot_matters=desired.permanent and not desired.giving_back,
    )


def _read_only(files: Files, wants: Sequence[Want]) -> str:
    """Where root may not write: what access(2) denies root is on a read-only file system, as in a container."""
    knobs = {IRQ: [f"{IRQ}/default_smp_affinity"] if any(want.device for want in wants) else []}
    knobs["/sys"] = [want.path for want in wants if want.path][:1]
    denied = (place for place, paths in knobs.items() for path in paths if files.exists(path))
    return next((place for place in denied if not all(map(files.writable, knobs[place]))), "")
