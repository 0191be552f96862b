# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that set ports and load the module for GPU memory, and what ``state: absent`` restores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Sequence, Tuple, Union

from ..._core.change import Change, Refuse, RoomAction, RunCommand, Step, Unmanaged, WriteAttribute
from ..._core.planning import boot_change, effective_change
from ..._core.setting import Scalar, Setting
from ..._core.value import frozen
from ..._kinds import hotplug
from ..._linux.boot_service import not_persisted
from . import firewalls, lossless
from .devices import MODES, RDMA_CM, Device, Port, text_of
from .gpu_memory import MODULE
from .spec import IN_CONFIGFS, LARGEST_BYTE, PEERMEM, ROCE_MODE, SETTINGS, TRAFFIC_CLASS
from .state import GPU_MEMORY, GPUDIRECT, RdmaDesired, RdmaState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

GONE = "the device is missing, and its values with it"
STAYS = f"{MODULE} stays loaded: memory of GPUs is registered with it"


@frozen
class SetInFolder(RoomAction):
    """Set ports of a device in its folder in configfs, which is made for it, or goes after it where it ``leaves``.

    ``texts`` are files and what each gets. All of it is done, or nothing: without the folder nobody sees what is set.
    """

    device: str
    folder: str
    texts: Tuple[Tuple[str, str], ...]
    leaves: bool

    @property
    def programs(self) -> Tuple[str, ...]:
        return ("rmdir",) if self.leaves else ("mkdir", "rmdir")


@frozen
class LoadPeermem(RoomAction):
    """Load nvidia_peermem, and say what it means where it refuses."""

    programs = ("modprobe",)


def restore(baseline: Baseline, state: RdmaState) -> RdmaDesired:
    """What ``state: absent`` wants. Raises ``ValueError`` on a value that was never there."""
    way = baseline.values.get((GPU_MEMORY, GPUDIRECT))
    if way is not None and way.effective not in (None, PEERMEM):
        raise ValueError(f"{way.effective!r} is not a value of {GPUDIRECT}")
    for settings in state.declaration.before.values():
        for setting, value in settings.items():
            _check(setting, value)
    firewalls.check(state.firewalls.before)
    gone = {port.device.name for port in state.ports for setting in IN_CONFIGFS if _had_no_folder(port, setting)}
    wanted: Dict[str, Mapping[str, Scalar]] = {}
    unmanaged = [
        Unmanaged(identity, setting, GONE)
        for identity in state.missing
        for setting in sorted(state.declaration.before[identity])
    ]
    for port in state.ports:
        # A folder that goes takes all that is in it along.
        wanted[port.name] = {
            setting: None if setting in IN_CONFIGFS and port.device.name in gone else port.declared[setting]
            for setting in port.values
        }
        unmanaged += [Unmanaged(port.name, setting, reason) for setting, reason in port.lacking.items()]
    memory = state.gpu_memory
    unload = state.declaration.unload and memory is not None
    if unload and memory is not None and memory.peermem and memory.in_use:
        unmanaged.append(Unmanaged(GPU_MEMORY, GPUDIRECT, STAYS))
        unload = False
    return RdmaDesired(wanted, None, unload, tuple(unmanaged))


def _had_no_folder(port: Port, setting: str) -> bool:
    return setting in port.declared and port.declared[setting] is None


def _check(setting: str, value: Scalar) -> None:
    known = setting in SETTINGS
    if lossless.is_about(setting):
        right = lossless.is_value(setting, value)
    elif value is None:
        right = known
    elif setting == ROCE_MODE:
        right = value in MODES
    else:
        right = known and isinstance(value, int) and 0 <= value <= LARGEST_BYTE
    if not right:
        raise ValueError(f"{value!r} is not a value of {setting}")


def steps_of(
    state: RdmaState,
    desired: RdmaDesired,
    rows: Sequence[Setting],
    accepted: Sequence[Setting],
    beside: Tuple[Setting, ...],
) -> Tuple[Step, ...]:
    """The steps that bring the rows in sync: the devices, the module, the rules of firewalls (``accepted``), and last
    what the next boot applies.
    """
    differing = [row for row in rows if row.effective_matters and row.effective != row.wanted and not row.pending]
    at_boot = [boot_change(row) for row in rows if row.boot_matters and row.boot != row.wanted]
    steps: List[Step] = []
    if state.carrier.missing and at_boot:
        steps.append(Step(Refuse(not_persisted(state.carrier.missing))))
    in_configfs = [row for row in differing if row.setting in IN_CONFIGFS]
    if state.loads_rdma_cm and any(row.wanted is not None for row in in_configfs):
        steps.append(Step(RunCommand(("modprobe", RDMA_CM), f"load {RDMA_CM}")))
    for device in dict.fromkeys(port.device for port in state.ports):
        ports = [port for port in state.ports if port.device == device]
        steps += _configfs_steps(device, ports, in_configfs)
    known = {port.name: port for port in state.ports}
    for row in differing:
        if row.setting == TRAFFIC_CLASS:
            path = known[row.object].path_of(TRAFFIC_CLASS)
            steps.append(_write(path, TRAFFIC_CLASS, row.wanted, effective_change(row)))
        elif row.setting.startswith(lossless.ECN):
            steps.append(_write(known[row.object].path_of(row.setting), row.setting, row.wanted, effective_change(row)))
        elif lossless.is_about(row.setting):
            action = lossless.command(known[row.object].netdev, row.setting, row.wanted, row.effective)
            steps.append(Step(action, (effective_change(row),)))
        elif row.setting == GPUDIRECT:
            steps.append(Step(_load(row.wanted), (effective_change(row),)))
    steps += firewalls.steps(state.firewalls, accepted)
    if state.later is not None:
        steps += hotplug.steps(state.later, beside, unit=desired.unit, rules=desired.rules)
    if at_boot:
        # The boot service makes them. They come last, so that what the kernel refuses is not declared.
        steps.append(Step(Refuse(None), tuple(at_boot)))
    return tuple(steps)


def _load(wanted: Scalar) -> Union[LoadPeermem, RunCommand]:
    return LoadPeermem() if wanted == PEERMEM else RunCommand(("rmmod", MODULE), f"unload {MODULE}")


def _configfs_steps(device: Device, ports: Sequence[Port], differing: Sequence[Setting]) -> List[Step]:
    """With a folder each by itself. It goes where nobody had made one, and before that its ports get what they started
    with: what is set stays set when the folder goes.
    """
    known = {port.name: port for port in ports}
    rows = [row for row in differing if row.object in known]
    changes = tuple(effective_change(row) for row in rows)
    writes: List[Tuple[str, str]] = []
    if any(row.wanted is None for row in rows):
        for row in rows:
            port = known[row.object]
            before = port.declared[row.setting]
            first = port.starts_with[row.setting] if before is None else before
            if row.effective != first:
                writes.append((port.path_of(row.setting), text_of(row.setting, first)))
        return [Step(SetInFolder(device.name, device.configfs, tuple(writes), leaves=True), changes)]
    if any(row.effective is None for row in rows):
        writes = [(known[row.object].path_of(row.setting), text_of(row.setting, row.wanted)) for row in rows]
        return [Step(SetInFolder(device.name, device.configfs, tuple(writes), leaves=False), changes)]
    return [
        _write(known[row.object].path_of(row.setting), row.setting, row.wanted, change)
        for row, change in zip(rows, changes)
    ]


def _write(path: str, setting: str, value: Scalar, change: Change) -> Step:
    return Step(WriteAttribute(path, text_of(setting, value)), (change,), probes=(path,))
