# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``gpu_settings``: clocks, power limit, ECC and compute mode of GPUs, now, at boot, and as declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

from .._core import declared
from .._core.change import GPU_RESET, RIGHT, Plan, Setting, Step, Unmanaged
from .._core.errors import CannotLook, DeclarationError, Scalar
from .._core.road import SHARED_OPTIONS
from .._host import gpus
from .._host.gpus import NOT_THERE
from .settings_driver import Reading, read
from .settings_spec import DEFAULT, ECC, LOCKS, NAME, OPTIONS, SETTINGS, GpuEntry, parse

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Files, Host

RESET = "a reset of the GPU brings it, and so does a reboot"


@dataclass(frozen=True)
class Gpu:
    """One GPU: what the driver says, and its settings in effect and after the next boot.

    ``wanted`` is what the entry that wins it declares, with None for a default that the driver does not say.
    """

    reading: Reading
    wanted: Optional[Mapping[str, Scalar]]
    effective: Mapping[str, Scalar]
    boot: Mapping[str, Scalar]

    @property
    def name(self) -> str:
        return self.reading.gpu.name


@dataclass(frozen=True)
class State:
    """What was seen. ``uncarried`` says why the next boot does not apply the declaration, and is empty otherwise.

    ``unserved`` is what nobody can set because there is no driver, and ``missing`` why a GPU is not seen.
    """

    gpus: Tuple[Gpu, ...] = ()
    uncarried: str = ""
    unserved: Tuple[Unmanaged, ...] = ()
    missing: str = NOT_THERE


@dataclass(frozen=True)
class Want:
    """The values that one GPU shall have, in the order of setting."""

    gpu: Gpu
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class Desired:
    """The declaration on this machine. ``lost`` are the names of GPUs that do not answer.

    ``giving_back`` is ``state: absent``.
    """

    wants: Tuple[Want, ...]
    unmanaged: Tuple[Unmanaged, ...] = ()
    lost: Tuple[str, ...] = ()
    immediate: bool = True
    permanent: bool = True
    giving_back: bool = False


class GpuSettings:
    """``road.Concern`` for the settings of GPUs."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        files = host.files
        absent = params["state"] == "absent"
        entries = () if absent else parse(params["gpus"])
        settings = frozenset(setting for entry in entries for setting in entry.settings)
        if absent:
            from .._core import before

            settings = frozenset(setting for _uuid, setting in before.load(files, NAME).found).intersection(SETTINGS)
        if not settings and not entries:
            return State()
        host.nvml.begin()
        uncarried = _uncarried(files) if _takes_the_boot_service(entries) else ""
        readings: Tuple[Reading, ...] = ()
        unserved: Tuple[Unmanaged, ...] = ()
        try:
            readings = host.nvml.ask(read, settings)
        except CannotLook as error:
            from .._host import driverless, nvml

            if absent and isinstance(error, nvml.NoDriver):
                return State(missing=gpus.UNSERVED)
            unserved = driverless.unserved(error, [entry.entry for entry in entries], files)
        winners = gpus.select([entry.entry for entry in entries], [reading.gpu for reading in readings])
        declaration = self._declaration(files, params)
        locks = _locks(files, readings, settings)
        found = []
        for reading, winner in zip(readings, winners):
            wanted = None if winner is None else _wanted(entries[winner], reading)
            effective = {**reading.values, **locks.get(reading.gpu.uuid, {})}
            boot = {
                setting: reading.pending_ecc
                if setting == ECC
                else _at_boot((wanted or {}).get(setting), reading.defaults[setting], declaration, uncarried)
                for setting in effective
            }
            found.append(Gpu(reading, wanted, effective, boot))
        return State(tuple(found), uncarried, unserved)

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        wants: List[Want] = []
        unmanaged: List[Unmanaged] = []
        for gpu in state.gpus:
            if gpu.wanted is None:
                continue
            values = {
                setting: value
                for setting, value in gpu.wanted.items()
                if setting in gpu.effective and value is not None
            }
            if len(values) < len(gpu.wanted):
                from .settings_plan import lacking

                unmanaged.extend(lacking(gpu, gpu.wanted))
            if any(gpu.effective[setting] != value for setting, value in values.items()):
                from .settings_plan import refuse_impossible

                refuse_impossible(gpu, values)
            wants.append(Want(gpu, values))
        if params["strict"] and unmanaged:
            first = unmanaged[0]
            raise DeclarationError(
                f"set {first.setting}",
                object=first.object,
                cause=first.reason,
                hint="leave it out, or say strict: false",
            )
        lost = tuple(gpu.name for gpu in state.gpus if gpu.reading.gpu.lost)
        return Desired(tuple(wants), (*state.unserved, *unmanaged), lost, params["immediate"], params["permanent"])

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        from . import settings_plan

        return settings_plan.restore(params, found, state)

    def plan(self, state: State, desired: Desired) -> Plan:
        settings = tuple(setting for want in desired.wants for setting in _settings_of(want, desired))
        if desired.lost and desired.immediate:
            from .._host import lost

            settings += tuple(lost.setting(name) for name in desired.lost)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != RIGHT for setting in settings):
            from .settings_plan import steps_of

            steps = steps_of(state, desired, settings)
        return Plan(settings=settings, steps=steps, unmanaged=desired.unmanaged)

    def perform(self, step: Step, host: Host) -> None:
        from . import settings_apply

        settings_apply.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return (
            {"gpus": {gpu.name: dict(gpu.effective) for gpu in state.gpus}},
            {"gpus": {gpu.name: dict(gpu.boot) for gpu in state.gpus}},
        )

    def _declaration(self, files: Files, params: Mapping[str, Any]) -> Scalar:
        """Whether the declaration on the node is this one: ``declared.WANTED``, None for none, or another."""
        if params["state"] == "absent":
            return declared.plan_absent(files, NAME)[0].boot
        return declared.plan_present(files, self, params, SHARED_OPTIONS)[0].boot


CONCERN = GpuSettings()


def _takes_the_boot_service(entries: Tuple[GpuEntry, ...]) -> bool:
    """Whether something is declared that the driver forgets and does not come back with by itself."""
    return any(setting != ECC and value != DEFAULT for entry in entries for setting, value in entry.settings.items())


def _uncarried(files: Files) -> str:
    from .._host.boot_service import carries

    return carries(files)


def _wanted(entry: GpuEntry, reading: Reading) -> Dict[str, Scalar]:
    return {
        setting: reading.defaults.get(setting) if value == DEFAULT else value
        for setting, value in entry.settings.items()
    }


def _at_boot(wanted: Scalar, default: Scalar, declaration: Scalar, uncarried: str) -> Scalar:
    """What the boot service makes of a setting: what is declared on the node, and nothing where that is not known."""
    if declaration is None or uncarried:
        return default
    if declaration != declared.WANTED:
        return None
    return default if wanted is None else wanted


def _locks(files: Files, readings: Tuple[Reading, ...], settings: FrozenSet[str]) -> Dict[str, Dict[str, Scalar]]:
    """The locks in effect by UUID, of those that were asked for."""
    asked = [lock for lock in LOCKS if lock in settings]
    if not asked:
        return {}
    from .._host import releases
    from .settings_locks import holder_of, in_effect, read_record

    record, holder, released = read_record(files), holder_of(files), releases.read(files)
    found = {}
    for reading in readings:
        if not reading.gpu.lost:
            times = released.get(reading.gpu.uuid, 0)
            found[reading.gpu.uuid] = {lock: in_effect(record, reading, lock, holder, times) for lock in asked}
    return found


def _settings_of(want: Want, desired: Desired) -> List[Setting]:
    made = []
    for setting, value in want.values.items():
        effective = want.gpu.effective[setting]
        kept = setting == ECC
        made.append(
            Setting(
                object=want.gpu.name,
                setting=setting,
                wanted=value,
                effective=effective,
                boot=want.gpu.boot[setting],
                identity=want.gpu.reading.gpu.uuid,
                effective_matters=desired.immediate,
                boot_matters=kept or (desired.permanent and not desired.giving_back),
                pending=RESET if kept and effective != value else "",
                needs=GPU_RESET if kept else "",
            )
        )
    return made
