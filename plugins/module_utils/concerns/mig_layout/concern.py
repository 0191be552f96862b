# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``mig_layout``: into which instances every GPU is divided, now, at boot, and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.baseline import Baseline
from ..._core.change import THEM, Conflict, Plan, Step, Unmanaged
from ..._core.errors import CannotLook, DeclarationError
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import replace
from ..._kinds import smi_writers
from ..._linux import boot_service, systemd
from ..._nvidia import errors, gpus
from ..._nvidia.gpus import NOT_THERE
from .consumers import NEEDS, Consumer, stale_consumers
from .driver import TOO_OLD, MigReading, read
from .model import Layout
from .options import OPTIONS
from .records import INTERRUPTED_RUN, NOTIFIED, read_record
from .resolve import resolve
from .satisfied import satisfied
from .spec import DISABLED, ENABLED, INSTANCES, MIG, NAME, MigEntry, MigLayoutDeclaration, check, parse
from .state import MigGpu, MigLayoutDesired, MigLayoutState, WantedGpu, geometry_of, layout_of
from .text import NONE, layout_text

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue, Key
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._linux.boot_service import BootCarrier
    from .transaction import Record

MIG_MANAGER = "nvidia-mig-manager.service"
STALE = "it was started before the layout changed, and only knows the previous one"


class MigLayout:
    """``convergence.Concern`` for the layout of GPUs in MIG mode."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # A reset takes with it what the driver keeps of a GPU, its interrupts included; persistence mode it brings back.
    # Instances that are new are not in the CDI specification. DCGM may be stopped for it, and knows the old ones.
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "fabric_manager"),
        disturbs=("gpu_settings", "mps", "numa_irq_affinity", "container_runtime", "dcgm", "slurm_gpus"),
        tells=NEEDS,
        deadline=DRIVER_DEADLINE,
        interrupted=INTERRUPTED_RUN,
    )

    def parse(self, params: Mapping[str, Any]) -> MigLayoutDeclaration:
        return replace(self.everything(params, Baseline({})), entries=parse(params["gpus"]))

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> MigLayoutDeclaration:
        check(params)
        return MigLayoutDeclaration(
            when_busy=params["when_busy"],
            busy_timeout=params["busy_timeout"],
            stop_services=tuple(params["stop_services"]),
            changed=baseline.values,
        )

    def observe(self, host: Host, declaration: MigLayoutDeclaration, scope: Scope) -> MigLayoutState:
        files, entries = host.files, declaration.entries
        interrupted_run, notified = files.exists(INTERRUPTED_RUN), files.exists(NOTIFIED)
        if not entries and not scope.restoring and not interrupted_run and not notified:
            return MigLayoutState()
        host.nvml.begin()
        carrier = boot_service.carrier(files, scope)
        readings: Tuple[MigReading, ...] = ()
        unserved: Tuple[Unmanaged, ...] = ()
        missing = NOT_THERE
        try:
            readings = host.nvml.ask(read)
        except CannotLook as error:
            from ..._nvidia import driverless

            if isinstance(error, errors.NoDriver):
                _explain_unbound(entries, (), files)
            if scope.restoring and not interrupted_run and isinstance(error, errors.NoDriver):
                missing = gpus.UNSERVED
            else:
                unserved = driverless.unserved(error, [entry.entry for entry in entries], files)
                if interrupted_run:
                    raise
        state = MigLayoutState(
            readings=readings,
            won=_won(entries, readings, files),
            # What is restored is brought by nobody.
            carrier=replace(carrier, declared=None) if scope.restoring else carrier,
            declaration=declaration,
            record=read_record(files),
            consumers=stale_consumers(host) if notified else (),
            conflicts=_conflicts(files),
            interrupted=_interrupted(files) if interrupted_run else None,
            unserved=unserved,
            missing=missing,
            foreign=smi_writers.read(files, scope),
        )
        # Where the declaration on the node is this one, the next boot brings what is wanted. Who uses a GPU, and which
        # are reset with it, takes many questions: it is read only of those that would change.
        desired = _restored(declaration.changed, state) if scope.restoring else self.resolve(declaration, state)
        state = replace(state, gpus=tuple(_seen(gpu, state.carrier) for gpu in desired.gpus if gpu.declared))
        if not scope.immediate or desired.in_sync:
            return state
        from .preconditions import with_preconditions

        return with_preconditions(host, state, desired)

    def resolve(self, declaration: MigLayoutDeclaration, state: MigLayoutState) -> MigLayoutDesired:
        without = [reading for entry, reading in state.won if reading.mode is None and not entry.mig]
        desired = MigLayoutDesired(
            gpus=tuple(
                _wanted(entry, reading, (state.record or {}).get(reading.gpu.uuid))
                for entry, reading in state.won
                if reading not in without
            ),
            unmanaged=tuple(
                Unmanaged(reading.gpu.name, MIG, reading.lacking, cause=f"the GPU has no MIG: {reading.lacking}")
                for reading in without
            ),
            unresponsive=state.unresponsive,
        )
        return _with_interrupted(state, desired)

    def restore(self, baseline: Baseline, state: MigLayoutState) -> MigLayoutDesired:
        return _restored(baseline.values, state)

    def plan(self, state: MigLayoutState, desired: MigLayoutDesired, scope: Scope) -> Plan:
        targets = {gpu.name: gpu.reading.layout for gpu in desired.gpus}
        waiting: Dict[str, Tuple[str, str]] = {}
        if not desired.in_sync:
            from . import plan

            targets, waiting = plan.targets_of(state, desired)
        if state.foreign:
            from .foreign import find_conflicts

            state = replace(state, conflicts=(*state.conflicts, *find_conflicts(state, desired, targets, scope)))
        seen = {gpu.name: gpu for gpu in state.gpus}
        settings = [
            setting
            for gpu in desired.gpus
            if gpu.declared
            for setting in _settings_of(gpu, targets[gpu.name], seen[gpu.name], scope, waiting.get(gpu.name, ("", "")))
        ]
        if scope.immediate:
            settings.extend(_consumer_setting(consumer) for consumer in state.consumers)
        unfinished = (
            desired.interrupted_run is not None
            or (scope.restoring and state.record is not None)
            or desired.unresponsive
        )
        if not unfinished and all(setting.status == IN_SYNC for setting in settings):
            unmanaged = (*state.unserved, *desired.unmanaged)
            return Plan(tuple(settings), unmanaged=unmanaged, conflicts=state.conflicts)
        from . import plan

        return plan.complete(state, desired, scope, settings, targets, waiting)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: MigLayoutState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective = {gpu.name: dict(gpu.effective) for gpu in state.gpus}
        boot = {gpu.name: dict(gpu.boot) for gpu in state.gpus}
        consumers = {
            one.need: {"units": list(one.units), "pids": list(one.pids), "files": list(one.files)}
            for one in state.consumers
        }
        return {"gpus": effective, "consumers": consumers}, {"gpus": boot}


CONCERN = MigLayout()


def _won(
    entries: Sequence[MigEntry], readings: Sequence[MigReading], files: Files
) -> Tuple[Tuple[MigEntry, MigReading], ...]:
    """The GPUs that are declared, each with the entry that wins it."""
    try:
        winners = gpus.select([entry.entry for entry in entries], [reading.gpu for reading in readings])
    except DeclarationError:
        _explain_unbound(entries, readings, files)
        raise
    return tuple((entries[winner], reading) for reading, winner in zip(readings, winners) if winner is not None)


def _explain_unbound(entries: Sequence[MigEntry], readings: Sequence[MigReading], files: Files) -> None:
    from .preconditions import explain_unbound

    there = [reading.gpu.pci_address for reading in readings]
    explain_unbound([entry.entry for entry in entries], files, there=there)


def _interrupted(files: Files) -> Record:
    from .transaction import Record, interrupted_run

    return interrupted_run(files) or Record()


def _with_interrupted(state: MigLayoutState, desired: MigLayoutDesired) -> MigLayoutDesired:
    if state.interrupted is None:
        return desired
    from .interrupted import with_interrupted

    return with_interrupted(state.interrupted, state.readings, desired)


def _restored(changed: Mapping[Key, BaselineValue], state: MigLayoutState) -> MigLayoutDesired:
    from .restore import as_before

    return _with_interrupted(state, as_before(changed, state))


def _wanted(entry: MigEntry, reading: MigReading, recorded: Optional[str]) -> WantedGpu:
    if reading.mode is None:
        raise DeclarationError(
            "partition {}",
            object=reading.gpu.name,
            cause=f"{entry.entry} sets mig: enabled, and a {reading.gpu.model} has no MIG ({reading.lacking})",
            hint="remove it from the match, or give it an entry of its own with mig: disabled",
        )
    geometry = geometry_of(reading)
    known = layout_of(recorded, geometry, device_id=reading.device_id)
    if not entry.mig:
        return WantedGpu(reading, False, (), geometry, known)
    if reading.lacking == TOO_OLD and (entry.layout or entry.instances):
        raise CannotLook("partition {}", object=reading.gpu.name, cause=TOO_OLD, hint="update it")
    if not geometry.profiles and (entry.layout or entry.instances):
        raise CannotLook(
            "partition {}",
            object=reading.gpu.name,
            cause=f"{reading.lacking}, and this board is not among those that are known",
            hint="set mig: enabled alone first, and declare its instances once that is done",
        )
    wanted = resolve(entry, geometry, model=reading.gpu.model, device_id=reading.device_id, gpu=reading.gpu.name)
    return WantedGpu(reading, True, wanted, geometry, known)


def _conflicts(files: Files) -> Tuple[Conflict, ...]:
    """NVIDIA's own service gives every GPU the layout of its own file at each boot."""
    if systemd.enabled(files, MIG_MANAGER) != systemd.ENABLED:
        return ()
    place = next(path for path in (f"{folder}/{MIG_MANAGER}" for folder in systemd.FOLDERS) if files.exists(path))
    return (Conflict(MIG_MANAGER, place, None, "GPUs", INSTANCES, "the layout of its own configuration", THEM),)


def _seen(gpu: WantedGpu, carrier: BootCarrier) -> MigGpu:
    """A GPU as it is, and as the next boot makes it."""
    return MigGpu(
        gpu.name,
        {MIG: _mode_text(gpu), INSTANCES: layout_text(gpu.reading.layout, gpu.geometry)},
        {MIG: _mode_at_boot(gpu, carrier), INSTANCES: _layout_at_boot(gpu, carrier)},
    )


def _settings_of(gpu: WantedGpu, target: Layout, seen: MigGpu, scope: Scope, waiting: Tuple[str, str]) -> List[Setting]:
    wanted = {MIG: ENABLED if gpu.mig else DISABLED}
    if gpu.wanted is not None and not gpu.undone:
        wanted[INSTANCES] = layout_text(target, gpu.geometry)
    pending, needs = waiting
    return [
        Setting(
            object=gpu.name,
            setting=setting,
            wanted=value,
            effective=seen.effective[setting],
            boot=seen.boot[setting],
            identity=gpu.reading.gpu.uuid,
            effective_matters=scope.immediate,
            boot_matters=scope.carries,
            pending=pending if seen.effective[setting] != value else "",
            needs=needs,
        )
        for setting, value in wanted.items()
    ]


def _mode_text(gpu: WantedGpu) -> str:
    current, pending = gpu.reading.mode or (False, False)
    text = ENABLED if current else DISABLED
    return text if current == pending else f"{text}, {ENABLED if pending else DISABLED} after a reset"


def _mode_at_boot(gpu: WantedGpu, carrier: BootCarrier) -> str:
    """Before Hopper the GPU itself keeps the mode; later ones begin without it, and the boot service brings it."""
    kept = not gpu.reading.resetless and bool(gpu.reading.mode and gpu.reading.mode[1])
    brought = gpu.mig if carrier.applies else kept or gpu.recorded is not None
    return ENABLED if (brought if carrier.applies_any else kept) else DISABLED


def _layout_at_boot(gpu: WantedGpu, carrier: BootCarrier) -> Scalar:
    """Instances never outlive a boot, so there are those that the boot service makes: at the recorded places.

    The record was written together with the declaration that is on the node.
    """
    if not carrier.applies_any or (carrier.applies and gpu.wanted == ()):
        return NONE
    if gpu.recorded is None:
        return None if carrier.applies else NONE
    if carrier.applies and gpu.wanted is not None and not satisfied(gpu.recorded, gpu.wanted):
        return None
    return layout_text(gpu.recorded, gpu.geometry)


def _consumer_setting(consumer: Consumer) -> Setting:
    """What still knows the layout of before."""
    return Setting(
        object=consumer.name,
        setting=NAME,
        wanted="knows the layout",
        effective="knows the previous layout",
        boot="knows the layout",
        identity=consumer.name,
        pending=STALE,
        needs=consumer.need,
    )
