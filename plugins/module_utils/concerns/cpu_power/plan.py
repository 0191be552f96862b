# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that sets the CPUs, those that see to CPUs which come later, and what ``state: absent`` restores."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from ..._core.change import Blocker, Change, Plan, Refuse, RoomAction, Step, Unmanaged
from ..._core.declared import path_of
from ..._core.errors import InUse, OwnedByAnother
from ..._core.planning import boot_change, effective_change
from ..._core.regex import regex
from ..._core.setting import EFFECTIVE, Setting
from ..._core.value import frozen
from ..._kinds import hotplug
from ..._linux.boot_service import not_persisted
from ..._linux.cpus import FOLDER
from . import later
from .spec import (
    CPUS,
    EPP,
    FAIL,
    GOVERNOR,
    IDLE_STATE,
    NAME,
    OFF,
    ON,
    POLICY_BOOST,
    SETTINGS,
    SMT,
    TURBO,
    WAIT,
)
from .state import (
    FILES,
    MAX_PCT,
    MIN_PCT,
    PCT_FILES,
    SMT_CONTROL,
    CpuPowerDesired,
    CpuPowerState,
    by_cpu,
    described,
)

ORDER = (SMT, TURBO, POLICY_BOOST, MIN_PCT, MAX_PCT, *(setting for setting in SETTINGS if setting not in (SMT, TURBO)))
GONE = "the driver that has the CPUs now does not have it"
SHOWN = 3

_WORD, _NUMBER = regex(r"[a-z][a-z_]*"), regex(r"[0-9]{1,9}")
_SWITCH = regex(r"on|off|[0-9]{1,3}")
_VALUES = {SMT: _SWITCH, GOVERNOR: _WORD, EPP: regex(r"[a-z][a-z_]*|[0-9]{1,3}")}


@frozen
class SetCpus(RoomAction):
    """Give all CPUs that are online their values, in this order: texts that ``state.value_of`` reads.

    A CPU that comes online meanwhile gets those that are one for all.
    """

    texts: Tuple[Tuple[str, str], ...]


def restore(state: CpuPowerState) -> CpuPowerDesired:
    """What ``state: absent`` wants: the values from before the first change.

    Raises ``ValueError`` on one that no CPU ever had.
    """
    texts: Dict[str, str] = {}
    unmanaged: List[Unmanaged] = []
    for setting, text in state.declaration.values.items():
        _check(setting, text)
        if setting in state.found:
            texts[setting] = text
        else:
            unmanaged.append(Unmanaged(CPUS, setting, GONE))
    return CpuPowerDesired({setting: texts[setting] for setting in in_order(texts)}, tuple(unmanaged))


def in_order(texts: Mapping[str, str]) -> Tuple[str, ...]:
    """The settings in the order in which they are written, idle states last."""
    known = [setting for setting in ORDER if setting in texts]
    return (*known, *sorted(setting for setting in texts if setting not in ORDER))


def _check(setting: str, text: str) -> None:
    is_known = setting in ORDER or setting.startswith(IDLE_STATE)
    values = by_cpu(text) or {0: text}
    switch = setting == TURBO or setting.startswith(IDLE_STATE)
    for value in values.values():
        fits = value in (ON, OFF) if switch else _VALUES.get(setting, _NUMBER).fullmatch(value) is not None
        if not is_known or not fits:
            raise ValueError(f"{value!r} is not a value of {setting}")


def complete(
    state: CpuPowerState,
    desired: CpuPowerDesired,
    rows: Sequence[Setting],
    squeezed: Sequence[Setting],
    beside: Tuple[Setting, ...],
) -> Plan:
    """The plan that makes ``rows`` right, and the files ``beside`` them."""
    differing = [row for row in rows if row.effective_matters and row.effective != row.wanted and not row.pending]
    changes: List[Change] = [effective_change(row) for row in differing]
    names = {row.setting for row in differing}
    if TURBO in names:
        changes += _squeezed_changes(state, squeezed)
    at_boot = [boot_change(row) for row in rows if row.boot_matters and row.boot != row.wanted]
    waiting = {row.setting for row in rows if row.pending}
    texts = tuple((one, desired.texts[one]) for one in in_order(desired.texts) if one not in waiting)
    coming = [row for row in differing if row.setting == SMT and row.wanted != OFF]
    if coming and state.kept_off:
        raise _kept_off()
    steps: List[Step] = []
    if state.carrier.missing and at_boot:
        steps.append(Step(Refuse(not_persisted(state.carrier.missing))))
    # CPUs that come online start the unit, which must find the new declaration, or be gone: so they come last.
    arriving = [change for change in changes if coming and change.setting == SMT]
    others = [change for change in changes if change not in arriving]
    if others or at_boot:
        of_others = tuple(entry for entry in texts if not coming or entry[0] != SMT)
        action = SetCpus(of_others if others else ())
        there = [row for row in differing if row not in coming]
        steps.append(Step(action, (*others, *at_boot), probes=_probes(there, state)))
    if state.later is not None:
        rules = later.rules_text(desired.unit)
        steps += hotplug.steps(state.later, beside, unit=desired.unit, rules=rules)
    if arriving:
        # All of them again, for the CPUs that come have none yet.
        steps.append(Step(SetCpus(texts), tuple(arriving), probes=_probes(coming, state)))
    blocker = _blocker(state) if SMT in names and state.jobs else None
    return Plan((*rows, *squeezed, *beside), tuple(steps), blocker=blocker)


def _kept_off() -> OwnedByAnother:
    return OwnedByAnother(
        "enable SMT on {}",
        object=CPUS,
        cause=f"{path_of(NAME)} has it off, and {later.UNIT} applies that to CPUs that come online",
        hint="set permanent: true",
    )


def _squeezed_changes(state: CpuPowerState, squeezed: Sequence[Setting]) -> List[Change]:
    """What the frequencies will be without turbo, where the driver says its nominal one; the look after it tells."""
    changes = []
    for row in squeezed:
        before = state.found[row.setting]
        # The switch of the machine moves those of all policies.
        after = dict.fromkeys(before, "0") if row.setting == POLICY_BOOST else dict(before)
        for cpu, value in before.items() if row.setting != POLICY_BOOST else ():
            _low, high, base = state.limits.get(cpu, (0, 0, 0))
            if base:
                after[cpu] = str(min(int(value), base * 100 // high if row.setting == MIN_PCT else base))
        if after != before:
            changes.append(Change(CPUS, row.setting, row.effective, described(after), EFFECTIVE))
    return changes


def _probes(differing: Sequence[Setting], state: CpuPowerState) -> Tuple[str, ...]:
    """One file of the kernel that is about to be written, if any."""
    for row in differing[:1]:
        cpu = min(state.found[row.setting])
        if row.setting in FILES:
            return (f"{FOLDER}/cpu{cpu}/{FILES[row.setting]}",)
        if row.setting == SMT or row.setting in PCT_FILES:
            return (PCT_FILES.get(row.setting, SMT_CONTROL),)
        if row.setting.startswith(IDLE_STATE):
            number = next(one.number for one in state.idle[cpu] if one.setting == row.setting)
            return (f"{FOLDER}/cpu{cpu}/cpuidle/state{number}/disable",)
    return ()


def _blocker(state: CpuPowerState) -> Blocker:
    """Jobs that would lose half of the CPUs that they were given."""
    declaration = state.declaration
    shown = list(state.jobs[:SHOWN])
    if len(state.jobs) > SHOWN:
        shown.append(f"{len(state.jobs) - SHOWN} more")
    ways = "drain the node or wait for them"
    if declaration.when_busy == FAIL:
        ways += ", or set when_busy: wait or skip"
    error = InUse(
        "disable SMT on {}",
        object=CPUS,
        cause=f"{', '.join(shown)} would lose every second CPU",
        hint=f"nothing was changed; {ways}",
    )
    return Blocker(error, float(declaration.busy_timeout) if declaration.when_busy == WAIT else 0.0)
