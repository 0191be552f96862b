# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a daemon must take up its files, and what that would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core import baseline
from ..._core.arguments import validated
from ..._core.change import Change
from ..._core.declared import of_file
from ..._core.errors import CannotLook, DeclarationError, GpuFleetError, InUse
from ..._core.setting import EFFECTIVE
from ..._core.shared_options import SHARED_OPTIONS
from ..._core.value import frozen
from ..._linux import systemd
from ...concerns.container_runtime.model import (
    CONTAINERD,
    DOCKER,
    NAME,
    NOTHING,
    RELOAD,
    RESTART,
    RequiredAction,
    WantedEngine,
    shown,
)
from ...concerns.container_runtime.options import OPTIONS
from ...concerns.container_runtime.resolve import (
    EngineDesired,
    containers_ended_by,
    not_taken_up,
    required_action_of,
    resolve,
)
from ...concerns.container_runtime.restore import observe_changed, restore
from ...concerns.container_runtime.spec import ContainerRuntimeDeclaration, changed_in, parse
from ...concerns.container_runtime.state import Engine, inspect, observe

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ...concerns.container_runtime.model import Settings

SKIP = "skip"
DOCKER_UNIT = "docker.service"
# What makes systemd restart a unit with another (systemd.unit(5)).
BINDS = ("Requires", "BindsTo", "PartOf", "Requisite")


@frozen
class RestartOptions:
    """The options. ``health_timeout`` is in seconds."""

    engine: str
    action: str
    health_timeout: int
    when_containers_run: str


@frozen
class EngineView:
    """An engine, with what its files say of the settings that are declared as what is ``wanted``.

    ``not_taken_up`` are those that its daemon does not have, with what it has. ``ended`` is how many containers a
    restart ends.
    """

    seen: Engine
    wanted: Settings
    not_taken_up: Settings
    required_action: RequiredAction
    ended: int = 0

    @property
    def unit(self) -> str:
        return self.seen.configuration.installation.unit

    @property
    def changes(self) -> Tuple[Change, ...]:
        return tuple(
            Change(self.seen.engine, str(name), shown(value), shown(self.wanted[name]), EFFECTIVE)
            for name, value in self.not_taken_up.items()
        )


@frozen
class RestartResult:
    """``done`` is the action that was taken, or would be. ``restored`` are the files that got their previous text."""

    view: EngineView
    done: str = NOTHING
    stopped: int = 0
    restored: Tuple[str, ...] = ()
    log: Tuple[str, ...] = ()
    error: Optional[GpuFleetError] = None

    @property
    def changed(self) -> bool:
        return bool(self.done)

    @property
    def changes(self) -> Tuple[Change, ...]:
        return self.view.changes if self.done else ()

    def report(self) -> Dict[str, Any]:
        required_action, engine = self.view.required_action, self.view.seen.engine
        settings = [
            {"setting": change.setting, "before": change.before, "after": change.after} for change in self.view.changes
        ]
        return {
            "engine": engine,
            "unit": self.view.unit,
            "done": self.done or None,
            "why": required_action.why or None,
            "settings": settings,
            "needs": [f"{required_action.action}_{engine}"] if required_action.action and not self.done else [],
            "stopped_containers": self.stopped,
            "restored": list(self.restored),
            "log": list(self.log),
        }


def view_engine(host: Host, engine: str) -> EngineView:
    """Raises ``DeclarationError`` where there is nothing to restart, and ``CannotLook``."""
    try:
        found = _seen(host, engine)
    except OSError as error:
        raise CannotLook(
            f"look at {engine}", object=str(error.filename or ""), cause=error.strerror or str(error)
        ) from error
    if found is None:
        raise DeclarationError(f"restart {engine}", cause="it is not installed", hint="leave it out")
    seen, desired = found
    if not seen.configuration.installation.unit:
        raise DeclarationError(
            f"restart {engine}", cause="no unit of systemd starts it", hint="restart it as it was started"
        )
    files = seen.configuration.settings
    # As long as the files do not say what is declared, no restart brings it.
    desired = EngineDesired({name: files.get(name) for name in desired.wanted}, baseline=desired.baseline)
    required_action = required_action_of(seen, desired)
    ended = _ended(host, seen) if required_action.action else 0
    return EngineView(seen, desired.wanted, not_taken_up(seen, desired), required_action, ended)


def _ended(host: Host, seen: Engine) -> int:
    """Those of Docker end with containerd too where systemd stops dockerd whenever it stops containerd."""
    unit = seen.configuration.installation.unit
    lines = systemd.unit_lines(host.files, DOCKER_UNIT) if seen.engine == CONTAINERD else {}
    bound = " ".join(value for key in BINDS for value in lines.get(f"Unit.{key}", ()))
    if unit not in bound.split():
        return containers_ended_by(seen)
    docker = inspect(host, DOCKER)
    return containers_ended_by(docker) if docker is not None else 0


def decide(view: EngineView, options: RestartOptions) -> str:
    """The action to take now, ``NOTHING`` where none is needed, or where it must not be taken while containers run.

    Raises ``DeclarationError`` where the one that is asked for is not enough, and ``InUse``.
    """
    required_action, seen = view.required_action, view.seen
    if seen.interrupted_restart or not required_action.action:
        return required_action.action
    if options.action == RELOAD and required_action.action == RESTART:
        raise DeclarationError(
            f"reload {options.engine}",
            object=view.unit,
            cause=f"that is not enough: {required_action.why}",
            hint="set action: restart",
        )
    ended = view.ended if options.action == RESTART else 0
    if not ended or options.when_containers_run == RESTART:
        return options.action
    if options.when_containers_run == SKIP:
        return NOTHING
    raise InUse(
        f"restart {options.engine}",
        object=view.unit,
        cause=f"{ended} running container{'s' if ended > 1 else ''}{_of(seen.engine)} would end with it, and it is "
        f"needed because {required_action.why}",
        hint="stop them first, set live_restore: true, or set when_containers_run: restart",
    )


def _of(engine: str) -> str:
    return f" of Docker, whose unit {DOCKER_UNIT} is bound to this one," if engine == CONTAINERD else ""


def _seen(host: Host, engine: str) -> Optional[Tuple[Engine, EngineDesired]]:
    """The engine with the settings that are declared, or that we changed and restore, or else that its files have."""
    entry = _declared(host.files, engine)
    if entry is not None:
        state = observe(host, ContainerRuntimeDeclaration((entry,)))
        desired = resolve(state.declaration, state)
    else:
        state = observe_changed(host, ContainerRuntimeDeclaration(changed=changed_in(baseline.load(host.files, NAME))))
        desired = restore(state.declaration.changed, state)
    for seen in state.engines:
        if seen.engine == engine:
            return seen, desired.engines[engine]
    here = inspect(host, engine)
    return (here, EngineDesired(here.configuration.settings)) if here is not None else None


def _declared(files: Files, engine: str) -> Optional[WantedEngine]:
    """The entry of an engine in the declaration that ``container_runtime`` left on the node."""
    given = of_file(files, NAME)
    if given is None:
        return None
    entries = parse(whole(given)).entries
    return next((entry for entry in entries if entry.engine == engine), None)


def whole(given: Mapping[str, Any]) -> Dict[str, Any]:
    """A declaration of ``container_runtime`` with all its options."""
    return validated({**SHARED_OPTIONS, **OPTIONS}, given, stored=True)
