# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``gpu_settings``: clocks, power limit, ECC, compute mode and time slice of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Tuple

from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.setting import GPU_RESET, IN_SYNC, Scalar, Setting
from ..._kinds import smi_writers
from ..._linux import boot_service
from ..._linux.boot_service import BootCarrier
from ..._nvidia.readings import ask, select
from .driver import GpuReading, read
from .options import OPTIONS
from .spec import DEFAULT, ECC, LOCKS, NAME, SETTINGS, TIME_SLICE, GpuSettingsDeclaration, SettingsEntry, parse
from .state import GpuSettingsDesired, GpuSettingsState, SettingsGpu, WantedSettings

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

RESET = "it takes effect with a reset of the GPU, or a reboot"


class GpuSettings:
    """``convergence.Concern`` for the settings of GPUs."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # It needs what brings its values back at boot.
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "mig_layout", "gpu_virtualization"),
        deadline=DRIVER_DEADLINE,
    )

    def parse(self, params: Mapping[str, Any]) -> GpuSettingsDeclaration:
        entries = parse(params["gpus"])
        return GpuSettingsDeclaration(entries, frozenset(setting for entry in entries for setting in entry.settings))

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> GpuSettingsDeclaration:
        return GpuSettingsDeclaration((), frozenset(setting for _uuid, setting in baseline.values) & set(SETTINGS))

    def observe(self, host: Host, declaration: GpuSettingsDeclaration, scope: Scope) -> GpuSettingsState:
        files, entries, settings = host.files, declaration.entries, declaration.settings
        if not settings and not entries:
            return GpuSettingsState()
        host.nvml.begin()
        carrier = BootCarrier(scope.declared)
        if _takes_the_boot_service(entries):
            carrier = boot_service.carrier(files, scope)
        matches = [entry.entry for entry in entries]
        readings, unserved, missing = ask(host, read, settings, entries=matches, restoring=scope.restoring)
        if readings and TIME_SLICE in settings:
            from .time_slices import with_time_slices

            readings = with_time_slices(readings, host.commands)
        winners, handed_on = select(files, matches, [reading.gpu for reading in readings])
        locks = _locks(files, readings, settings)
        found = []
        for reading, winner in zip(readings, winners):
            wanted = None if winner is None else _wanted(entries[winner], reading)
            effective = {**reading.values, **locks.get(reading.gpu.uuid, {})}
            boot = {
                setting: reading.pending_ecc
                if setting == ECC
                else _at_boot((wanted or {}).get(setting), reading.defaults[setting], carrier)
                for setting in effective
            }
            found.append(SettingsGpu(reading, wanted, effective, boot))
        foreign = smi_writers.read(files, scope)
        return GpuSettingsState(tuple(found), carrier, (*unserved, *handed_on), missing, foreign)

    def resolve(self, declaration: GpuSettingsDeclaration, state: GpuSettingsState) -> GpuSettingsDesired:
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
        lost = tuple(gpu.name for gpu in state.gpus if gpu.reading.gpu.lost)
        return GpuSettingsDesired(tuple(wants), (*state.unserved, *unmanaged), lost)

    def restore(self, baseline: Baseline, state: GpuSettingsState) -> GpuSettingsDesired:
        from . import plan

        return plan.restore(baseline, state)

    def plan(self, state: GpuSettingsState, desired: GpuSettingsDesired, scope: Scope) -> Plan:
        settings = tuple(setting for want in desired.wants for setting in _settings_of(want, scope))
        conflicts: Tuple[Conflict, ...] = ()
        if state.foreign:
            from .foreign import find_conflicts

            conflicts = find_conflicts(state, desired, scope)
        if desired.unresponsive and scope.immediate:
            from ..._nvidia import unresponsive_gpu

            settings += tuple(unresponsive_gpu.setting(name) for name in desired.unresponsive)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            steps = steps_of(state, desired, settings, scope)
        return Plan(
            settings=(*settings, *(desired.unread if scope.immediate else ())),
            steps=steps,
            unmanaged=desired.unmanaged,
            conflicts=conflicts,
        )

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: GpuSettingsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return (
            {"gpus": {gpu.name: dict(gpu.effective) for gpu in state.gpus}},
            {"gpus": {gpu.name: dict(gpu.boot) for gpu in state.gpus}},
        )


CONCERN = GpuSettings()


def _takes_the_boot_service(entries: Tuple[SettingsEntry, ...]) -> bool:
    """Whether something is declared that the driver forgets and does not come back with by itself."""
    return any(setting != ECC and value != DEFAULT for entry in entries for setting, value in entry.settings.items())


def _wanted(entry: SettingsEntry, reading: GpuReading) -> Dict[str, Scalar]:
    return {
        setting: reading.defaults.get(setting) if value == DEFAULT else value
        for setting, value in entry.settings.items()
    }


def _at_boot(wanted: Scalar, default: Scalar, carrier: BootCarrier) -> Scalar:
    """What the boot service makes of a setting: what is declared on the node, and nothing where that is not known."""
    if not carrier.applies_any:
        return default
    if not carrier.applies:
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


def _settings_of(want: WantedSettings, scope: Scope) -> List[Setting]:
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
                effective_matters=scope.immediate,
                boot_matters=kept or scope.carries,
                pending=RESET if kept and effective != value else "",
                needs=GPU_RESET if kept else "",
            )
        )
    return made
