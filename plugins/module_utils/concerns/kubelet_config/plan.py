# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs, and the steps from there: the kubelet stopped, its state files away, the files written, it started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Blocker, Change, Plan, ReplaceFile, RoomAction, Step
from ..._core.declared import WANTED
from ..._core.errors import DeclarationError, InUse, OwnedByAnother
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen, replace
from ..._core.wording import first_of
from ..._kinds.own_files import OTHERS
from ..._linux import cpulist
from . import places, schema
from .checkpoints import misfit, value
from .schema import FIELDS, meaning, shown
from .spec import FAIL, IGNORE, SKIP, WAIT
from .state import CAPACITY, FILE, FITS, HEALTHY, KUBELET, NOTE, SERVICE, STATE, STOPPED

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .state import KubeletDesired, KubeletState

IDLE_NODE = "idle_node"
UNKNOWN = "not known"
SHOWN = 3


@frozen
class ChangeKubelet(RoomAction):
    """Let the kubelet start anew with this ``text`` in ``path``, where that is in ``writes``, and without ``away``.

    It is stopped first where a state file goes; ``runs`` says whether it runs. Where anything fails, or it is not
    healthy in time, the files of NOTE come back. ``healthz`` is the address at which it says how it is, if any.
    """

    programs = ("systemctl",)
    unit: str
    runs: bool
    healthz: str
    seconds: int
    path: str
    text: Optional[str]
    away: Tuple[str, ...] = ()
    writes: Tuple[str, ...] = ()

    @property
    def written(self) -> Tuple[Tuple[str, Optional[str]], ...]:
        return (*((path, self.text) for path in self.writes), *((path, None) for path in self.away))

    @property
    def restarts(self) -> Tuple[str, ...]:
        return (self.unit,) if self.runs else ()


def plan(state: KubeletState, desired: KubeletDesired, scope: Scope) -> Plan:
    if not state.place.there or not (scope.immediate or scope.permanent):
        return Plan(unmanaged=desired.unmanaged)
    rows, misfits = rows_of(state, desired, scope)
    if not scope.restoring:
        # What comes later cuts a period short that the kubelet has.
        _refuse_short_delay(state, desired)
    if all(row.status == IN_SYNC for row in rows):
        return Plan(tuple(rows), (), desired.unmanaged)
    if not scope.restoring:
        _refuse_overruled(state, desired)
    if misfits and not scope.immediate and scope.permanent:
        raise _not_without_start(misfits)
    waiting = _in_the_way(rows, state)
    if waiting and state.declaration.when_busy == SKIP:
        rows = [_later(row, state) for row in rows]
        return Plan(tuple(rows), (), desired.unmanaged)
    blocker = None
    if waiting and state.declaration.when_busy in (FAIL, WAIT):
        blocker = Blocker(
            _in_use(state), float(state.declaration.busy_timeout) if state.declaration.when_busy == WAIT else 0.0
        )
    steps = _steps(state, desired, rows, tuple(misfits))
    return Plan(tuple(rows), steps, desired.unmanaged, blocker=blocker)


def rows_of(state: KubeletState, desired: KubeletDesired, scope: Scope) -> Tuple[List[Setting], Mapping[str, str]]:
    """The settings, and why state files would not fit what is wanted, by path."""
    runs = scope.immediate and state.service is not None and (state.service != STOPPED or state.starts)
    found, before = state.found, state.values
    keys = dict.fromkeys((*desired.ours, *places.our_values(state.place)))
    rows: List[Setting] = []
    for key in keys:
        wanted = value(desired.values, key)
        text = shown(key, wanted)
        effective = None if state.service == STOPPED else UNKNOWN
        if before is not None and state.service != STOPPED:
            effective = _worded(key, value(before, key), wanted)
        rows.append(
            Setting(
                object=KUBELET,
                setting=key,
                wanted=text,
                effective=effective,
                boot=_worded(key, value(found, key), wanted),
                identity=KUBELET,
                effective_matters=runs,
                boot_matters=scope.permanent,
            )
        )
    if scope.permanent:
        rows += _file_rows(state, desired)
    misfits: Dict[str, str] = {}
    online = cpulist.render(state.machine.online)
    for kind, (path, text) in state.checkpoints.items():
        why = misfit(kind, text, desired.values, online, state.machine.nodes)
        if why:
            misfits[path] = why
        row = Setting(path, STATE, FITS, why or FITS, why or FITS, path, effective_matters=runs, boot_matters=False)
        rows.append(row)
    if runs and (state.interrupted or not scope.restoring):
        rows.append(Setting(state.unit, SERVICE, HEALTHY, state.service, None, state.unit, boot_matters=False))
    if runs and not scope.restoring:
        rows += _hugepage_rows(state)
    return rows, misfits


def _worded(key: str, found: Any, wanted: Any) -> str:
    """What was found, in the words of what is wanted where both mean the same."""
    return shown(key, wanted if meaning(key, found) == meaning(key, wanted) else found)


def _file_rows(state: KubeletState, desired: KubeletDesired) -> List[Setting]:
    place = state.place
    goal = WANTED if desired.ours else None
    found = None
    if place.ours is not None:
        same = goal is None or places.whole_text(place, desired.ours) == place.text
        found = WANTED if same else OTHERS
    if goal is None and found is None:
        return []
    return [Setting(place.path, FILE, goal, found, found, place.path, effective_matters=False)]


def _hugepage_rows(state: KubeletState) -> List[Setting]:
    """Pages that came or went after it was started: it counts them once."""
    rows = []
    for name, known in state.hugepages.items():
        wanted = sum(node.hugepages.get(name, 0) for node in state.machine.nodes)
        row = Setting(name, CAPACITY, wanted, known, None, name, boot_matters=False)
        if wanted != known and state.pods:
            row = replace(
                row, pending=f"the kubelet counted them when it was started, and {_pods(state)}", needs=IDLE_NODE
            )
        rows.append(row)
    return rows


def _in_the_way(rows: List[Setting], state: KubeletState) -> bool:
    """Whether pods may lose something by what is to be done, and nobody said that they may."""
    if not state.pods or state.declaration.when_busy == IGNORE:
        return False
    return any(
        row.status != IN_SYNC and (row.setting == STATE or (row.setting in FIELDS and FIELDS[row.setting].drains))
        for row in rows
    )


def _later(row: Setting, state: KubeletState) -> Setting:
    return replace(row, effective_matters=True, boot_matters=False, pending=_pods(state), needs=IDLE_NODE)


def _pods(state: KubeletState) -> str:
    return f"pods that may have CPUs of their own run: {first_of(state.pods, SHOWN)}"


def _in_use(state: KubeletState) -> InUse:
    return InUse(
        "restart {} with other policies or reservations",
        object=state.unit,
        cause=f"{_pods(state)}, which may not be admitted again",
        hint="drain the node, wait with when_busy: wait, or set when_busy: ignore for pods of DaemonSets",
    )


def _not_without_start(misfits: Mapping[str, str]) -> DeclarationError:
    path, why = next(iter(misfits.items()))
    return DeclarationError(
        "change the kubelet for its next start alone",
        cause=f"it would not come up with {path}: {why}",
        hint="set immediate: true, which starts it anew without that file",
    )


def _refuse_overruled(state: KubeletState, desired: KubeletDesired) -> None:
    for key, wanted in desired.ours.items():
        by = state.place.overruler(key)
        counts = value(state.place.values(desired.ours), key)
        if by and meaning(key, counts) != meaning(key, value(desired.values, key)):
            raise OwnedByAnother(
                f"set {key}",
                object=KUBELET,
                cause=f"{by} counts more than {state.place.path}",
                found=shown(key, counts),
                wanted=shown(key, wanted),
                hint="remove it there, declare the same value, or leave it out of the declaration",
            )


def _refuse_short_delay(state: KubeletState, desired: KubeletDesired) -> None:
    grace = desired.ours.get(schema.GRACE)
    if grace is not None and schema.duration(grace) > state.delay.seconds * 1000:
        raise OwnedByAnother(
            f"set {schema.GRACE}",
            object=KUBELET,
            cause=f"{state.delay.path} sets a shorter InhibitDelayMaxSec, and logind reads it after the kubelet's own "
            "drop-in",
            found=state.delay.text,
            wanted=shown(schema.GRACE, grace),
            hint="remove it there, or set it to the grace period at least",
        )


def _steps(
    state: KubeletState, desired: KubeletDesired, rows: List[Setting], misfits: Tuple[str, ...]
) -> Tuple[Step, ...]:
    wrong = [row for row in rows if row.status != IN_SYNC]
    late: List[Change] = [boot_change(row) for row in wrong if row.boot_matters and row.boot != row.wanted]
    now = [
        effective_change(row)
        for row in wrong
        if row.effective_matters and row.effective != row.wanted and not row.pending
    ]
    place = state.place
    text = places.whole_text(place, desired.ours)
    if not (now or late):
        return ()
    if not now:
        return (Step(file_action(place.path, text), tuple(late), probes=(place.path,)),)
    action = ChangeKubelet(
        unit=state.unit,
        runs=state.service != STOPPED,
        healthz=place.healthz,
        seconds=state.declaration.start_timeout,
        path=place.path,
        text=text,
        away=_away(state, wrong, misfits),
        writes=(place.path,) if late else (),
    )
    step = Step(action, (*late, *now), probes=(place.path,) if late else ())
    return (Step(ReplaceFile(NOTE, _note(state)), notes=(NOTE,)), step) if state.service == HEALTHY else (step,)


def _away(state: KubeletState, wrong: List[Setting], misfits: Tuple[str, ...]) -> Tuple[str, ...]:
    """The state files that do not fit, or are about what changes."""
    kinds = {kind for row in wrong if row.setting in FIELDS for kind in FIELDS[row.setting].state}
    return tuple(path for kind, (path, _text) in state.checkpoints.items() if path in misfits or kind in kinds)


def _note(state: KubeletState) -> str:
    texts: Dict[str, Optional[str]] = {state.place.path: state.place.text}
    texts.update(state.checkpoints.values())
    return json.dumps(texts, sort_keys=True) + "\n"
