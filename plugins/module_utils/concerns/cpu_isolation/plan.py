# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From slices and services as they are to those that are confined, or that are as others have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, List, Optional, Sequence, Tuple

from ..._core.change import US, Blocker, Change, Conflict, Plan, RoomAction, Step
from ..._core.errors import DeclarationError, InUse, OwnedByAnother
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._linux import cpulist, cpusets, systemd
from .spec import HOUSEKEEPING, OPTION, SKIP, WAIT
from .state import CPUS, NAME, SLICE, ConfinedSlice, CpuIsolationDesired, CpuIsolationState, Daemon, shown

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._kinds.units import UnitFile

SHOWN = 3


@frozen
class ApplySlices(RoomAction):
    """Let systemd give slices the CPUs that it has read."""

    programs = ("systemd-run",)
    names: Tuple[str, ...]


@frozen
class ReleaseCpus(RoomAction):
    """Take from a control group the CPUs that it is limited to, before systemd hears that no file asks for them.

    ``possible`` are all that the machine may have.
    """

    folder: str
    possible: FrozenSet[int]


def plan(state: CpuIsolationState, desired: CpuIsolationDesired, scope: Scope) -> Plan:
    conflicts: Tuple[Conflict, ...] = ()
    if desired.slices:
        refuse_owners(state, desired)
        refuse_affinities(state, desired)
        conflicts = _conflicts(state, desired)
    blocked = _blocked(state, desired)
    left_out = tuple(blocked) if desired.when_busy == SKIP else ()
    rows: List[Setting] = []
    files: Dict[str, List[Setting]] = {}
    texts = {name: _text(name, desired) for name in (*state.slices, *state.daemons)}
    for name, found in state.slices.items():
        if name in left_out:
            rows.append(_skipped(found, desired, blocked[name]))
            continue
        rows += _slice_rows(found, state, desired, scope)
        files[name] = found.file.rows_in(texts[name], immediate=scope.immediate)
    for name, daemon in state.daemons.items():
        rows += _daemon_rows(daemon, state, desired, scope)
        files[name] = daemon.file.rows_in(texts[name], immediate=scope.immediate)
    settings = (*rows, *(row for of_unit in files.values() for row in of_unit))
    steps: Tuple[Step, ...] = ()
    if any(row.status != IN_SYNC for row in settings):
        steps = tuple(_steps(state, rows, files, texts))
    blocker = None if desired.when_busy == SKIP or not blocked else _blocker(blocked, desired)
    return Plan(settings, steps, desired.unmanaged, conflicts, blocker)


def refuse_owners(state: CpuIsolationState, desired: CpuIsolationDesired) -> None:
    """Raises where somebody else decides about the same CPUs, slices or services, or works below a slice."""
    cpus = next(iter(desired.slices.values()))
    for claim in state.isolated:
        both = claim.cpus & cpus
        if both:
            raise OwnedByAnother(
                "give {} to the system",
                object=f"CPUs {cpulist.render(both)}",
                cause=f"{claim.owner} isolates them by {claim.name}",
                found=f"{claim.name}={claim.text}",
                wanted=f"{OPTION} {cpulist.render(cpus)}",
                hint=f"take them out of one of the two lists; {OPTION} are those for the system",
            )
    for name in desired.slices:
        for reason in state.launchers.get(name, ()):
            raise DeclarationError(
                "confine {}",
                object=name,
                cause=f"jobs or containers would be confined with it, since {reason}",
                hint="list the services to confine in daemons, which leaves this slice as it is",
            )
        path, value = state.slices[name].later
        if path:
            raise OwnedByAnother(
                "set CPUs",
                object=name,
                cause=f"{path} is read after {state.slices[name].file.path} and sets AllowedCPUs= too",
                found=f"AllowedCPUs={value}",
                wanted=shown(desired.slices[name]),
                hint="remove that line, or leave the slice out of the declaration",
            )
    for name in desired.daemons:
        daemon = state.daemons[name]
        if daemon.later:
            raise OwnedByAnother(
                "set the slice",
                object=name,
                cause=f"{daemon.later} is read after {daemon.file.path} and sets Slice= too",
                found=daemon.boot,
                wanted=HOUSEKEEPING,
                hint="remove that line, or leave the service out of the declaration",
            )


def refuse_affinities(state: CpuIsolationState, desired: CpuIsolationDesired) -> None:
    """Raises where services could not start any more, because of the CPUs to which they bind themselves."""
    if not any(state.affinities.values()):
        return
    from ..._linux import cpu_affinity

    for name, cpus in desired.slices.items():
        hint = "remove it from daemons" if name == HOUSEKEEPING else "move the service to another slice with Slice="
        bound = state.affinities.get(name, ())
        cpu_affinity.refuse("confine {}", name, bound, cpus=cpus, online=state.online, hint=hint)


def _blocked(state: CpuIsolationState, desired: CpuIsolationDesired) -> Dict[str, Tuple[Tuple[str, str], ...]]:
    """What is at work below each slice that would lose CPUs."""
    return {
        name: state.busy[name]
        for name, cpus in desired.slices.items()
        if state.busy.get(name) and _takes_some(state.slices[name], cpus)
    }


def _takes_some(found: ConfinedSlice, cpus: FrozenSet[int]) -> bool:
    """Whether the slice has others than these CPUs, now or from the next reload on; none stands for all."""
    return any(not now or now - cpus for now in (found.effective, found.allowed))


def _blocker(blocked: Dict[str, Tuple[Tuple[str, str], ...]], desired: CpuIsolationDesired) -> Blocker:
    words = [f"{who} {what}" for units in blocked.values() for who, what in units]
    more = [f"{len(words) - SHOWN} more"] if len(words) > SHOWN else []
    ways = ["drain the node", "list the services to confine in daemons instead"]
    ways += [] if desired.when_busy == WAIT else ["set when_busy: wait or skip"]
    error = InUse(
        "confine {}",
        object=", ".join(blocked),
        cause=f"{', '.join([*words[:SHOWN], *more])} and would lose CPUs",
        hint=f"nothing was changed; {', or '.join(ways)}",
    )
    return Blocker(error, desired.busy_timeout if desired.when_busy == WAIT else 0.0)


def _conflicts(state: CpuIsolationState, desired: CpuIsolationDesired) -> Tuple[Conflict, ...]:
    """Files of others that do not count, and what is at work below a slice that is confined already."""
    found = []
    for name, cpus in desired.slices.items():
        if state.slices[name].effective == cpus:
            folder = cpusets.folder_of(name)
            busy = state.busy.get(name, ())
            found += [Conflict(who, folder, None, name, "AllowedCPUs", what, US) for who, what in busy]
        for path, value in state.slices[name].theirs:
            if value and cpusets.parse_allowed(value) != cpus:
                found.append(Conflict("systemd", path, None, name, "AllowedCPUs", value, US))
    return tuple(found)


def _skipped(found: ConfinedSlice, desired: CpuIsolationDesired, units: Tuple[Tuple[str, str], ...]) -> Setting:
    """A slice that is left as it is while somebody is at work below it, now and for the next reload of systemd."""
    who, what = units[0]
    return Setting(
        object=found.name,
        setting=CPUS,
        wanted=shown(desired.slices[found.name]),
        effective=shown(found.effective),
        boot=shown(found.allowed),
        identity=found.name,
        boot_matters=False,
        pending=f"{who} {what} and would lose CPUs",
        needs=f"end of {who}",
    )


def _slice_rows(
    found: ConfinedSlice, state: CpuIsolationState, desired: CpuIsolationDesired, scope: Scope
) -> List[Setting]:
    wanted = desired.slices.get(found.name)
    stale = bool(found.effective) and not found.allowed
    if wanted is None and found.file.text is None and not found.file.reload_due and not stale:
        return []
    goal = found.others if wanted is None else wanted
    row = Setting(
        object=found.name,
        setting=CPUS,
        wanted=shown(goal),
        effective=shown(found.effective),
        boot=shown(found.allowed),
        identity=found.name,
        effective_matters=scope.immediate and state.systemd_runs and found.there,
        # To end a limit takes no systemd, and the later reload finds nothing to end.
        pending=_waiting(state) if goal and state.reload_blocker else "",
        needs=systemd.DAEMON_RELOAD,
    )
    return [row]


def _waiting(state: CpuIsolationState) -> str:
    return f"systemd must reload it, and {state.reload_blocker}"


def _daemon_rows(daemon: Daemon, state: CpuIsolationState, desired: CpuIsolationDesired, scope: Scope) -> List[Setting]:
    declared = daemon.name in desired.daemons
    if not declared and daemon.file.text is None and not daemon.file.reload_due:
        return []
    row = Setting(
        object=daemon.name,
        setting=SLICE,
        wanted=HOUSEKEEPING if declared else daemon.others,
        effective=daemon.runs_in or daemon.boot,
        boot=daemon.boot,
        identity=daemon.name,
        # What is no longer confined has all CPUs in any slice.
        effective_matters=declared and scope.immediate and state.systemd_runs and bool(daemon.runs_in),
        pending=f"it stays in the slice in which it was started; restart {daemon.name}",
        needs=f"restart of {daemon.name}",
    )
    return [row]


def _text(name: str, desired: CpuIsolationDesired) -> Optional[str]:
    header = header_of(NAME)
    if name in desired.slices:
        # Lines of several files add up, until an empty one.
        return f"{header}[Slice]\nAllowedCPUs=\nAllowedCPUs={cpulist.render(desired.slices[name])}\n"
    return f"{header}[Service]\nSlice={HOUSEKEEPING}\n" if name in desired.daemons else None


def _steps(
    state: CpuIsolationState,
    rows: Sequence[Setting],
    files: Dict[str, List[Setting]],
    texts: Dict[str, Optional[str]],
) -> List[Step]:
    """What limits nobody any more is released first, then all files are written, and systemd reads and applies them."""
    from ..._linux.systemd_apply import AnnounceUnit, ReloadUnits

    steps: List[Step] = []
    by_reload: List[Change] = []
    applied: List[Setting] = []
    release: List[Step] = []
    by_name = {row.object: row for row in rows}
    for name, of_file in files.items():
        row = by_name.get(name)
        own = [one for one in (*of_file, *([row] if row is not None else [])) if one.boot_matters]
        differing = [one for one in own if one.boot != one.wanted]
        if differing:
            write = _file_of(name, state).step(texts[name], map(boot_change, differing))
            steps += [Step(AnnounceUnit(name)), write]
        by_reload += [effective_change(one) for one in of_file if one.boot == one.wanted and _late(one)]
        if row is not None and row.setting == CPUS and _late(row):
            applied.append(row)
            if row.wanted is None:
                action = ReleaseCpus(cpusets.folder_of(name), state.possible)
                release.append(Step(action, (effective_change(row),)))
    if steps or by_reload:
        steps.append(Step(ReloadUnits(), tuple(by_reload)))
    # What systemd has not read it would apply as it was.
    if applied and not state.reload_blocker:
        changes = tuple(effective_change(row) for row in applied if row.wanted is not None)
        steps.append(Step(ApplySlices(tuple(row.object for row in applied)), changes))
    return [*release, *steps]


def _late(row: Setting) -> bool:
    return row.effective_matters and row.effective != row.wanted and not row.pending


def _file_of(name: str, state: CpuIsolationState) -> UnitFile:
    return state.slices[name].file if name in state.slices else state.daemons[name].file
