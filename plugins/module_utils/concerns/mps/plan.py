# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of MPS daemons, and the steps from here to there.

A daemon takes devices and limits from its environment when it starts, and a server from its daemon when that starts
it. So a daemon that is to have others is restarted, where it has no client; under clients it is never stopped. With
``when_busy: skip`` it is told the new limits, which count for the servers that it starts from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..._core.change import THEM, Blocker, Conflict, Plan, RoomAction, Step
from ..._core.errors import InUse, OwnedByAnother
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen, replace
from ..._core.wording import agreeing, first_of
from ..._kinds import units
from ..._kinds.units import RUNNING, SERVICE, START, STOPPED
from ..._linux import systemd
from . import files as mps_files
from .spec import FAIL, SKIP, WAIT, memory_text
from .state import GPUS, MEMORY, MULTI_USER, PERCENTAGE, UNIT_FILE

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.setting import Scalar
    from .state import Client, Daemon, MpsDesired, MpsState, Server, Values, WantedDaemon

IDLE = "idle_gpu"
SILENT = "not responding"
SHOWN = 4


@frozen
class RunDaemon(RoomAction):
    """Start, restart or stop the daemon of a unit (``verb``); one that has clients is refused.

    ``folders`` are those that systemd makes for it and leaves behind.
    """

    programs = ("systemctl",)
    optional_programs = ("env",)
    verb: str
    unit: str
    folders: Tuple[str, ...] = ()

    @property
    def restarts(self) -> Tuple[str, ...]:
        return (self.unit,) if self.verb == "restart" else ()


@frozen
class TellDaemon(RoomAction):
    """Give the daemon of a unit these commands."""

    programs = ("env",)
    unit: str
    commands: Tuple[str, ...]


def plan(state: MpsState, desired: MpsDesired, scope: Scope) -> Plan:
    """Raises ``OwnedByAnother`` where somebody else serves the same GPUs, or has a say in a unit of ours."""
    if not (scope.immediate or scope.permanent):
        return Plan()
    if desired.daemons:
        _refuse_owners(state.conflicts)
    wanted = {daemon.unit: daemon for daemon in desired.daemons}
    rows: List[Setting] = []
    steps: List[Step] = []
    busy: List[Daemon] = []
    # Those that go first: a GPU that was divided may be served as a whole.
    for unit in sorted(state.daemons, key=lambda unit: unit in wanted):
        if unit in desired.keep:
            continue
        found, goal = state.daemons[unit], wanted.get(unit)
        own = _rows(found, goal, desired.texts.get(unit), state, scope)
        touched = scope.immediate and _is_touched(found, own, goal)
        if touched and found.clients:
            busy.append(found)
            if goal is None and state.when_busy == SKIP:
                rows.append(_left(found))
                continue
        rows += own
        if any(row.status != IN_SYNC for row in own):
            steps += _steps(found, goal, own, desired.texts.get(unit), touched=touched)
    if desired.unresponsive and scope.immediate:
        from ..._nvidia import unresponsive_gpu

        rows += [unresponsive_gpu.setting(name) for name in desired.unresponsive]
        steps.append(unresponsive_gpu.refuse(desired.unresponsive))
    return Plan(tuple(rows), tuple(steps), desired.unmanaged, state.conflicts, _blocker(busy, state))


def _refuse_owners(conflicts: Sequence[Conflict]) -> None:
    for conflict in conflicts:
        if conflict.wins == THEM:
            error = OwnedByAnother(
                "start the MPS control daemon",
                cause=f"{conflict.owner} already serves the same GPUs ({conflict.path})",
                found=conflict.value,
                hint="stop it, or leave mps out of the declaration of this node; two control daemons would split the "
                "clients of a GPU between them",
            )
            error.conflicts = tuple(conflicts)
            raise error


# --- settings ---------------------------------------------------------------------------------------------------------


def _rows(
    found: Daemon, wanted: Optional[WantedDaemon], text: Optional[str], state: MpsState, scope: Scope
) -> List[Setting]:
    if wanted is not None:
        _refuse_others(found, wanted, text or "")
    rows: List[Setting] = []
    # What is given back now and not for the next boot leaves the unit there.
    if scope.permanent or not scope.restoring:
        rows += found.file.rows_in(text, immediate=scope.immediate, what=found.unit)
    if scope.permanent and (wanted is not None or found.file.text is not None):
        goal = systemd.DISABLED if wanted is None else systemd.ENABLED
        # A unit that is not there starts no more than one that nothing enables.
        now = systemd.ENABLED if found.status == systemd.ENABLED else systemd.DISABLED
        rows += units.start_row(found.unit, goal, now)
    scope_now = scope.immediate and state.systemd_runs
    running = RUNNING if found.effective is not None else SILENT if found.fault else STOPPED
    if scope_now and (wanted is not None or running != STOPPED):
        pending = found.file.pending(found.unit) if wanted is not None else ""
        row = units.service_row(found.unit, STOPPED if wanted is None else RUNNING, running, pending)
        if running == SILENT and found.clients and not pending:
            row = replace(row, pending=f"it may be in use by {_shown(found.clients)}", needs=IDLE)
        rows.append(row)
    if wanted is not None:
        rows += _value_rows(found, wanted, state, immediate=scope_now, permanent=scope.permanent)
    return rows


def _value_rows(
    found: Daemon, wanted: WantedDaemon, state: MpsState, *, immediate: bool, permanent: bool
) -> Iterator[Setting]:
    """What the daemon and its servers have. A value that is not declared is that of a daemon which was told nothing."""
    boot = found.boot if found.status == systemd.ENABLED else None
    shown = {**{gpu.identity.uuid: gpu.name for gpu in state.gpus}, **wanted.names}

    def row(
        name: str, setting: str, goal: Scalar, now: Scalar, later: Scalar, stale: Sequence[Tuple[Server, Scalar]]
    ) -> Setting:
        effective: Scalar = now
        pending = found.file.pending(found.unit)
        if stale:
            olds = ", ".join(f"{_worded(value)} in server {server.pid}" for server, value in stale)
            effective = f"{_worded(now)}; {olds}"
        if found.clients and not pending and (state.when_busy == SKIP or now == goal):
            holding = [server for server, _value in stale] or list(found.servers)
            pending = f"{_kept(holding)} until these clients end: {_shown(found.clients)}"
        return Setting(
            object=name,
            setting=setting,
            wanted=goal,
            effective=effective,
            boot=later,
            identity=found.unit if name == found.unit else _uuid_of(wanted, name),
            effective_matters=immediate,
            boot_matters=permanent,
            pending=pending,
            needs=IDLE if found.clients else systemd.DAEMON_RELOAD,
        )

    goal, now = wanted.values, found.effective
    told = [server for server in found.servers if server.percentage]
    others = [(server, server.percentage) for server in told if server.percentage != goal.percentage]

    def of(read: Callable[[Values], Scalar]) -> Tuple[Scalar, Scalar, Scalar]:
        return read(goal), read(now) if now else None, read(boot) if boot else None

    yield row(found.unit, GPUS, *of(lambda values: _names(values, shown)), ())
    yield row(found.unit, PERCENTAGE, *of(lambda values: values.percentage), others)
    if any(values is not None and values.multi_user for values in (goal, now, boot)):
        yield row(found.unit, MULTI_USER, *of(lambda values: "yes" if values.multi_user else "no"), ())
    for uuid, name in wanted.names.items():
        limit = goal.limits.get(uuid)
        limits = [values.limits.get(uuid) if values else None for values in (now, boot)]
        stale = [(server, memory_text(server.limits.get(uuid))) for server in told if server.limits.get(uuid) != limit]
        if limit is None and not any(limits) and not stale:
            continue
        yield row(name, MEMORY, memory_text(limit), memory_text(limits[0]), memory_text(limits[1]), stale)


def _uuid_of(wanted: WantedDaemon, name: str) -> str:
    return next(uuid for uuid, known in wanted.names.items() if known == name)


def _names(values: Values, shown: Dict[str, str]) -> str:
    return ", ".join(shown.get(uuid, uuid) for uuid in values.devices) or "all"


def _worded(value: Scalar) -> str:
    return "none" if value is None else str(value)


def _kept(servers: Sequence[Server]) -> str:
    names = " and ".join(f"server {server.pid}" for server in servers)
    return f"{names} {'keep their old values' if len(servers) > 1 else 'keeps its old value'}"


def _shown(clients: Sequence[Client]) -> str:
    return first_of([client.name for client in clients], SHOWN)


def _left(found: Daemon) -> Setting:
    """A daemon that was to go, and is left for its clients."""
    return Setting(
        object=found.unit,
        setting=SERVICE,
        wanted=STOPPED,
        effective="in use",
        boot=None,
        identity=found.unit,
        boot_matters=False,
        pending=f"it is in use by {_shown(found.clients)}",
        needs=IDLE,
    )


def _refuse_others(found: Daemon, wanted: WantedDaemon, text: str) -> None:
    """Raise ``OwnedByAnother`` for a unit that is not ours, one that is masked, and a drop-in that overrules it."""
    goal = "start the MPS control daemon by {}"
    if found.file.text is not None and not mps_files.is_ours(found.file.text):
        cause = f"{found.file.path} was not written by this module"
        hint = "remove that file, or leave mps out of the declaration of this node"
        raise OwnedByAnother(goal, object=found.unit, cause=cause, hint=hint)
    if found.status == systemd.MASKED:
        hint = f"run systemctl unmask {found.unit}, or leave mps out of the declaration of this node"
        raise OwnedByAnother(goal, object=found.unit, cause="it is masked", hint=hint)
    if mps_files.merged((text, *found.others.values())) == wanted.values:
        return
    for path, other in found.others.items():
        if mps_files.merged((text, other)) != wanted.values:
            hint = "remove its lines Environment= and ExecStart=, and declare those values instead"
            raise OwnedByAnother(goal, object=found.unit, cause=f"{path} overrules what is declared", hint=hint)


# --- steps ------------------------------------------------------------------------------------------------------------


def _is_touched(found: Daemon, rows: Sequence[Setting], wanted: Optional[WantedDaemon]) -> bool:
    """Whether a daemon that runs would be stopped for these settings: not for what only its clients keep from it."""
    if found.effective is None:
        # One that tells nothing is started anew, or stopped.
        return bool(found.fault)
    if wanted is None:
        return True
    if not found.clients:
        values = [row for row in rows if row.setting in (GPUS, PERCENTAGE, MULTI_USER, MEMORY)]
        return any(row.effective_matters and row.effective != row.wanted for row in values)
    now, goal = found.effective, wanted.values
    limits = any(now.limits.get(uuid) != goal.limits.get(uuid) for uuid in wanted.names)
    others = (now.devices, now.percentage, now.multi_user) != (goal.devices, goal.percentage, goal.multi_user)
    return limits or others


def _commands(found: Daemon, wanted: WantedDaemon) -> Tuple[str, ...]:
    """What a daemon can be told while it runs. A limit that goes cannot: there is no command for none."""
    now, goal = found.effective, wanted.values
    if now is None:
        return ()
    told = []
    if now.percentage != goal.percentage:
        told.append(f"set_default_active_thread_percentage {goal.percentage}")
    for uuid, limit in goal.limits.items():
        if now.limits.get(uuid) != limit:
            told.append(f"set_default_device_pinned_mem_limit {uuid} {memory_text(limit)}")
    return tuple(told)


def _steps(
    found: Daemon, wanted: Optional[WantedDaemon], rows: Sequence[Setting], text: Optional[str], *, touched: bool
) -> List[Step]:
    wrong = {(row.object, row.setting): row for row in rows if row.status != IN_SYNC}
    service = wrong.get((found.unit, SERVICE))
    start = wrong.get((found.unit, START))
    write, reload = found.file.steps(wrong.get((found.file.path, UNIT_FILE)), text)
    links = [] if start is None else [units.start_step(start, found.status)]
    values = [row for row in wrong.values() if row.setting in (GPUS, PERCENTAGE, MULTI_USER, MEMORY)]
    late = [boot_change(row) for row in values if row.boot_matters and row.boot != row.wanted]
    if wanted is None:
        stop = [Step(RunDaemon("stop", found.unit), (effective_change(service),))] if service is not None else []
        # systemctl takes links away only while the unit is there.
        return [*stop, *links, *write, *reload]
    steps = [*write, *reload, *links]
    if late and steps:
        steps[-1] = Step(steps[-1].action, (*steps[-1].changes, *late), probes=steps[-1].probes)
    now = [row for row in values if row.effective_matters and row.effective != row.wanted]
    if touched and found.clients:
        commands = _commands(found, wanted)
        changes = tuple(effective_change(row) for row in now if row.setting in (PERCENTAGE, MEMORY))
        if commands:
            steps.append(Step(TellDaemon(found.unit, commands), changes))
    elif service is not None and not service.pending:
        verb = "start" if service.effective == STOPPED else "restart"
        action = RunDaemon(verb, found.unit, (mps_files.logs_of(mps_files.key_of(found.unit)),))
        steps.append(Step(action, tuple(map(effective_change, (service, *now)))))
    elif touched and not any(row.pending for row in now):
        steps.append(Step(RunDaemon("restart", found.unit), tuple(map(effective_change, now))))
    return steps


def _blocker(busy: Sequence[Daemon], state: MpsState) -> Optional[Blocker]:
    """Who computes through a daemon that would have to be stopped."""
    if not busy or state.when_busy == SKIP:
        return None
    ways = ["end these clients", *(["set when_busy: wait or skip"] if state.when_busy == FAIL else [])]
    servers = [f"server {server.pid}" for found in busy for server in found.servers if server.clients]
    error = InUse(
        "restart or stop {}",
        object=", ".join(found.unit for found in busy),
        cause=f"{' and '.join(servers)} {agreeing(len(servers), 'is', 'are')} in use by "
        f"{'; '.join(_shown(found.clients) for found in busy)}",
        hint=f"nothing was changed; {', or '.join(ways)}",
    )
    return Blocker(error, state.busy_timeout if state.when_busy == WAIT else 0.0)
