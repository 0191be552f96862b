# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that set interfaces, in an order that the kernel takes, and what ``state: absent`` restores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Sequence, Tuple

from ..._core.change import (
    Change,
    Refuse,
    RemoveFile,
    ReplaceFile,
    RoomAction,
    RunCommand,
    Step,
    Unmanaged,
    WriteAttribute,
)
from ..._core.planning import boot_change, effective_change
from ..._core.setting import Scalar, Setting
from ..._core.value import frozen, replace
from ..._kinds import hotplug
from ..._linux.boot_service import not_persisted
from . import ethtool
from .refusals import refuse_impossible, undone
from .spec import CHANNELS, COALESCING, ETHTOOL, FEATURES, FUNCTIONS, MTU, OFF, ON, PAUSE, RINGS
from .state import Interface, NicSettingsDesired, NicSettingsState
from .way_back import CONFIRMATION, RECORD, UNDONE, WAITS, Undo, WayBack, text_of

if TYPE_CHECKING:
    from ..._core.change import Plan
    from ..._core.protocols import Host

GOALS = {
    CHANNELS: "set the channels of {}",
    RINGS: "set the rings of {}",
    COALESCING: "set the coalescing of {}",
    PAUSE: "set the flow control of {}",
    FEATURES: "set the offloads of {}",
}
GONE = "the interface is missing, and so are its values"
LOST = "the driver that the interface has now does not support this setting"


@frozen
class BeginWayBack(RoomAction):
    """Let systemd undo these changes after so many seconds, whatever becomes of this run."""

    programs = ("systemd-run", "systemctl")
    way_back: WayBack
    seconds: int

    def followed_by(self, plan: Plan, host: Host) -> Tuple[str, ...]:
        return (CONFIRMATION,)


@frozen
class NoteMade(RoomAction):
    """Note that the changes have been made by now: what was connected before proves nothing of them."""


@frozen
class SetFunctions(RoomAction):
    """Give a card another number of virtual functions than it has. From one to another it goes only by way of none."""

    path: str
    before: Scalar
    number: Scalar


@frozen
class EndWayBack(RoomAction):
    """Call it off: the changes stay. ``made``: all of them were in effect."""

    programs = ("systemctl",)
    optional_programs = ("ethtool",)
    made: bool


def restore(state: NicSettingsState) -> NicSettingsDesired:
    """What ``state: absent`` wants. Raises ``ValueError`` on a value that no interface ever had."""
    for settings in state.declaration.before.values():
        for setting, value in settings.items():
            _check(setting, value)
    wanted = {interface.name: dict(interface.wanted) for interface in state.interfaces}
    for interface in state.interfaces:
        if interface.differing:
            refuse_impossible(interface, state)
    unmanaged = [
        Unmanaged(identity, setting, GONE)
        for identity in state.missing
        for setting in sorted(state.declaration.before[identity])
    ]
    unmanaged += [
        Unmanaged(interface.name, setting, LOST)
        for interface in state.interfaces
        for setting in sorted(interface.declared.keys() - interface.values.keys())
    ]
    return NicSettingsDesired(wanted, tuple(unmanaged))


def _check(setting: str, value: Scalar) -> None:
    known = ETHTOOL.get(setting)
    is_number = setting in (MTU, FUNCTIONS) or (known is not None and known.form != "switch")
    if isinstance(value, int) is not is_number or (not is_number and value not in (ON, OFF)):
        raise ValueError(f"{value!r} is not a value of {setting}")


def steps_of(
    state: NicSettingsState,
    desired: NicSettingsDesired,
    rows: Sequence[Setting],
    confirmations: Sequence[Setting],
    beside: Tuple[Setting, ...],
) -> Tuple[Step, ...]:
    """The steps that make the rows right, those that confirm an earlier change first."""
    differing = [row for row in rows if row.effective_matters and row.effective != row.wanted and not row.pending]
    at_boot = [boot_change(row) for row in rows if row.boot_matters and row.boot != row.wanted]
    steps: List[Step] = []
    if state.carrier.missing and at_boot:
        steps.append(Step(Refuse(not_persisted(state.carrier.missing))))
    ending = [effective_change(row) for row in confirmations if not row.pending]
    known = state.way_back
    again = _made_again(state, differing)
    if known is not None and again and not known.told:
        # Once it was said, the next run tries it again.
        told = text_of(replace(known, told=True))
        return (Step(ReplaceFile(RECORD, told, 0o600)), Step(Refuse(undone(known))))
    if ending:
        end = EndWayBack(state.made) if state.undone == WAITS else RemoveFile(RECORD)
        steps.append(Step(end, tuple(ending)))
    undo = _undo(state, differing)
    if undo:
        earlier = known.changes if known is not None and state.undone == WAITS and not ending else ()
        way_back = WayBack(_ordered(state, _joined(earlier, undo)))
        steps.append(Step(BeginWayBack(way_back, state.declaration.confirm_timeout)))
    steps += _mtu_steps(state, differing)
    for interface in state.interfaces:
        steps += _ethtool_steps(interface, differing)
        steps += _functions_steps(interface, differing)
    if undo:
        steps.append(Step(NoteMade()))
    if again and not undo:
        # On a way that nobody comes by.
        steps.append(Step(RemoveFile(RECORD)))
    if state.later is not None:
        steps += hotplug.steps(state.later, beside, unit=desired.unit, rules=desired.rules)
    if at_boot:
        # The boot service makes them. They come last, so that what the kernel refuses is not declared.
        steps.append(Step(Refuse(None), tuple(at_boot)))
    return tuple(steps)


def _made_again(state: NicSettingsState, differing: Sequence[Setting]) -> bool:
    """Whether something is about to be changed that was undone."""
    if state.way_back is None or state.undone != UNDONE:
        return False
    return bool(state.way_back.undoes() & {(row.identity, row.setting, row.wanted) for row in differing})


def _undo(state: NicSettingsState, differing: Sequence[Setting]) -> Tuple[Undo, ...]:
    """What must have a way back: what the connection of this run passes."""
    login = state.login
    return tuple(
        Undo(row.object, row.identity, row.setting, row.effective, row.wanted)
        for row in differing
        if login is not None and login.passes(row.object) and row.setting != FUNCTIONS
    )


def _joined(earlier: Sequence[Undo], undo: Sequence[Undo]) -> Tuple[Undo, ...]:
    """With what waits already: of a setting that changed twice, the value from before both comes back."""
    changes: Dict[Tuple[str, str], Undo] = {(one.interface, one.setting): one for one in earlier}
    for one in undo:
        first = changes.get((one.interface, one.setting), one)
        changes[(one.interface, one.setting)] = replace(one, before=first.before)
    return tuple(changes.values())


def _ordered(state: NicSettingsState, changes: Sequence[Undo]) -> Tuple[Undo, ...]:
    """In an order in which the kernel takes them back: see ``_mtu_steps``."""
    known = {interface.name: interface for interface in state.interfaces}
    less = [one for one in changes if one.setting == MTU and _number(one.before) < _number(one.after)]
    more = [one for one in changes if one not in less]
    return (
        *sorted(less, key=lambda one: -_height(one.interface, known)),
        *sorted(more, key=lambda one: _height(one.interface, known)),
    )


def _mtu_steps(state: NicSettingsState, differing: Sequence[Setting]) -> List[Step]:
    """What gets less goes from the top down, and then what gets more from the bottom up: none may exceed what it is on.

    A bond takes its ports along.
    """
    known = {interface.name: interface for interface in state.interfaces}
    resized = {row.object: row for row in differing if row.setting == MTU}
    along: Dict[str, List[Change]] = {}
    for name, row in resized.items():
        if known[name].link.bond in resized:
            along.setdefault(known[name].link.bond, []).append(effective_change(row))
    own = [row for name, row in resized.items() if known[name].link.bond not in resized]
    less = [row for row in own if _number(row.wanted) < _number(row.effective)]
    more = [row for row in own if row not in less]
    ordered = (
        *sorted(less, key=lambda row: -_height(row.object, known)),
        *sorted(more, key=lambda row: _height(row.object, known)),
    )
    return [_write(known[row.object].link.mtu_path, row, along.get(row.object, ())) for row in ordered]


def _number(value: Scalar) -> int:
    return value if isinstance(value, int) else 0


def _height(name: str, known: Mapping[str, Interface]) -> int:
    """How many interfaces lie below this one, as far as they are known."""
    interface = known.get(name)
    return 0 if interface is None else 1 + max((_height(lower, known) for lower in interface.link.lowers), default=0)


def _write(path: str, row: Setting, along: Sequence[Change] = ()) -> Step:
    return Step(WriteAttribute(path, str(row.wanted)), (effective_change(row), *along), probes=(path,))


def _ethtool_steps(interface: Interface, differing: Sequence[Setting]) -> List[Step]:
    """One call for what is set together."""
    by_group: Dict[str, List[Setting]] = {}
    for row in differing:
        if row.object == interface.name and row.setting not in (MTU, FUNCTIONS):
            by_group.setdefault(ethtool.group_of(row.setting), []).append(row)
    steps = []
    for group in (name for name in GOALS if name in by_group):
        rows = by_group[group]
        argv = ethtool.command(interface.name, group, [(row.setting, row.wanted) for row in rows])
        changes: Tuple[Change, ...] = tuple(effective_change(row) for row in rows)
        steps.append(Step(RunCommand(argv, GOALS[group].format(interface.name)), changes))
    return steps


def _functions_steps(interface: Interface, differing: Sequence[Setting]) -> List[Step]:
    path = interface.link.functions_path
    return [
        Step(SetFunctions(path, row.effective, row.wanted), (effective_change(row),), probes=(path,))
        for row in differing
        if (row.object, row.setting) == (interface.name, FUNCTIONS)
    ]
