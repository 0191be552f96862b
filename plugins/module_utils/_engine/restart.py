# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the daemon of an engine must take up its files, and what that would cost: ``container_engine_restart``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from .._core.change import EFFECTIVE, Change
from .._core.defaults import complete, of_file
from .._core.errors import CannotLook, DeclarationError, GpuFleetError, InUse, NotPermitted, Scalar
from .._core.road import SHARED_OPTIONS, diff
from .._host import systemd
from . import previous
from .look import Seen, ended_by, late, marker_of, see, see_entry, takes_of
from .model import CONTAINERD, CRIO, DOCKER, NOTHING, RELOAD, RESTART, Takes, WantedEngine, shown
from .spec import NAME, OPTIONS, parse

if TYPE_CHECKING:
    from .._host.protocols import Files, Host

FAIL, SKIP = "fail", "skip"
DOCKER_UNIT = "docker.service"
# What makes systemd restart a unit with another (systemd.unit(5)).
BINDS = ("Requires", "BindsTo", "PartOf", "Requisite")
ARGUMENTS: Mapping[str, Any] = {
    "engine": {"type": "str", "choices": [DOCKER, CONTAINERD, CRIO], "required": True},
    "action": {"type": "str", "choices": [RELOAD, RESTART], "default": RESTART},
    "health_timeout": {"type": "int", "default": 60},
    "when_containers_run": {"type": "str", "choices": [FAIL, SKIP, RESTART], "default": FAIL},
}


@dataclass(frozen=True)
class Wish:
    """The options. ``health_timeout`` is in seconds."""

    engine: str
    action: str
    health_timeout: int
    when_containers_run: str


@dataclass(frozen=True)
class View:
    """An engine, with what its files say of the settings that are declared as what is wanted.

    ``late`` are those that its daemon does not have, with what it has. ``ended`` is how many containers a restart ends.
    """

    seen: Seen
    late: Mapping[str, Scalar]
    takes: Takes
    ended: int = 0

    @property
    def unit(self) -> str:
        return self.seen.configuration.installation.unit

    @property
    def changes(self) -> Tuple[Change, ...]:
        return tuple(
            Change(self.seen.engine, name, shown(value), shown(self.seen.wanted[name]), EFFECTIVE)
            for name, value in self.late.items()
        )


@dataclass(frozen=True)
class Result:
    """``done`` is the action that was taken, or would be. ``restored`` are the files that got their previous text."""

    view: View
    done: str = NOTHING
    stopped: int = 0
    restored: Tuple[str, ...] = ()
    log: Tuple[str, ...] = ()
    error: Optional[GpuFleetError] = None

    def as_dict(self) -> Dict[str, Any]:
        takes, engine = self.view.takes, self.view.seen.engine
        settings = [
            {"setting": change.setting, "before": change.before, "after": change.after} for change in self.view.changes
        ]
        result: Dict[str, Any] = {
            "changed": bool(self.done),
            "engine": engine,
            "unit": self.view.unit,
            "done": self.done or None,
            "why": takes.why or None,
            "settings": settings,
            "needs": [f"{takes.action}_{engine}"] if takes.action and not self.done else [],
            "stopped_containers": self.stopped,
            "restored": list(self.restored),
            "log": list(self.log),
            "diff": diff(self.view.changes if self.done else ()),
        }
        if self.error is not None:
            result.update(failed=True, msg=str(self.error), failure=self.error.failure())
        return result


def run(params: Mapping[str, Any], host: Host, *, check_mode: bool) -> Dict[str, Any]:
    """The result of the module. Raises ``GpuFleetError`` where the daemon was not touched."""
    wish = Wish(**params)
    _refuse_senseless(wish, host.files)
    view = look(host, wish.engine)
    action = decide(view, wish)
    if check_mode or (not action and not _left_over(view, host.files)):
        return Result(view, action, view.ended if action == RESTART else 0).as_dict()
    if not host.may_change:
        raise NotPermitted(
            f"{wish.action} {wish.engine}", cause="not running as root", hint="run the task with become: true"
        )
    from .restart_apply import carry_out

    return carry_out(wish, host).as_dict()


def look(host: Host, engine: str) -> View:
    """Raises ``DeclarationError`` where there is nothing to restart, and ``CannotLook``."""
    try:
        seen = _seen(host, engine)
    except OSError as error:
        raise CannotLook(
            f"look at {engine}", object=str(error.filename or ""), cause=error.strerror or str(error)
        ) from error
    if seen is None:
        raise DeclarationError(f"restart {engine}", cause="it is not installed", hint="leave it out")
    if not seen.configuration.installation.unit:
        raise DeclarationError(
            f"restart {engine}", cause="no unit of systemd starts it", hint="restart it as it was started"
        )
    files = seen.configuration.settings
    # As long as the files do not say what is declared, no restart brings it.
    seen = replace(seen, wanted={name: files.get(name) for name in seen.wanted})
    takes = takes_of(seen)
    return View(seen, late(seen), takes, _ended(host, seen) if takes.action else 0)


def _ended(host: Host, seen: Seen) -> int:
    """Those of Docker end with containerd too where systemd stops dockerd whenever it stops containerd."""
    unit = seen.configuration.installation.unit
    lines = systemd.unit_lines(host.files, DOCKER_UNIT) if seen.engine == CONTAINERD else {}
    bound = " ".join(value for key in BINDS for value in lines.get(f"Unit.{key}", ()))
    if unit not in bound.split():
        return ended_by(seen)
    docker = see(host, DOCKER)
    return ended_by(docker) if docker is not None else 0


def decide(view: View, wish: Wish) -> str:
    """The action to take now, ``NOTHING`` where none is needed, or where it must not be taken while containers run.

    Raises ``DeclarationError`` where the one that is asked for is not enough, and ``InUse``.
    """
    takes, seen = view.takes, view.seen
    if seen.cut_off or not takes.action:
        return takes.action
    if wish.action == RELOAD and takes.action == RESTART:
        raise DeclarationError(
            f"reload {wish.engine}",
            object=view.unit,
            cause=f"that is not enough: {takes.why}",
            hint="say action: restart",
        )
    ended = view.ended if wish.action == RESTART else 0
    if not ended or wish.when_containers_run == RESTART:
        return wish.action
    if wish.when_containers_run == SKIP:
        return NOTHING
    raise InUse(
        f"restart {wish.engine}",
        object=view.unit,
        cause=f"{ended} running container{'s' if ended > 1 else ''}{_of(seen.engine)} would end with it, and it is "
        f"needed: {takes.why}",
        hint="stop them first, declare live_restore: true, or say when_containers_run: restart",
    )


def _of(engine: str) -> str:
    return f" of Docker, whose unit {DOCKER_UNIT} is bound to this one," if engine == CONTAINERD else ""


def _refuse_senseless(wish: Wish, files: Files) -> None:
    if wish.health_timeout <= 0:
        raise DeclarationError(
            f"{wish.action} {wish.engine}",
            object="health_timeout",
            cause=f"it is {wish.health_timeout}, and must be a number of seconds above 0",
        )
    if not systemd.running(files):
        raise DeclarationError(f"{wish.action} {wish.engine}", cause="systemd does not run this machine")


def _left_over(view: View, files: Files) -> bool:
    """Whether what was kept for the way back is of no use any more: the daemon has all that the files say."""
    kept = (previous.path_of(view.seen.engine), marker_of(view.seen.engine))
    return view.seen.running is not None and not view.takes.action and any(files.exists(path) for path in kept)


def _seen(host: Host, engine: str) -> Optional[Seen]:
    """The engine with the settings that are declared, or that we changed and give back, or else that its files have."""
    entry = _declared(host.files, engine)
    if entry is not None:
        return see_entry(host, entry)
    from .plan import look_back

    changed = next((seen for seen in look_back(host).engines if seen.engine == engine), None)
    if changed is not None:
        return changed
    seen = see(host, engine)
    return replace(seen, wanted=seen.configuration.settings) if seen is not None else None


def _declared(files: Files, engine: str) -> Optional[WantedEngine]:
    """The entry of an engine in the declaration that ``container_runtime`` left on the node."""
    given = of_file(files, NAME)
    if given is None:
        return None
    entries = parse(complete({**SHARED_OPTIONS, **OPTIONS}, given)).entries
    return next((entry for entry in entries if entry.engine == engine), None)
