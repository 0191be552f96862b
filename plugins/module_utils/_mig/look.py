# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``mig_layout``: into which instances every GPU is divided, now, at boot, and as declared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._core import declared
from .._core.change import RIGHT, Conflict, Plan, Setting, Step, Unmanaged
from .._core.errors import CannotLook, DeclarationError, Scalar
from .._core.road import SHARED_OPTIONS
from .._host import gpus
from .._host.gpus import NOT_THERE
from .driver import TOO_OLD, Reading, read
from .model import Geometry, Layout, Wanted
from .records import HEARD, LEFT_OVER, read_record
from .resolve import resolve
from .satisfied import satisfied
from .spec import DISABLED, ENABLED, INSTANCES, MIG, NAME, OPTIONS, GpuEntry, check, parse
from .text import NONE, layout_text, parse_layout

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Files, Host
    from .circumstances import Circumstances
    from .consumers import Consumer
    from .interrupted import Leftover

MIG_MANAGER = "nvidia-mig-manager.service"
STALE = "it was started before the layout changed, and knows only what was there then"


@dataclass(frozen=True)
class Gpu:
    """One GPU that is declared: what the driver says, and what is wanted of it.

    ``wanted`` is None where its instances are left alone. ``geometry`` is the driver's, or the published one while the
    driver does not tell it. ``recorded`` is the layout that the boot service makes, None where none is recorded.
    ``undone``: its instances, and where it is not ``declared`` its mode, are those from before an interrupted change.
    """

    reading: Reading
    mig: bool
    wanted: Optional[Tuple[Wanted, ...]]
    geometry: Geometry
    recorded: Optional[Layout] = None
    declared: bool = True
    undone: bool = False

    @property
    def name(self) -> str:
        return self.reading.gpu.name

    @property
    def right(self) -> bool:
        """Whether it is as declared, and still will be after its next reset."""
        has_mode = self.reading.mode in (None, (self.mig, self.mig))
        return has_mode and (self.wanted is None or satisfied(self.reading.layout, self.wanted))


@dataclass(frozen=True)
class State:
    """What was seen: the GPUs that are declared, and all that there are.

    ``carried`` is whether the next boot applies a declaration, ``uncarried`` why it would not, ``same`` whether that is
    this one. ``record`` are the recorded layouts as text by UUID. ``circumstances`` are those of a change, None where
    there is none to make. ``left_over`` is what an interrupted run left. ``lost`` are the names of GPUs that do not
    answer. ``unserved`` is what nobody can set because there is no driver, and ``missing`` why a GPU is not seen.
    """

    gpus: Tuple[Gpu, ...] = ()
    readings: Tuple[Reading, ...] = ()
    carried: bool = False
    same: bool = False
    uncarried: str = ""
    record: Optional[Mapping[str, str]] = None
    consumers: Tuple[Consumer, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
    lost: Tuple[str, ...] = ()
    left_over: Optional[Leftover] = None
    circumstances: Optional[Circumstances] = None
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE


@dataclass(frozen=True)
class Desired:
    """What is declared is in the state already, GPU by GPU; ``giving_back`` is ``state: absent``."""

    params: Mapping[str, Any]
    giving_back: bool = False


class MigLayout:
    """``road.Concern`` for the layout of GPUs in MIG mode."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        files = host.files
        check(params)
        absent = params["state"] == "absent"
        entries = () if absent else parse(params["gpus"])
        left_over, heard = files.exists(LEFT_OVER), files.exists(HEARD)
        if not entries and not absent and not left_over and not heard:
            return State()
        host.nvml.begin()
        uncarried = _uncarried(files)
        declaration = None if absent else declared.plan_present(files, self, params, SHARED_OPTIONS)[0].boot
        readings: Tuple[Reading, ...] = ()
        unserved: Tuple[Unmanaged, ...] = ()
        missing = NOT_THERE
        try:
            readings = host.nvml.ask(read)
        except CannotLook as error:
            from .._host import driverless, nvml

            if isinstance(error, nvml.NoDriver):
                _explain_unbound(entries, (), files)
            if absent and not left_over and isinstance(error, nvml.NoDriver):
                missing = gpus.UNSERVED
            else:
                unserved = driverless.unserved(error, [entry.entry for entry in entries], files)
                if left_over:
                    raise
        record = read_record(files)
        found, without = _declared(entries, readings, record or {}, files)
        state = State(
            gpus=found,
            unmanaged=without,
            readings=readings,
            carried=declaration is not None and not uncarried,
            same=declaration == declared.WANTED,
            uncarried=uncarried,
            record=record,
            consumers=_consumers(host) if heard else (),
            conflicts=_conflicts(files),
            lost=tuple(reading.gpu.name for reading in readings if reading.gpu.lost),
            unserved=unserved,
            missing=missing,
        )
        if absent:
            from .restore import as_before

            state = as_before(files, state)
        if left_over:
            from .interrupted import with_interrupted

            state = with_interrupted(files, state)
        if not params["immediate"] or all(gpu.right for gpu in state.gpus):
            return state
        from .circumstances import with_circumstances

        return with_circumstances(host, state, params)

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        if params["strict"] and state.unmanaged:
            first = state.unmanaged[0]
            cause = f"the GPU has no MIG: {first.reason}"
            raise DeclarationError(
                "set mig", object=first.object, cause=cause, hint="leave it out, or say strict: false"
            )
        return Desired(params)

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        return Desired(params, giving_back=True)

    def plan(self, state: State, desired: Desired) -> Plan:
        targets = {gpu.name: gpu.reading.layout for gpu in state.gpus}
        waiting: Dict[str, Tuple[str, str]] = {}
        if not all(gpu.right for gpu in state.gpus):
            from . import plan

            targets, waiting = plan.targets_of(state, desired)
        settings = [
            setting
            for gpu in state.gpus
            for setting in _settings_of(gpu, targets[gpu.name], state, desired, waiting.get(gpu.name, ("", "")))
        ]
        if desired.params["immediate"]:
            settings.extend(_told(consumer) for consumer in state.consumers)
        unfinished = state.left_over is not None or (desired.giving_back and state.record is not None) or state.lost
        if not unfinished and all(setting.status == RIGHT for setting in settings):
            unmanaged = (*state.unserved, *state.unmanaged)
            return Plan(tuple(settings), unmanaged=unmanaged, conflicts=state.conflicts)
        from . import plan

        return plan.complete(state, desired, settings, targets, waiting)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        own = [gpu for gpu in state.gpus if gpu.declared]
        effective = {
            gpu.name: {MIG: _mode_text(gpu), INSTANCES: layout_text(gpu.reading.layout, gpu.geometry)} for gpu in own
        }
        boot = {gpu.name: {MIG: _mode_at_boot(gpu, state), INSTANCES: _layout_at_boot(gpu, state)} for gpu in own}
        told = {
            one.need: {"units": list(one.units), "pids": list(one.pids), "files": list(one.files)}
            for one in state.consumers
        }
        return {"gpus": effective, "consumers": told}, {"gpus": boot}


CONCERN = MigLayout()


def _declared(
    entries: Sequence[GpuEntry], readings: Sequence[Reading], record: Mapping[str, str], files: Files
) -> Tuple[Tuple[Gpu, ...], Tuple[Unmanaged, ...]]:
    """The GPUs that are declared, and those that need nothing for it because they have no MIG."""
    try:
        winners = gpus.select([entry.entry for entry in entries], [reading.gpu for reading in readings])
    except DeclarationError:
        _explain_unbound(entries, readings, files)
        raise
    won = [(entries[winner], reading) for reading, winner in zip(readings, winners) if winner is not None]
    without = [reading for entry, reading in won if reading.mode is None and not entry.mig]
    return (
        tuple(_gpu(entry, reading, record.get(reading.gpu.uuid)) for entry, reading in won if reading not in without),
        tuple(Unmanaged(reading.gpu.name, MIG, reading.lacking) for reading in without),
    )


def _explain_unbound(entries: Sequence[GpuEntry], readings: Sequence[Reading], files: Files) -> None:
    from .circumstances import explain_unbound

    there = [reading.gpu.pci_address for reading in readings]
    explain_unbound([entry.entry for entry in entries], files, there=there)


def _gpu(entry: GpuEntry, reading: Reading, recorded: Optional[str]) -> Gpu:
    if reading.mode is None:
        raise DeclarationError(
            "divide a GPU",
            object=reading.gpu.name,
            cause=f"{entry.entry} says mig: enabled, and a {reading.gpu.model} has no MIG ({reading.lacking})",
            hint="take it out of the match, or give it an entry of its own with mig: disabled",
        )
    geometry = geometry_of(reading)
    known = layout_of(recorded, geometry, device_id=reading.device_id)
    if not entry.mig:
        return Gpu(reading, False, (), geometry, known)
    if reading.lacking == TOO_OLD and (entry.layout or entry.instances):
        raise CannotLook("divide a GPU", object=reading.gpu.name, cause=TOO_OLD, hint="update it")
    if not geometry.profiles and (entry.layout or entry.instances):
        raise CannotLook(
            "divide a GPU",
            object=reading.gpu.name,
            cause=f"{reading.lacking}, and this board is not among those that are known",
            hint="declare mig: enabled alone first, and its instances once that is done",
        )
    wanted = resolve(entry, geometry, model=reading.gpu.model, device_id=reading.device_id, gpu=reading.gpu.name)
    return Gpu(reading, True, wanted, geometry, known)


def geometry_of(reading: Reading) -> Geometry:
    """What a GPU can be divided into: as the driver says, or as published while it does not say."""
    if reading.geometry is not None:
        return reading.geometry
    from .boards import geometry_of as published

    return replace(published(reading.device_id) or Geometry(()), three_beside_four=reading.beside)


def layout_of(text: Optional[str], geometry: Geometry, *, device_id: int) -> Optional[Layout]:
    """A recorded layout; None where there is none, or none that this GPU can have."""
    try:
        return None if text is None else parse_layout(text, geometry, device_id=device_id)
    except ValueError:
        return None


def _consumers(host: Host) -> Tuple[Consumer, ...]:
    """Who still knows the instances of before."""
    from .consumers import pending

    return pending(host)


def _uncarried(files: Files) -> str:
    from .._host.boot_service import carries

    return carries(files)


def _conflicts(files: Files) -> Tuple[Conflict, ...]:
    """NVIDIA's own service gives every GPU the layout of its own file at each boot."""
    from .._host import systemd

    if systemd.enabled(files, MIG_MANAGER) != systemd.ENABLED:
        return ()
    place = next(path for path in (f"{folder}/{MIG_MANAGER}" for folder in systemd.FOLDERS) if files.exists(path))
    return (Conflict(MIG_MANAGER, place, None, INSTANCES, "the layout of its own configuration", "them"),)


def _settings_of(gpu: Gpu, target: Layout, state: State, desired: Desired, waiting: Tuple[str, str]) -> List[Setting]:
    rows: List[Tuple[str, Scalar, Scalar, Scalar]] = []
    if gpu.declared:
        rows.append((MIG, ENABLED if gpu.mig else DISABLED, _mode_text(gpu), _mode_at_boot(gpu, state)))
    if gpu.wanted is not None and not gpu.undone:
        now = layout_text(gpu.reading.layout, gpu.geometry)
        rows.append((INSTANCES, layout_text(target, gpu.geometry), now, _layout_at_boot(gpu, state)))
    pending, needs = waiting
    return [
        Setting(
            object=gpu.name,
            setting=setting,
            wanted=wanted,
            effective=effective,
            boot=boot,
            identity=gpu.reading.gpu.uuid,
            effective_matters=desired.params["immediate"],
            boot_matters=desired.params["permanent"] and not desired.giving_back,
            pending=pending if effective != wanted else "",
            needs=needs,
        )
        for setting, wanted, effective, boot in rows
    ]


def _mode_text(gpu: Gpu) -> str:
    current, pending = gpu.reading.mode or (False, False)
    text = ENABLED if current else DISABLED
    return text if current == pending else f"{text}, {ENABLED if pending else DISABLED} after a reset"


def _mode_at_boot(gpu: Gpu, state: State) -> str:
    """Before Hopper the GPU itself keeps the mode; later ones begin without it, and the boot service brings it."""
    kept = not gpu.reading.resetless and bool(gpu.reading.mode and gpu.reading.mode[1])
    brought = gpu.mig if state.same else kept or gpu.recorded is not None
    return ENABLED if (brought if state.carried else kept) else DISABLED


def _layout_at_boot(gpu: Gpu, state: State) -> Scalar:
    """Instances never outlive a boot, so there are those that the boot service makes: at the recorded places.

    The record was written together with the declaration that is on the node.
    """
    if not state.carried or (state.same and gpu.wanted == ()):
        return NONE
    if gpu.recorded is None:
        return None if state.same else NONE
    if state.same and gpu.wanted is not None and not satisfied(gpu.recorded, gpu.wanted):
        return None
    return layout_text(gpu.recorded, gpu.geometry)


def _told(consumer: Consumer) -> Setting:
    """What still knows the layout of before."""
    return Setting(
        object=consumer.name,
        setting=NAME,
        wanted="knows the layout",
        effective="knows the one of before",
        boot="knows the layout",
        identity=consumer.name,
        pending=STALE,
        needs=consumer.need,
    )
