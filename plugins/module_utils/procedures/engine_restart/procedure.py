# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``container_engine_restart``: the reload or restart of a daemon, the wait until it is well, and the way back.

Before anything stops, the engine's own program judges the files. From then on a marker says that a restart is under
way, so that a run that is killed is finished by a later one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Mapping, Optional, Tuple

from ..._core import baseline
from ..._core.contract import LOCK
from ..._core.convergence import LOCK_TIMEOUT_SECONDS, as_not_permitted, drop_if_restored
from ..._core.errors import CannotLook, DeclarationError, GpuFleetError, NotInEffect, NotPermitted, Refused
from ..._core.regex import regex
from ..._core.value import replace
from ..._linux import systemd, systemd_apply
from ...concerns.container_runtime import last_good, original_files
from ...concerns.container_runtime.concern import CONCERN
from ...concerns.container_runtime.docker import reload
from ...concerns.container_runtime.model import (
    CONTAINERD,
    DOCKER,
    LIVE_RESTORE,
    NAME,
    RELOAD,
    RESTART,
    Edit,
    Installation,
)
from ...concerns.container_runtime.plan import in_order
from ...concerns.container_runtime.state import UNDER_WAY, marker_of
from .decision import EngineView, RestartOptions, RestartResult, decide, view_engine, whole
from .options import OPTIONS

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

POLL_SECONDS = 0.5
# systemd kills a service that does not stop after 90 s, unless its unit says otherwise.
STOP_SECONDS = 120.0
# A daemon that systemd started anew three times has said its reason several times since.
LOG_LINES = 30
SHOWN_LINES = 3
# Lines that call themselves harmless: of dockerd, containerd and CRI-O, as text or as JSON, and of klog in k3s.
HARMLESS = regex(r'\blevel"?[=:] ?"?(?:trace|debug|info|warn)|^[IW]\d{4} ')
GONE = ("failed", "inactive")


class EngineRestart:
    """``procedure.Procedure`` for the daemon of an engine."""

    name = "container_engine_restart"
    options: Mapping[str, Any] = OPTIONS

    def parse(self, params: Mapping[str, Any]) -> RestartOptions:
        options = RestartOptions(**params)
        if options.health_timeout <= 0:
            raise DeclarationError(
                f"{options.action} {options.engine}",
                object="health_timeout",
                cause=f"it is {options.health_timeout}, and must be more than 0 seconds",
            )
        return options

    def look(self, host: Host, options: RestartOptions) -> EngineView:
        if not systemd.running(host.files):
            raise DeclarationError(f"{options.action} {options.engine}", cause="this machine does not run systemd")
        return view_engine(host, options.engine)

    def decide(self, state: EngineView, options: RestartOptions) -> str:
        return decide(state, options)

    def predict(self, host: Host, options: RestartOptions, state: EngineView, decision: str) -> RestartResult:
        return RestartResult(state, decision, state.ended if decision == RESTART else 0)

    def perform(self, host: Host, options: RestartOptions, state: EngineView, decision: str) -> RestartResult:
        if not decision and not _left_over(state, host.files):
            return RestartResult(state)
        if not host.may_change:
            raise NotPermitted(
                f"{options.action} {options.engine}", cause="not running as root", hint="run the task with become: true"
            )
        return _execute_locked(options, host)


PROCEDURE = EngineRestart()


def _left_over(view: EngineView, files: Files) -> bool:
    """Whether what was kept for the way back is of no use any more: the daemon has all that the files say."""
    kept = (last_good.path_of(view.seen.engine), marker_of(view.seen.engine))
    return (
        view.seen.running is not None and not view.required_action.action and any(files.exists(path) for path in kept)
    )


def _execute_locked(options: RestartOptions, host: Host) -> RestartResult:
    """Look again under the lock, for another run may have been faster, and do what is needed.

    Raises ``GpuFleetError`` where the daemon was not touched; a failure after that is in ``RestartResult.error``.
    """
    goal = f"{options.action} {options.engine}"
    with as_not_permitted(goal), host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS):
        view = view_engine(host, options.engine)
        action = decide(view, options)
        if action:
            return _execute(options, host, view, action)
        if not view.required_action.action:
            _settle(host, view)
            _drop_records(host)
        return RestartResult(view)


def _execute(options: RestartOptions, host: Host, view: EngineView, action: str) -> RestartResult:
    if not view.seen.interrupted_restart:
        _check(host, view)
        if action == RESTART:
            _bring_live_restore(options, host, view)
    result = RestartResult(view, action, stopped=view.ended if action == RESTART else 0)
    host.files.replace(marker_of(options.engine), "")
    began = time.time()
    trouble = _take_up(options, host, view, action)
    if not trouble:
        _settle(host, view)
        _journal(host, options.engine, f"{action} loaded the files")
        error = _not_in_effect(options, host, action)
        if error is None:
            _drop_records(host)
        return replace(result, error=error)
    log = _log(host, view.unit, began)
    try:
        restored, ending = _go_back(options, host, view, action)
    except (GpuFleetError, OSError) as error:
        restored, ending = (), f"the previous configuration was not restored ({str(error).rstrip('.')})"
    _journal(host, options.engine, f"{action} failed, {ending}")
    what = "come back with" if action == RESTART else "load"
    said = f"; its log: {' | '.join(_telling(log))}" if log else ""
    refused = Refused(
        f"{action} {options.engine}",
        object=view.unit,
        cause=f"it did not {what} the new configuration ({trouble}), and {ending}{said}",
        hint="correct what is declared, then run again" if restored else f"see journalctl -u {view.unit}",
    )
    return replace(result, restored=restored, log=log, error=refused)


def _check(host: Host, view: EngineView) -> None:
    """Raises ``Refused`` where the engine's own program says no to the files that are there, whoever wrote them."""
    configuration = view.seen.configuration
    state = _state(host, view.unit)
    if state in GONE:
        raise Refused(
            f"restart {view.seen.engine}",
            object=view.unit,
            cause=f"it runs, and this unit is {state}: something else has started it",
            hint="restart it as it was started",
        )
    as_they_are = (Edit(one.path, one.text, one.text) for one in configuration.documents if one.text is not None)
    view.seen.kind.check(host, configuration.installation, tuple(as_they_are))


def _bring_live_restore(options: RestartOptions, host: Host, view: EngineView) -> None:
    """Where live restore is new, a reload gives it to dockerd, and its containers outlive the restart that follows."""
    seen = view.seen
    needed = seen.engine == DOCKER and seen.running is not None and seen.running.containers
    if not needed or not seen.configuration.settings.get(LIVE_RESTORE) or _has_live_restore(view):
        return
    trouble = _take_up(options, host, view, RELOAD)
    if not _has_live_restore(view_engine(host, options.engine)) and options.when_containers_run != RESTART:
        raise Refused(
            f"restart {options.engine}",
            object=view.unit,
            cause=f"its containers would end, for it did not load live restore first ({trouble or 'no reason given'})",
            hint="stop them first, or set when_containers_run: restart",
        )


def _has_live_restore(view: EngineView) -> bool:
    running = view.seen.running
    return running is not None and bool(running.settings.get(LIVE_RESTORE))


def _take_up(options: RestartOptions, host: Host, view: EngineView, action: str) -> str:
    """Do it, and wait until the daemon is well. Returns what is wrong with it, in words; empty where nothing is."""
    began = time.time()
    attempt = systemd_apply.attempt_start if action == RESTART else systemd_apply.attempt
    said = attempt(host, action, view.unit, seconds=STOP_SECONDS + options.health_timeout)
    deadline = time.monotonic() + options.health_timeout
    while True:
        state = _state_or_unknown(host, view.unit)
        if state in GONE or (said and action == RELOAD):
            return said or f"its unit is {state}"
        trouble = f"its unit is {state}" if state != "active" else _trouble(host, view, action, began)
        # The daemon that is well may be the one from before.
        if said and not trouble and _is_late(host, options.engine):
            trouble = said
        if not trouble or time.monotonic() >= deadline:
            return trouble
        time.sleep(POLL_SECONDS)


def _is_late(host: Host, engine: str) -> bool:
    try:
        return bool(view_engine(host, engine).not_taken_up)
    except CannotLook:
        return True


def _trouble(host: Host, view: EngineView, action: str, began: float) -> str:
    """What keeps a daemon whose unit is active from being well."""
    seen = view.seen
    # Anew: where its socket is, is known only while it runs.
    installation = seen.kind.find(host) or seen.configuration.installation
    try:
        if action == RELOAD and seen.engine == DOCKER and not reload.reported(host, installation, began):
            return "it did not report that it reloaded"
        if seen.kind.running(host, seen.kind.read(host.files, installation)) is None:
            return "it is not running"
    except CannotLook as error:
        return str(error).rstrip(".")
    except OSError as error:
        return f"{error.filename}: {error.strerror or error}"
    return _trouble_of_cri(host, installation) if seen.engine == CONTAINERD else ""


def _trouble_of_cri(host: Host, installation: Installation) -> str:
    """containerd goes on without the plugin that runs pods where that does not take its part of the files."""
    if installation.flavour or host.commands.find("ctr") is None:
        return ""
    completed = host.commands.run(["ctr", "--address", installation.socket, "plugins", "ls"])
    rows = [line.split() for line in completed.output.splitlines()]
    # TYPE, ID, PLATFORMS, STATUS.
    failed = any(row[-1:] == ["error"] and ("cri" in row[1:2] or row[0] == "io.containerd.cri.v1") for row in rows)
    return "its CRI plugin did not load" if failed else ""


def _not_in_effect(options: RestartOptions, host: Host, action: str) -> Optional[NotInEffect]:
    """What a daemon that is well does not have all the same, once it has had time to say otherwise."""
    deadline = time.monotonic() + options.health_timeout
    view = view_engine(host, options.engine)
    while view.not_taken_up and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        view = view_engine(host, options.engine)
    for change in view.changes:
        return NotInEffect(
            f"apply {change.setting}",
            object=options.engine,
            cause=f"it is healthy after the {action}, but its value is not that of its files",
            found=change.before,
            wanted=change.after,
            hint="see effective and boot of gpufleet.node.container_runtime",
        )
    return None


def _go_back(options: RestartOptions, host: Host, view: EngineView, action: str) -> Tuple[Tuple[str, ...], str]:
    """Give the files their previous texts and let the daemon have them: the paths, and in words what came of it.

    Where that is of no use the marker stays, and so does what is known of the texts: a later run tries again.
    """
    kept = last_good.load(host.files, options.engine)
    if not kept:
        return (), "no previous configuration is known"
    texts = {edit.path: host.files.read_optional(edit.path) for edit in kept}
    edited = [edit.path for edit in kept if texts[edit.path] not in (edit.before, edit.after)]
    if edited:
        return (), f"the previous configuration was not restored, because {', '.join(edited)} was edited since"
    back = [Edit(edit.path, edit.after, edit.before) for edit in kept if texts[edit.path] != edit.before]
    _write(host.files, options.engine, in_order(back, view.seen.configuration.installation.drop_in))
    trouble = _take_up(options, host, view, action)
    paths = tuple(edit.path for edit in kept)
    if trouble:
        return paths, f"the previous configuration was restored, but it is not healthy with that either ({trouble})"
    _settle(host, view)
    return paths, "it runs with the previous configuration again"


def _write(files: Files, engine: str, edits: Tuple[Edit, ...]) -> None:
    # So that the way back to what was before all changes stays known.
    original_files.save(files, engine, edits)
    for edit in edits:
        if edit.after is None:
            files.remove(edit.path)
        else:
            files.replace(edit.path, edit.after)


def _settle(host: Host, view: EngineView) -> None:
    """The daemon is well with the files that are there."""
    files, engine = host.files, view.seen.engine
    last_good.drop(files, engine)
    if engine == DOCKER:
        reload.drop_note(host, view.seen.configuration.installation)
    files.remove(marker_of(engine))
    files.remove_folder(UNDER_WAY)


def _drop_records(host: Host) -> None:
    """The daemon may have been the last that still had what ``state: absent`` took away."""
    if host.files.exists(baseline.path_of(NAME)):
        drop_if_restored(CONCERN, whole({"state": "absent"}), host)


def _state(host: Host, unit: str) -> str:
    block = next(systemd.show(host, ("ActiveState",), (unit,)), {})
    return next(iter(block.get("ActiveState", ())), "unknown")


def _state_or_unknown(host: Host, unit: str) -> str:
    try:
        return _state(host, unit)
    except CannotLook:
        return "unknown"


def _log(host: Host, unit: str, began: float) -> Tuple[str, ...]:
    """The last lines of the daemon itself since then; none where there is no journal.

    What it writes to its output is its own. With other transports come what systemd says of the unit before it starts
    the program, and what containers say, where dockerd sends that to the journal.
    """
    fields = (f"_SYSTEMD_UNIT={unit}", "_TRANSPORT=stdout")
    argv = ["journalctl", *fields, f"--since=@{int(began)}", f"--lines={LOG_LINES}"]
    try:
        completed = host.commands.run([*argv, "--output=cat", "--no-pager", "--quiet"])
    except OSError:
        return ()
    return tuple(line.strip() for line in completed.output.splitlines() if line.strip())


def _telling(log: Tuple[str, ...]) -> Tuple[str, ...]:
    """The last lines that tell of trouble, each once; where none does, the last ones."""
    telling = tuple(dict.fromkeys(line for line in log if not HARMLESS.search(line)))
    return (telling or log)[-SHOWN_LINES:]


def _journal(host: Host, engine: str, what: str) -> None:
    host.journal(
        f"container_engine_restart: {engine}: {what}",
        {"GPUFLEET_CONCERN": "container_runtime", "GPUFLEET_OBJECT": engine, "GPUFLEET_SETTING": "daemon"},
    )
