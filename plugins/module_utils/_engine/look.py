# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``container_runtime``: container engines as their daemons have them, as their files will bring them at
the next start, and as declared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from .._core.change import DIFFERS, Change, Conflict, Plan, Setting, Step, Unmanaged
from .._core.errors import DeclarationError, Scalar
from .kinds import kind_of
from .model import (
    DOCKER,
    ENGINES,
    NOT_KNOWN,
    NOTHING,
    RESTART,
    RUNTIME,
    Configuration,
    Kind,
    Running,
    Settings,
    Takes,
    WantedEngine,
    shown,
)
from .spec import CDI, CURRENT, NAME, OPTIONS, RUNTIME_PATH, TOOLKIT, parse

if TYPE_CHECKING:
    from .._core.before import Before
    from .._core.obstacle import Obstacle
    from .._host.protocols import Files, Host
    from .found import Kept
    from .leftover import Leftover
    from .model import Edit

NOT_INSTALLED = "it is not installed"
UNTOLD = "no driver is loaded, or a specification cannot be read, so that nobody can tell whether it is right"
SPECIFICATION = "specification"
# There while a restart of ours is under way; a boot ends that too.
UNDER_WAY = "/run/gpufleet/container_engine_restart"


@dataclass(frozen=True)
class Seen:
    """One engine as it is, and what is wanted of it.

    ``entry`` is None for ``state: absent``; ``found`` is then what its daemon had before our first change. ``missing``
    says why the engine cannot start the runtime that is wanted, and is empty where it can. ``cut_off``: no daemon runs,
    because a restart of ours did not come to its end. ``left`` is what others say of what an entry wants gone, and
    ``back`` are the edits of ``state: absent``.
    """

    kind: Kind
    configuration: Configuration
    running: Optional[Running]
    wanted: Settings
    entry: Optional[WantedEngine] = None
    found: Settings = field(default_factory=dict)
    missing: str = ""
    cut_off: bool = False
    left: Optional[Leftover] = None
    back: Tuple[Edit, ...] = ()

    @property
    def engine(self) -> str:
        return self.configuration.installation.engine


@dataclass(frozen=True)
class State:
    """What was seen. ``lacking`` are the settings of what is not installed.

    ``specification`` is what is wrong with that of CDI (``cdi.state_of``), where it is to be made anew by ``refresh``.
    ``kept`` are the files that we changed, read for ``state: absent`` alone. ``conflicts`` are what others say of what
    we give back or take out.
    """

    engines: Tuple[Seen, ...]
    lacking: Tuple[Unmanaged, ...] = ()
    specification: str = ""
    refresh: Tuple[str, ...] = ()
    kept: Tuple[Kept, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()


@dataclass(frozen=True)
class Desired:
    """``giving_back`` is ``state: absent``."""

    unmanaged: Tuple[Unmanaged, ...] = ()
    immediate: bool = True
    permanent: bool = True
    giving_back: bool = False


class ContainerRuntime:
    """``road.Concern`` for container engines."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        _refuse_running_only(params)
        if params["state"] == "absent":
            from .plan import look_back

            return look_back(host)
        declaration = parse(params)
        engines: List[Seen] = []
        lacking: List[Unmanaged] = []
        for entry in declaration.entries:
            seen = see_entry(host, entry)
            if seen is None:
                lacking.extend(Unmanaged(entry.engine, name, NOT_INSTALLED) for name in _named(entry))
            else:
                engines.append(seen)
        conflicts = tuple(one for seen in engines if seen.left for one in seen.left.conflicts)
        if not declaration.refresh:
            return State(tuple(engines), tuple(lacking), conflicts=conflicts)
        specification, refresh = _refresh(host, engines[-1].configuration)
        if not specification or not refresh:
            lacking.append(Unmanaged(CDI, SPECIFICATION, NOT_INSTALLED if specification else UNTOLD))
            specification = ""
        return State(tuple(engines), tuple(lacking), specification, refresh, conflicts=conflicts)

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        if params["strict"] and state.lacking:
            first = state.lacking[0]
            raise DeclarationError(
                f"set {first.setting}",
                object=first.object,
                cause=first.reason,
                hint="leave it out, or say strict: false",
            )
        return Desired(state.lacking, immediate=params["immediate"], permanent=params["permanent"])

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        return Desired(state.lacking, params["immediate"], params["permanent"], giving_back=True)

    def plan(self, state: State, desired: Desired) -> Plan:
        settings = tuple(
            row
            for seen in state.engines
            for row in rows_of(seen, immediate=desired.immediate, permanent=desired.permanent)
        )
        if state.specification:
            settings += (_specification(state, desired),)
        steps: Tuple[Step, ...] = ()
        obstacle: Optional[Obstacle] = None
        if desired.giving_back or any(setting.status == DIFFERS for setting in settings):
            from .plan import in_the_way, plan_steps

            settings, steps = plan_steps(state, desired, settings)
            obstacle = None if steps else in_the_way(state)
        return Plan(settings, steps, desired.unmanaged, state.conflicts, obstacle)

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {"engines": {}}
        boot: Dict[str, Any] = {"engines": {}}
        for seen in state.engines:
            files = [document.path for document in seen.configuration.documents if document.text is not None]
            at_boot = {"files": files, "settings": dict(seen.configuration.settings)}
            if seen.engine in ENGINES:
                effective["engines"][seen.engine] = _report(seen)
                boot["engines"][seen.engine] = at_boot
            else:
                effective[seen.engine] = boot[seen.engine] = at_boot
        return effective, boot


CONCERN = ContainerRuntime()


def see(host: Host, engine: str) -> Optional[Seen]:
    """An engine, the toolkit or CDI, with nothing wanted of it; None where it is not installed."""
    kind = kind_of(engine)
    installation = kind.find(host)
    if installation is None:
        return None
    configuration = kind.read(host.files, installation)
    running = kind.running(host, configuration)
    cut_off = running is None and host.files.exists(marker_of(engine))
    return Seen(kind, configuration, running, wanted={}, cut_off=cut_off)


def see_entry(host: Host, entry: WantedEngine) -> Optional[Seen]:
    """The engine of an entry with what is wanted of it, None where it is not installed."""
    seen = see(host, entry.engine)
    if seen is None:
        return None
    wanted = seen.kind.wanted(entry, seen.configuration)
    if "base_runtime_spec" in entry.options:
        from .containerd_options import refuse_missing

        refuse_missing(host.files, entry.options["base_runtime_spec"])
    missing = _missing(host.files, entry) if wanted.get(runtime_of(entry)) is not None else ""
    seen = replace(seen, wanted=wanted, entry=entry, missing=missing)
    if entry.present or all(seen.configuration.settings.get(name) == value for name, value in wanted.items()):
        return seen
    from . import leftover

    left = leftover.find(host, seen, seen.kind.edit(seen.configuration, entry))
    return replace(seen, left=left)


def marker_of(engine: str) -> str:
    return f"{UNDER_WAY}/{engine}"


def _named(entry: WantedEngine) -> Tuple[str, ...]:
    """What an entry is about, where nobody can be asked what that means."""
    return tuple(entry.options) if entry.engine == TOOLKIT else (runtime_of(entry),)


def runtime_of(entry: WantedEngine) -> str:
    return f"{RUNTIME}{entry.runtime_name}"


def effective_of(seen: Seen) -> Dict[str, Scalar]:
    """What is in effect of the settings that are wanted. An engine that runs nothing has what its files say.

    Nobody knows whether it can run with them where our restart left it without its daemon.
    """
    files, running = seen.configuration.settings, seen.running
    if seen.cut_off:
        return dict.fromkeys(seen.wanted, NOT_KNOWN)
    if running is None:
        return {name: files.get(name) for name in seen.wanted}
    unsaid = NOT_KNOWN if running.stale else None
    return {name: running.settings.get(name, unsaid) for name in seen.wanted}


def late(seen: Seen) -> Dict[str, Scalar]:
    """The settings that the daemon does not have as they are wanted, with what it has."""
    found: Dict[str, Scalar] = {}
    for name, value in effective_of(seen).items():
        wanted = seen.wanted[name]
        same = value == wanted or (name in seen.found and shown(value) == seen.found[name])
        if not same and (value == NOT_KNOWN or not _as_good(seen, name, value, wanted)):
            found[name] = value
    return found


def takes_of(seen: Seen) -> Takes:
    """What brings into effect what is wanted, once the files say it."""
    if seen.cut_off:
        return Takes(RESTART, "an earlier restart did not come to its end")
    behind = late(seen) if seen.running is not None else {}
    if not behind:
        return Takes(NOTHING)
    files, running = seen.configuration.settings, seen.running
    # What both have alike needs nothing, and may tell what a change beside it needs.
    alike = {name: value for name, value in files.items() if running and running.settings.get(name) == value}
    before = {name: value for name, value in effective_of(seen).items() if value != NOT_KNOWN}
    takes = seen.kind.takes({**alike, **before}, {**alike, **seen.wanted})
    return takes if takes.action else Takes(RESTART, f"it does not say what it has of {', '.join(behind)}")


def ended_by(seen: Seen) -> int:
    """How many containers end with a restart. Only those of Docker do, and with live restore in its file none.

    A daemon that has not taken that up yet is reloaded first, and one in a swarm is refused the restart, for it would
    not start with it. One that starts without it ends what it finds.
    """
    if seen.running is None or seen.engine != DOCKER or seen.configuration.settings.get("live_restore"):
        return 0
    return seen.running.containers or 0


def rows_of(seen: Seen, *, immediate: bool, permanent: bool) -> Tuple[Setting, ...]:
    """The settings three ways."""
    behind, takes = late(seen), takes_of(seen)
    pending = f"{seen.engine} needs a {takes.action}: {takes.why}" if takes.action else ""
    rows = []
    for name, wanted in seen.wanted.items():
        boot = seen.configuration.settings.get(name)
        effective = behind.get(name, wanted)
        if seen.missing and name.startswith(RUNTIME):
            boot, effective = _gone(boot, seen), _gone(effective, seen)
        rows.append(
            Setting(
                object=seen.engine,
                setting=name,
                wanted=shown(wanted),
                effective=shown(effective),
                boot=shown(boot),
                identity=seen.engine,
                effective_matters=immediate,
                boot_matters=permanent,
                pending=pending if name in behind else "",
                needs=f"{takes.action}_{seen.engine}",
            )
        )
    return tuple(rows)


def _refresh(host: Host, configuration: Configuration) -> Tuple[str, Tuple[str, ...]]:
    """What is wrong with the CDI specification, empty where nobody can tell, and the command that makes it anew."""
    from . import cdi

    return cdi.state_of(host.files, configuration.parsed), cdi.refresh_command(host, configuration.parsed)


def _specification(state: State, desired: Desired) -> Setting:
    return Setting(
        object=CDI,
        setting=SPECIFICATION,
        wanted=CURRENT,
        effective=state.specification,
        boot=None,
        identity=CDI,
        effective_matters=desired.immediate,
        boot_matters=False,
    )


def _as_good(seen: Seen, name: str, value: Scalar, wanted: Scalar) -> bool:
    """Whether a daemon has what is wanted although it calls it otherwise, such as a default by its name."""
    return seen.running is not None and seen.kind.takes({name: value}, {name: wanted}).action == NOTHING


def _gone(value: Scalar, seen: Seen) -> Scalar:
    return None if value is None else f"{value}, {seen.missing}"


def _missing(files: Files, entry: WantedEngine) -> str:
    """Why a runtime cannot be started. Raises ``DeclarationError`` where nothing that we run will mend that."""
    path = entry.runtime_path
    there = files.exists(path)
    if there and files.mode(path) & 0o111 and not files.is_folder(path):
        return ""
    cause = "it cannot be executed" if there else "it is not there"
    if not there and path == RUNTIME_PATH:
        # The package may come with this very run, before the engines are told.
        return "which is not there"
    raise DeclarationError(
        f"use the runtime {entry.runtime_name} in {entry.engine}",
        object=path,
        cause=cause,
        hint=f"correct runtime_path; the package nvidia-container-toolkit has it as {RUNTIME_PATH}",
    )


def _refuse_running_only(params: Mapping[str, Any]) -> None:
    if params["immediate"] and not params["permanent"]:
        raise DeclarationError(
            "configure container engines",
            object="permanent",
            cause="it is false, and all that an engine has comes from files, which the next boot brings too",
            hint="say permanent: true, or immediate: false as well",
        )


def _report(seen: Seen) -> Dict[str, Any]:
    installation, running, takes = seen.configuration.installation, seen.running, takes_of(seen)
    settings = seen.configuration.settings if running is None else running.settings
    return {
        "flavour": installation.flavour or None,
        "version": (running.version if running else "") or ".".join(str(part) for part in installation.version) or None,
        "running": running is not None,
        "containers": running.containers if running else None,
        "settings": dict(settings),
        "takes": takes.action or None,
        "why": takes.why or None,
        "stops_containers": ended_by(seen) if takes.action == RESTART else 0,
    }
