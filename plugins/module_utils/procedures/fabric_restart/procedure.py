# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``fabric_manager_restart``: lets a daemon of the NVLink fabric read its files again, while nobody uses a GPU."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Change
from ..._core.contract import LOCK
from ..._core.convergence import LOCK_TIMEOUT_SECONDS, as_not_permitted, drop_if_restored
from ..._core.errors import CannotLook, DeclarationError, GpuFleetError, InUse, NotInEffect, NotPermitted, Refused
from ..._core.setting import EFFECTIVE
from ..._core.shared_options import SHARED_OPTIONS
from ..._core.value import frozen, replace
from ..._core.wording import agreeing, first_of
from ..._kinds import units
from ..._linux import systemd, systemd_apply
from ...concerns.fabric_manager import daemons, imex, notes
from ...concerns.fabric_manager.concern import CONCERN
from ...concerns.fabric_manager.daemons import FABRIC_MANAGER, IMEX, Daemon
from ...concerns.fabric_manager.rows import NODES
from .options import OPTIONS

if TYPE_CHECKING:
    from ..._core.protocols import Host

PROGRAMS = {"fabric_manager": FABRIC_MANAGER, "imex": IMEX}
FAIL, WAIT, SKIP = "fail", "wait", "skip"
NOTHING, START, RESTART = "", "start", "restart"
POLL_SECONDS = 2.0
# systemd kills a service that does not stop after 90 s, unless its unit says otherwise.
STOP_SECONDS = 120.0
SHOWN = 3


@frozen
class FabricRestartOptions:
    daemon: str
    when_busy: str
    busy_timeout: int
    start_timeout: int


@frozen
class FabricView:
    """``action`` is what the daemon needs and ``why``; ``clients`` use a GPU, and ``driver`` is the loaded one.

    ``yielding`` are services of ours that have GPUs open and stand still meanwhile. ``way_out`` says what to do about a
    client that would stay for ever.
    """

    daemon: Daemon
    action: str
    why: str
    clients: Tuple[str, ...]
    driver: str
    yielding: Tuple[str, ...] = ()
    way_out: str = ""


@frozen
class FabricRestartResult:
    """``done`` is the action that was taken, or would be."""

    view: FabricView
    done: str = NOTHING
    error: Optional[GpuFleetError] = None

    @property
    def changed(self) -> bool:
        return bool(self.done)

    @property
    def changes(self) -> Tuple[Change, ...]:
        if not self.done:
            return ()
        before = "stopped" if self.done == START else "with an older configuration"
        return (Change(self.view.daemon.unit, "service", before, "running", EFFECTIVE),)

    def report(self) -> Dict[str, Any]:
        view = self.view
        return {
            "unit": view.daemon.unit,
            "done": self.done or None,
            "why": view.why or None,
            "clients": list(view.clients),
            "stopped_services": list(view.yielding) if self.done else [],
            "needs": [view.daemon.program.needs] if view.action and not self.done else [],
        }


class FabricRestart:
    """``procedure.Procedure`` for a daemon of the fabric."""

    name = "fabric_manager_restart"
    options: Mapping[str, Any] = OPTIONS

    def parse(self, params: Mapping[str, Any]) -> FabricRestartOptions:
        options = FabricRestartOptions(**params)
        for name, least in (("busy_timeout", 0), ("start_timeout", 1)):
            if params[name] < least:
                raise DeclarationError(
                    "use {}", object=name, cause=f"it must be at least {least} s", found=params[name]
                )
        return options

    def look(self, host: Host, options: FabricRestartOptions) -> FabricView:
        if not systemd.running(host.files):
            raise DeclarationError(f"restart {options.daemon}", cause="this machine does not run systemd")
        try:
            return view_of(host, options.daemon)
        except OSError as error:
            raise CannotLook(
                f"look at {options.daemon}", object=str(error.filename or ""), cause=error.strerror or str(error)
            ) from error

    def decide(self, state: FabricView, options: FabricRestartOptions) -> str:
        return decide(state, options)

    def predict(
        self, host: Host, options: FabricRestartOptions, state: FabricView, decision: str
    ) -> FabricRestartResult:
        if decision and state.clients:
            raise _in_use(state)
        return FabricRestartResult(state, decision)

    def perform(
        self, host: Host, options: FabricRestartOptions, state: FabricView, decision: str
    ) -> FabricRestartResult:
        if not decision:
            return FabricRestartResult(state)
        if not host.may_change:
            raise NotPermitted(
                f"{decision} {state.daemon.program.title}",
                cause="not running as root",
                hint="run the task with become: true",
            )
        given_up = time.monotonic() + options.busy_timeout
        while True:
            # Without the lock: others may have to do something for the GPUs to be free.
            done = _attempt(host, options)
            if done is not None:
                return done
            left = given_up - time.monotonic()
            if left <= 0:
                raise _in_use(view_of(host, options.daemon))
            time.sleep(min(POLL_SECONDS, left))


PROCEDURE = FabricRestart()


def view_of(host: Host, name: str) -> FabricView:
    """The daemon, and why it has to be started anew. Raises ``DeclarationError`` where its unit is not there."""
    program = PROGRAMS[name]
    status = systemd.enabled(host.files, program.unit)
    if status == systemd.NOT_FOUND:
        raise DeclarationError(
            f"restart {program.title}", object=program.unit, cause="it is not installed", hint="leave it out"
        )
    noted = notes.read(host.files)
    daemon = daemons.observe(host, program, status, noted, needed=True, asked=True)
    if program is IMEX:
        daemon = replace(daemon, files={**daemon.files, NODES: imex.nodes_file(host.files, daemon, noted)})
    action, why = _needed(daemon)
    driver = daemons.driver_versions(host.files).loaded
    if not action:
        return FabricView(daemon, action, why, (), driver)
    users, known = daemons.clients(host.files), units.yielding(host.files)
    yielding = tuple(dict.fromkeys(user.unit for user in users if user.unit in known))
    busy = [user for user in users if user.unit not in known]
    # Those of GPUs before Volta have none open, and only their server knows of them.
    clients = [user.name for user in busy] or _clients_of_mps(host, yielding)
    return FabricView(daemon, action, why, tuple(clients), driver, yielding, daemons.how_to_end(busy))


def _clients_of_mps(host: Host, yielding: Sequence[str]) -> List[str]:
    """Who computes through an MPS daemon of ours. Raises ``CannotLook``."""
    from ...concerns.mps import clients, observation

    return [clients.describe(host.files, pid).name for unit in yielding for pid in observation.clients_of(host, unit)]


def _needed(daemon: Daemon) -> Tuple[str, str]:
    if daemon.process is None:
        if daemon.status == systemd.ENABLED and not daemon.outside:
            return START, "its unit is enabled and not running"
        return NOTHING, ""
    if daemon.stale:
        have = agreeing(len(daemon.stale), "has", "have")
        return RESTART, f"{', '.join(daemon.stale)} {have} changed since it started"
    return NOTHING, ""


def decide(view: FabricView, options: FabricRestartOptions) -> str:
    """The action to take, empty where none is needed, or where it must not be taken while jobs run.

    Raises ``NotInEffect`` where the daemon would not start again, and ``InUse``.
    """
    if not view.action:
        return NOTHING
    daemon = view.daemon
    if view.driver and daemon.version and daemon.version != view.driver:
        raise NotInEffect(
            f"{view.action} {daemon.program.title} ({{}})",
            object=daemon.unit,
            cause="its version is not that of the loaded driver, so it would not start",
            found=daemon.version,
            wanted=view.driver,
            hint="reboot the node if the driver was upgraded too, else install the daemon in the driver's version",
        )
    if view.clients and options.when_busy == SKIP:
        return NOTHING
    if view.clients and options.when_busy == FAIL:
        raise _in_use(view)
    return view.action


def _in_use(view: FabricView) -> InUse:
    return InUse(
        f"{view.action} {view.daemon.program.title} ({{}})",
        object=view.daemon.unit,
        cause=f"GPUs are in use by {first_of(view.clients, SHOWN)}, whose CUDA jobs would end; the {view.action} is "
        f"needed because {view.why}",
        hint="; ".join(filter(None, ("wait until they end, or set when_busy to wait or skip", view.way_out))),
    )


def _attempt(host: Host, options: FabricRestartOptions) -> Optional[FabricRestartResult]:
    """One turn under the lock; None where a GPU is in use."""
    with as_not_permitted(f"restart {options.daemon}"), host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS):
        view = view_of(host, options.daemon)
        if view.action and view.clients and options.when_busy == WAIT:
            return None
        action = decide(view, options)
        return _execute(host, options, view, action) if action else FabricRestartResult(view)


def _execute(host: Host, options: FabricRestartOptions, view: FabricView, action: str) -> FabricRestartResult:
    """The action, while what yields stands still: a server of MPS that has lost the fabric serves nobody any more."""
    try:
        error = _run_all(host, "stop", view.yielding)
        result = FabricRestartResult(view, error=error) if error else _act(host, options, view, action)
    finally:
        # Whatever became of the fabric, and also what did not stop: it may be on its way down.
        failed = _run_all(host, "start", view.yielding)
    if failed and result.error:
        result.error.args = (f"{result.error} {failed}",)
    return result if result.error else replace(result, error=failed)


def _run_all(host: Host, verb: str, services: Sequence[str]) -> Optional[GpuFleetError]:
    tell = partial(_journal, host)
    return systemd_apply.attempt_each(host, verb, services, seconds=STOP_SECONDS, tell=tell)


def _act(host: Host, options: FabricRestartOptions, view: FabricView, action: str) -> FabricRestartResult:
    unit = view.daemon.unit
    result = FabricRestartResult(view, action)
    cause = systemd_apply.attempt_start(host, action, unit, seconds=STOP_SECONDS + options.start_timeout)
    if cause:
        log = _log(host, unit)
        error: GpuFleetError = Refused(
            f"{action} {view.daemon.program.title} ({{}})",
            object=unit,
            cause=f"{cause}{f'; its log: {log}' if log else ''}",
            hint=f"see journalctl -u {unit}",
        )
        return replace(result, error=error)
    _journal(host, unit, action)
    deadline = time.monotonic() + options.start_timeout
    while True:
        now = view_of(host, options.daemon)
        if not now.action:
            break
        if time.monotonic() >= deadline:
            error = NotInEffect(
                f"{action} {view.daemon.program.title} ({{}})",
                object=unit,
                cause=f"after {options.start_timeout} s it has had no effect: {now.why}",
                hint=f"see journalctl -u {unit}",
            )
            return replace(result, error=error)
        time.sleep(POLL_SECONDS)
    _drop_records(host)
    return result


def _journal(host: Host, unit: str, verb: str) -> None:
    host.journal(
        f"fabric_manager_restart: {unit}: {verb}",
        {"GPUFLEET_CONCERN": CONCERN.name, "GPUFLEET_OBJECT": unit, "GPUFLEET_SETTING": "service"},
    )


def _log(host: Host, unit: str) -> str:
    """The last line of its log, empty where there is none."""
    argv = ["journalctl", f"--unit={unit}", "--lines=1", "--output=cat", "--no-pager", "--quiet", "_TRANSPORT=stdout"]
    try:
        completed = host.commands.run(argv)
    except OSError:
        return ""
    return completed.output.strip().rpartition("\n")[2] if completed.status == 0 else ""


def _drop_records(host: Host) -> None:
    """The daemon may have been the last that still had what ``state: absent`` took away."""
    from ..._core import baseline, declared
    from ..._core.arguments import validated

    if host.files.exists(baseline.path_of(CONCERN.name)) and declared.of_file(host.files, CONCERN.name) is None:
        params = validated({**SHARED_OPTIONS, **CONCERN.options}, {"state": "absent"}, stored=True)
        drop_if_restored(CONCERN, params, host)
