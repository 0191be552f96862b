# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drivers of functions as settings, and the steps from here to there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.baseline import STATE_FOLDER
from ..._core.change import Blocker, Plan, Refuse, RoomAction, Step, WriteAttribute
from ..._core.errors import InUse
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, REBOOT, Setting
from ..._core.value import frozen
from ..._core.wording import first_of
from ..._kinds import units
from ..._linux import boot_service, systemd
from ..._nvidia.gpus import PCI, VFIO
from . import files as unit_files
from .spec import FAIL, NAME, SKIP, WAIT
from .state import (
    CLIENTS,
    DRIVER,
    FUNCTIONS,
    OVERRIDE,
    VGPUS,
    Function,
    Goal,
    GpuVirtualizationDesired,
    GpuVirtualizationState,
    VgpuGoal,
)
from .vgpus import described, moves

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.setting import Scalar
    from .vgpus import Vgpus

IDLE = "idle_gpu"
COMES = "the IOMMU comes with the next boot"
ENABLED, DISABLED = "enabled", "disabled"
CLOSED, OPEN = "kept away", "let in"
# What the kernel takes for no override.
UNSET = "\n"
SHOWN = 4


@frozen
class Bind(RoomAction):
    """Bind a function to a driver, None for none; one that is in use is refused.

    ``spared`` are the functions that change together, with this one, and the driver that each is to have, where they
    are left as they are while one of them is in use that has yet to change.
    """

    optional_programs = ("modprobe", "nvidia-smi")
    address: str
    driver: Optional[str]
    spared: Tuple[Tuple[str, Optional[str]], ...] = ()


@frozen
class Open(RoomAction):
    """Let new clients use these GPUs again, where they are still bound to the driver that kept them away."""

    optional_programs = ("nvidia-smi",)
    addresses: Tuple[str, ...]


@frozen
class EnableFunctions(RoomAction):
    """Enable the virtual functions of a GPU, or disable them; one that is in use is refused."""

    optional_programs = ("nvidia-smi", "/usr/lib/nvidia/sriov-manage")
    address: str
    enable: bool


@frozen
class MakeVgpus(RoomAction):
    """Let a GPU have as many vGPUs of each type, by its number and name; to remove what is in use is refused."""

    address: str
    types: Tuple[Tuple[int, str, int], ...]


def plan(state: GpuVirtualizationState, desired: GpuVirtualizationDesired, scope: Scope) -> Plan:
    if not (scope.immediate or scope.permanent):
        return Plan()
    waits = _waits(state, desired)
    rows: Dict[str, Tuple[Setting, Setting]] = {}
    for address, goal in desired.goals.items():
        rows[address] = _rows(state.functions[address], goal, state, scope, waits.get(address, ("", REBOOT)))
    beside: List[Setting] = []
    if scope.permanent:
        beside += state.unit.rows_in(desired.text, immediate=scope.immediate)
        if desired.text is not None or state.unit.text is not None:
            start = systemd.DISABLED if desired.text is None else systemd.ENABLED
            now = systemd.ENABLED if state.status == systemd.ENABLED else systemd.DISABLED
            beside += units.start_row(unit_files.UNIT, start, now)
    moving = [address for address, (_override, driver) in rows.items() if _late(driver)]
    closed = [_closed_row(address) for address in state.closed if address not in moving] if scope.immediate else []
    shared = {address: _vgpu_rows(state.vgpus[address], goal, state, scope) for address, goal in desired.vgpus.items()}
    settings = (*beside, *(row for pair in (*rows.values(), *shared.values()) for row in pair), *closed)
    steps: Tuple[Step, ...] = ()
    if any(row.status != IN_SYNC for row in settings):
        # Our unit knows what a function returns to, so that what goes is gone before the unit no longer lists it.
        steps = (
            *_steps(state, desired, rows, bound=False),
            *_boot_steps(state, desired, beside, rows),
            *_steps(state, desired, rows, bound=True),
        )
        steps += tuple(_vgpu_steps(state, desired, shared))
        if closed:
            addresses = tuple(row.object for row in closed)
            steps += (Step(Open(addresses), tuple(map(effective_change, closed))),)
    blocker = _blocker(state, desired, waits) or _vgpu_blocker(state, desired, shared)
    return Plan(settings, steps, desired.unmanaged, state.conflicts, blocker)


def carried(state: GpuVirtualizationState, function: Function) -> bool:
    """Whether our unit binds the function at the next boot."""
    known = state.recorded.get(function.address)
    return state.status == systemd.ENABLED and known is not None and known.ids == function.ids


def at_boot(state: GpuVirtualizationState, function: Function, wanted: Optional[str] = VFIO) -> Optional[str]:
    """The driver that a function has after the next boot. Left alone it has what it is to have, if that is no VFIO."""
    claim = state.claims.get(function.address)
    if carried(state, function):
        return VFIO
    if claim is not None:
        return claim.driver
    if wanted != VFIO:
        return wanted
    known = state.recorded.get(function.address)
    return known.driver if known is not None else None if function.driver == VFIO else function.driver


def _rows(
    function: Function, goal: Goal, state: GpuVirtualizationState, scope: Scope, waits: Tuple[str, str]
) -> Tuple[Setting, Setting]:
    pending, needs = waits
    driver = Setting(
        object=function.address,
        setting=DRIVER,
        wanted=goal.driver,
        effective=function.driver,
        boot=at_boot(state, function, goal.driver),
        identity=function.address,
        effective_matters=scope.immediate,
        boot_matters=scope.carries,
        pending=pending,
        needs=needs,
    )
    override = Setting(
        object=function.address,
        setting=OVERRIDE,
        wanted=goal.override,
        effective=function.override,
        boot=None,
        identity=function.address,
        effective_matters=scope.immediate,
        boot_matters=False,
        pending=pending,
        needs=needs,
    )
    return override, driver


def _vgpu_rows(found: Vgpus, goal: VgpuGoal, state: GpuVirtualizationState, scope: Scope) -> Tuple[Setting, Setting]:
    """Nothing but the boot service brings either back after a boot."""
    busy = _vgpu_users(found, goal)
    pending, needs = (COMES, REBOOT) if state.no_iommu and goal.enabled else ("", IDLE)
    if busy and state.when_busy == SKIP:
        pending = pending or f"in use by {first_of(busy, SHOWN)}"

    def row(setting: str, wanted: Scalar, effective: Scalar) -> Setting:
        return Setting(
            object=found.address,
            setting=setting,
            wanted=wanted,
            effective=effective,
            boot=wanted if state.carrier.applies else None,
            identity=found.address,
            effective_matters=scope.immediate,
            boot_matters=scope.carries,
            pending=pending,
            needs=needs,
        )

    return (
        row(FUNCTIONS, ENABLED if goal.enabled else DISABLED, ENABLED if found.functions else DISABLED),
        row(VGPUS, described(goal.counts), described(found.counts)),
    )


def _vgpu_users(found: Vgpus, goal: VgpuGoal) -> List[str]:
    """Who is in the way: of the GPU where its virtual functions come or go, and of those vGPUs that go."""
    goes, _comes = moves(found, goal.counts)
    names = [name for part in goes for name in part.holders]
    return list(dict.fromkeys([*names, *(found.users if bool(found.functions) != goal.enabled else ())]))


def _vgpu_steps(
    state: GpuVirtualizationState, desired: GpuVirtualizationDesired, shared: Mapping[str, Tuple[Setting, Setting]]
) -> Iterator[Step]:
    late = [boot_change(row) for pair in shared.values() for row in pair if row.boot_matters and row.boot != row.wanted]
    if late:
        yield Step(Refuse(boot_service.not_persisted(state.carrier.missing)), tuple(late))
    for address, (functions, vgpus) in shared.items():
        found, goal = state.vgpus[address], desired.vgpus[address]
        types = [(found.number(name), name, count) for name, count in sorted(goal.counts.items())]
        made = MakeVgpus(address, tuple(types))
        make = [Step(made, (effective_change(vgpus),))] if _late(vgpus) else []
        action = EnableFunctions(address, goal.enabled)
        enable = [Step(action, (effective_change(functions),))] if _late(functions) else []
        yield from (*enable, *make) if goal.enabled else (*make, *enable)


def _vgpu_blocker(
    state: GpuVirtualizationState, desired: GpuVirtualizationDesired, shared: Mapping[str, Tuple[Setting, Setting]]
) -> Optional[Blocker]:
    if state.when_busy == SKIP:
        return None
    for address, pair in shared.items():
        users = _vgpu_users(state.vgpus[address], desired.vgpus[address]) if any(map(_late, pair)) else []
        if users:
            return _blocked(vgpus_in_use(address, users, hint_of(state)), state)
    return None


def vgpus_in_use(address: str, users: Sequence[str], hint: str) -> InUse:
    return InUse("change the vGPUs of {}", object=address, cause=f"in use by {first_of(users, SHOWN)}", hint=hint)


def _closed_row(address: str) -> Setting:
    """A GPU that a run was about to unbind when it was killed. Its identity is a file of ours: no baseline has it."""
    identity = f"{STATE_FOLDER}/{NAME}/{address}"
    return Setting(address, CLIENTS, OPEN, CLOSED, None, identity, boot_matters=False)


def _waits(state: GpuVirtualizationState, desired: GpuVirtualizationDesired) -> Dict[str, Tuple[str, str]]:
    """Why functions stay as they are for now, by address, and what that takes."""
    found: Dict[str, Tuple[str, str]] = {}
    if state.no_iommu:
        found.update({address: (COMES, REBOOT) for address, goal in desired.goals.items() if goal.driver == VFIO})
    if state.when_busy == SKIP:
        for address, names in state.holders.items():
            for other in _together(state, desired, address):
                found.setdefault(other, (f"in use by {first_of(names, SHOWN)}", IDLE))
    return found


def _together(state: GpuVirtualizationState, desired: GpuVirtualizationDesired, address: str) -> Tuple[str, ...]:
    """Of a slot all or nothing changes, and of an IOMMU group, which a virtual machine gets as a whole."""
    one = state.functions[address]
    functions = [state.functions[other] for other in desired.goals]
    return tuple(
        other.address for other in functions if other.slot == one.slot or (one.group and other.group == one.group)
    )


def _boot_steps(
    state: GpuVirtualizationState,
    desired: GpuVirtualizationDesired,
    beside: Sequence[Setting],
    rows: Dict[str, Tuple[Setting, Setting]],
) -> List[Step]:
    """The unit, with which the drivers of the next boot come."""
    wrong = {row.setting: row for row in beside if row.status != IN_SYNC}
    write, reload = state.unit.steps(wrong.get("unit"), desired.text)
    links = [units.start_step(wrong[units.START], state.status)] if units.START in wrong else []
    # systemctl takes links away only while the unit is there.
    steps = [*write, *reload, *links] if desired.text is not None else [*links, *write, *reload]
    late = [boot_change(row) for _override, row in rows.values() if row.boot_matters and row.boot != row.wanted]
    if late and steps:
        steps[-1] = Step(steps[-1].action, (*steps[-1].changes, *late), probes=steps[-1].probes)
    return steps


def _steps(
    state: GpuVirtualizationState,
    desired: GpuVirtualizationDesired,
    rows: Dict[str, Tuple[Setting, Setting]],
    *,
    bound: bool,
) -> List[Step]:
    """Those of functions that are to be ``bound`` for virtual machines, or of the others."""
    steps = []
    for address, (override, driver) in rows.items():
        if (driver.wanted == VFIO) != bound:
            continue
        path = f"{PCI}/{address}/driver_override"
        if _late(override):
            value = UNSET if override.wanted is None else str(override.wanted)
            steps.append(Step(WriteAttribute(path, value), (effective_change(override),), probes=(path,)))
        if _late(driver):
            wanted = None if driver.wanted is None else str(driver.wanted)
            others = _together(state, desired, address) if state.when_busy == SKIP else ()
            spared = tuple((other, desired.goals[other].driver) for other in others)
            steps.append(Step(Bind(address, wanted, spared), (effective_change(driver),), probes=(path,)))
    return steps


def _late(row: Setting) -> bool:
    return row.effective_matters and row.effective != row.wanted and not row.pending


def _blocker(
    state: GpuVirtualizationState, desired: GpuVirtualizationDesired, waits: Mapping[str, Tuple[str, str]]
) -> Optional[Blocker]:
    """Who uses what would be unbound: the kernel would wait for them, with the process that asked, for ever."""
    busy = {address: names for address, names in state.holders.items() if address in desired.goals}
    error = in_use({address: names for address, names in busy.items() if address not in waits}, hint_of(state))
    return None if error is None else _blocked(error, state)


def _blocked(error: InUse, state: GpuVirtualizationState) -> Blocker:
    return Blocker(error, state.busy_timeout if state.when_busy == WAIT else 0.0)


def hint_of(state: GpuVirtualizationState) -> str:
    return f"nothing was changed; end them{', or set when_busy: wait or skip' if state.when_busy == FAIL else ''}"


def in_use(holders: Mapping[str, Tuple[str, ...]], hint: str) -> Optional[InUse]:
    """The error for functions that are in use, by address; None where none is."""
    if not holders:
        return None
    names = list(dict.fromkeys(name for of_one in holders.values() for name in of_one))
    return InUse("unbind {}", object=", ".join(holders), cause=f"in use by {first_of(names, SHOWN)}", hint=hint)
