# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``gpu_settings``: clocks, power limit, ECC and compute mode of GPUs, now, at boot, and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Tuple

from ..._core import declared
from ..._core.baseline import load as load_baseline
from ..._core.change import Plan, Step, Unmanaged
from ..._core.errors import CannotLook, DeclarationError
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.setting import GPU_RESET, IN_SYNC, Scalar, Setting
from ..._core.shared_options import SHARED_OPTIONS
from ..._linux.boot_service import why_not_persisted
from ..._nvidia import errors, gpus
from .driver import GpuReading, read
from .options import OPTIONS
from .spec import DEFAULT, ECC, LOCKS, NAME, SETTINGS, SettingsEntry, parse
from .state import GpuSettingsDesired, GpuSettingsState, SettingsGpu, WantedSettings

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.protocols import Files, Host

RESET = "it takes effect with a reset of the GPU, or a reboot"


class GpuSettings:
    """``convergence.Concern`` for the settings of GPUs."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # It needs what brings its values back at boot.
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "mig_layout"),
        deadline=DRIVER_DEADLINE,
    )

    def observe(self, host: Host, params: Mapping[str, Any]) -> GpuSettingsState:
        files = host.files
        absent = params["state"] == "absent"
        entries = () if absent else parse(params["gpus"])
        settings = frozenset(setting for entry in entries for setting in entry.settings)
        if absent:
            settings = frozenset(setting for _uuid, setting in load_baseline(files, NAME).values).intersection(SETTINGS)
        if not settings and not entries:
            return GpuSettingsState()
        host.nvml.begin()
        not_persisted = why_not_persisted(files) if _takes_the_boot_service(entries) else ""
        readings: Tuple[GpuReading, ...] = ()
        unserved: Tuple[Unmanaged, ...] = ()
        try:
            readings = host.nvml.ask(read, settings)
        except CannotLook as error:
            from ..._nvidia import driverless

            if absent and isinstance(error, errors.NoDriver):
                return GpuSettingsState(missing=gpus.UNSERVED)
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
                else _at_boot((wanted or {}).get(setting), reading.defaults[setting], declaration, not_persisted)
                for setting in effective
            }
            found.append(SettingsGpu(reading, wanted, effective, boot))
        return GpuSettingsState(tuple(found), not_persisted, unserved)

    def normalise(self, params: Mapping[str, Any], state: GpuSettingsState) -> GpuSettingsDesired:
        wants: List[WantedSettings] = []
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
                from .plan import lacking

                unmanaged.extend(lacking(gpu, gpu.wanted))
            if any(gpu.effective[setting] != value for setting, value in values.items()):
                from .plan import refuse_impossible

                refuse_impossible(gpu, values)
            wants.append(WantedSettings(gpu, values))
        if params["strict"] and unmanaged:
            first = unmanaged[0]
            raise DeclarationError(
                f"set {first.setting}",
                object=first.object,
                cause=first.reason,
                hint="leave it out, or set strict: false",
            )
        lost = tuple(gpu.name for gpu in state.gpus if gpu.reading.gpu.lost)
        return GpuSettingsDesired(
            tuple(wants), (*state.unserved, *unmanaged), lost, params["immediate"], params["permanent"]
        )

    def restore(self, params: Mapping[str, Any], baseline: Baseline, state: GpuSettingsState) -> GpuSettingsDesired:
        from . import plan

        return plan.restore(params, baseline, state)

    def plan(self, state: GpuSettingsState, desired: GpuSettingsDesired) -> Plan:
        settings = tuple(setting for want in desired.wants for setting in _settings_of(want, desired))
        if desired.unresponsive and desired.immediate:
            from ..._nvidia import unresponsive_gpu

            settings += tuple(unresponsive_gpu.setting(name) for name in desired.unresponsive)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            steps = steps_of(state, desired, settings)
        return Plan(settings=settings, steps=steps, unmanaged=desired.unmanaged)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: GpuSettingsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
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


def _takes_the_boot_service(entries: Tuple[SettingsEntry, ...]) -> bool:
    """Whether something is declared that the driver forgets and does not come back with by itself."""
    return any(setting != ECC and value != DEFAULT for entry in entries for setting, value in entry.settings.items())


def _wanted(entry: SettingsEntry, reading: GpuReading) -> Dict[str, Scalar]:
    return {
        setting: reading.defaults.get(setting) if value == DEFAULT else value
        for setting, value in entry.settings.items()
    }


def _at_boot(wanted: Scalar, default: Scalar, declaration: Scalar, not_persisted: str) -> Scalar:
    """What the boot service makes of a setting: what is declared on the node, and nothing where that is not known."""
    if declaration is None or not_persisted:
        return default
    if declaration != declared.WANTED:
        return None
    return default if wanted is None else wanted


def _locks(files: Files, readings: Tuple[GpuReading, ...], settings: FrozenSet[str]) -> Dict[str, Dict[str, Scalar]]:
    """The locks in effect by UUID, of those that were asked for."""
    asked = [lock for lock in LOCKS if lock in settings]
    if not asked:
        return {}
    from ..._nvidia import reset_counts
    from .locks import holder_of, in_effect, read_record

    record, holder, released = read_record(files), holder_of(files), reset_counts.read(files)
    found = {}
    for reading in readings:
        if not reading.gpu.lost:
            times = released.get(reading.gpu.uuid, 0)
            found[reading.gpu.uuid] = {lock: in_effect(record, reading, lock, holder, times) for lock in asked}
    return found


def _settings_of(want: WantedSettings, desired: GpuSettingsDesired) -> List[Setting]:
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
                boot_matters=kept or (desired.permanent and not desired.restoring),
                pending=RESET if kept and effective != value else "",
                needs=GPU_RESET if kept else "",
            )
        )
    return made
