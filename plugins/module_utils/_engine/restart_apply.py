# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reload or restart of a daemon, the wait until it is well, and the way back. Imported when there is one to do.

Before anything stops, the engine's own program judges the files. From then on a marker says that a restart is under
way, so that a run that is killed is finished by a later one.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Optional, Tuple

from .._core import before
from .._core.apply import LOCK_TIMEOUT_SECONDS, forget_given_back
from .._core.defaults import complete
from .._core.errors import CannotLook, GpuFleetError, NotInEffect, NotPermitted, Refused
from .._core.road import LOCK, SHARED_OPTIONS
from .._host import systemd_apply
from . import found as record
from . import previous
from .look import CONCERN, UNDER_WAY, marker_of
from .model import CONTAINERD, DOCKER, RELOAD, RESTART, Edit, Installation
from .plan import in_order
from .restart import Result, View, decide, look
from .spec import NAME, OPTIONS

if TYPE_CHECKING:
    from .._host.protocols import Files, Host
    from .restart import Wish

POLL_SECONDS = 0.5
# systemd kills a service that does not stop after 90 s, unless its unit says otherwise.
STOP_SECONDS = 120.0
# A daemon that systemd started anew three times has said its reason several times since.
LOG_LINES = 30
SHOWN_LINES = 3
# Lines that call themselves harmless: of dockerd, containerd and CRI-O, as text or as JSON, and of klog in k3s.
HARMLESS = re.compile(r'\blevel"?[=:] ?"?(?:trace|debug|info|warn)|^[IW]\d{4} ')
GONE = ("failed", "inactive")


def carry_out(wish: Wish, host: Host) -> Result:
    """Look again under the lock, for another run may have been faster, and do what is needed.

    Raises ``GpuFleetError`` where the daemon was not touched; a failure after that is in ``Result.error``.
    """
    try:
        with host.files.lock(LOCK, LOCK_TIMEOUT_SECONDS):
            view = look(host, wish.engine)
            action = decide(view, wish)
            if action:
                return _carry_out(wish, host, view, action)
            if not view.takes.action:
                _settle(host, view)
                _forget(host)
            return Result(view)
    except TimeoutError as error:
        raise NotPermitted(
            f"{wish.action} {wish.engine}",
            object=LOCK,
            cause=str(error),
            hint="wait until the other run has ended, then run again",
        ) from error
    except OSError as error:
        raise NotPermitted(
            f"{wish.action} {wish.engine}", object=str(error.filename or ""), cause=error.strerror or str(error)
        ) from error


def _carry_out(wish: Wish, host: Host, view: View, action: str) -> Result:
    if not view.seen.cut_off:
        _check(host, view)
        if action == RESTART:
            _bring_live_restore(wish, host, view)
    result = Result(view, action, stopped=view.ended if action == RESTART else 0)
    host.files.replace(marker_of(wish.engine), "")
    began = time.time()
    trouble = _take_up(wish, host, view, action)
    if not trouble:
        _settle(host, view)
        _journal(host, wish.engine, f"{action} took up the files")
        error = _not_in_effect(wish, host, action)
        if error is None:
            _forget(host)
        return replace(result, error=error)
    log = _log(host, view.unit, began)
    try:
        restored, ending = _go_back(wish, host, view, action)
    except (GpuFleetError, OSError) as error:
        restored, ending = (), f"the previous one was not restored ({str(error).rstrip('.')})"
    _journal(host, wish.engine, f"{action} failed, {ending}")
    what = "come back with" if action == RESTART else "take up"
    said = f"; it said: {' | '.join(_telling(log))}" if log else ""
    refused = Refused(
        f"{action} {wish.engine}",
        object=view.unit,
        cause=f"it did not {what} the new configuration ({trouble}), and {ending}{said}",
        hint="correct what is declared, then run again" if restored else f"see journalctl -u {view.unit}",
    )
    return replace(result, restored=restored, log=log, error=refused)


def _check(host: Host, view: View) -> None:
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


def _bring_live_restore(wish: Wish, host: Host, view: View) -> None:
    """Where live restore is new, a reload gives it to dockerd, and its containers outlive the restart that follows."""
    seen = view.seen
    needed = seen.engine == DOCKER and seen.running is not None and seen.running.containers
    if not needed or not seen.configuration.settings.get("live_restore") or _has_live_restore(view):
        return
    trouble = _take_up(wish, host, view, RELOAD)
    if not _has_live_restore(look(host, wish.engine)) and wish.when_containers_run != RESTART:
        raise Refused(
            f"restart {wish.engine}",
            object=view.unit,
            cause=f"its containers would end, for it did not take up live restore first ({trouble or 'no word why'})",
            hint="stop them first, or say when_containers_run: restart",
        )


def _has_live_restore(view: View) -> bool:
    running = view.seen.running
    return running is not None and bool(running.settings.get("live_restore"))


def _take_up(wish: Wish, host: Host, view: View, action: str) -> str:
    """Do it, and wait until the daemon is well. Returns what is wrong with it, in words; empty where nothing is."""
    began = time.time()
    if action == RESTART:
        # systemd starts nothing that started five times in ten seconds, whoever did so: that would look like a refusal.
        _systemctl(host, "reset-failed", view.unit, seconds=STOP_SECONDS)
    said = _systemctl(host, action, view.unit, seconds=STOP_SECONDS + wish.health_timeout)
    deadline = time.monotonic() + wish.health_timeout
    while True:
        state = _state_or_unknown(host, view.unit)
        if state in GONE or (said and action == RELOAD):
            return said or f"its unit is {state}"
        trouble = f"its unit is {state}" if state != "active" else _trouble(host, view, action, began)
        # The daemon that is well may be the one from before.
        if said and not trouble and _is_late(host, wish.engine):
            trouble = said
        if not trouble or time.monotonic() >= deadline:
            return trouble
        time.sleep(POLL_SECONDS)


def _is_late(host: Host, engine: str) -> bool:
    try:
        return bool(look(host, engine).late)
    except CannotLook:
        return True


def _trouble(host: Host, view: View, action: str, began: float) -> str:
    """What keeps a daemon whose unit is active from being well."""
    seen = view.seen
    # Anew: where its socket is, is known only while it runs.
    installation = seen.kind.find(host) or seen.configuration.installation
    try:
        if action == RELOAD and seen.engine == DOCKER:
            from . import docker_reload

            if not docker_reload.told(host, installation, began):
                return "it did not say that it has reloaded"
        if seen.kind.running(host, seen.kind.read(host.files, installation)) is None:
            return "it does not run"
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


def _not_in_effect(wish: Wish, host: Host, action: str) -> Optional[NotInEffect]:
    """What a daemon that is well does not have all the same, once it has had time to say otherwise."""
    deadline = time.monotonic() + wish.health_timeout
    view = look(host, wish.engine)
    while view.late and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        view = look(host, wish.engine)
    for change in view.changes:
        return NotInEffect(
            f"bring {change.setting} into effect",
            object=wish.engine,
            cause=f"it is well after the {action}, and has another value than its files",
            found=change.before,
            wanted=change.after,
            hint="see effective and boot of gpufleet.node.container_runtime",
        )
    return None


def _go_back(wish: Wish, host: Host, view: View, action: str) -> Tuple[Tuple[str, ...], str]:
    """Give the files their previous texts and let the daemon have them: the paths, and in words what came of it.

    Where that is of no use the marker stays, and so does what is known of the texts: a later run tries again.
    """
    kept = previous.load(host.files, wish.engine)
    if not kept:
        return (), "no previous one is known"
    texts = {edit.path: host.files.read_optional(edit.path) for edit in kept}
    edited = [edit.path for edit in kept if texts[edit.path] not in (edit.before, edit.after)]
    if edited:
        return (), f"the previous one was not restored, for somebody else has edited {', '.join(edited)} since"
    back = [Edit(edit.path, edit.after, edit.before) for edit in kept if texts[edit.path] != edit.before]
    _write(host.files, wish.engine, in_order(back, view.seen.configuration.installation.drop_in))
    trouble = _take_up(wish, host, view, action)
    paths = tuple(edit.path for edit in kept)
    if trouble:
        return paths, f"with the previous one, which is back, it is not well either ({trouble})"
    _settle(host, view)
    return paths, "it runs with the previous one again"


def _write(files: Files, engine: str, edits: Tuple[Edit, ...]) -> None:
    # So that the way back to what was before all changes stays known.
    record.keep(files, engine, edits)
    for edit in edits:
        if edit.after is None:
            files.remove(edit.path)
        else:
            files.replace(edit.path, edit.after)


def _settle(host: Host, view: View) -> None:
    """The daemon is well with the files that are there."""
    files, engine = host.files, view.seen.engine
    previous.drop(files, engine)
    if engine == DOCKER:
        from . import docker_check

        docker_check.forget(host, view.seen.configuration.installation)
    files.remove(marker_of(engine))
    files.remove_folder(UNDER_WAY)


def _forget(host: Host) -> None:
    """The daemon may have been the last that still had what ``state: absent`` took away."""
    if host.files.exists(before.path_of(NAME)):
        forget_given_back(CONCERN, complete({**SHARED_OPTIONS, **OPTIONS}, {"state": "absent"}), host)


def _state(host: Host, unit: str) -> str:
    block = next(systemd_apply.show(host, ("ActiveState",), (unit,)), {})
    return next(iter(block.get("ActiveState", ())), "unknown")


def _state_or_unknown(host: Host, unit: str) -> str:
    try:
        return _state(host, unit)
    except CannotLook:
        return "unknown"


def _systemctl(host: Host, verb: str, unit: str, *, seconds: float) -> str:
    """What went wrong, in the words of systemd; empty where nothing did."""
    try:
        completed = host.commands.run(["systemctl", verb, unit], timeout=seconds)
    except OSError as error:
        return f"systemctl: {error.strerror or error}"
    if completed.status == 0:
        return ""
    # The first line is what happened, the others say where to read more.
    said = (completed.errors or completed.output).strip().partition("\n")[0].rstrip(".")
    return said or f"systemctl {verb} left exit status {completed.status}"


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
