# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container engines as their daemons have them, as their files will bring them at the next start, and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Tuple

from ..._core.change import Conflict, Unmanaged
from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import field, frozen, replace
from .kinds import kind_of
from .model import (
    DOCKER,
    LIVE_RESTORE,
    NOT_KNOWN,
    NOTHING,
    RESTART,
    RUNTIME,
    Configuration,
    Kind,
    RequiredAction,
    RunningDaemon,
    SettingName,
    Settings,
    WantedEngine,
    shown,
)
from .spec import RUNTIME_PATH

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .leftover import Leftover
    from .model import Edit
    from .original_files import OriginalFile

NOT_INSTALLED = "it is not installed"
SPECIFICATION = "specification"
# There while a restart of ours is under way; a boot ends that too.
UNDER_WAY = "/run/gpufleet/container_engine_restart"


@frozen
class Engine:
    """One engine as it is, and what is wanted of it.

    ``entry`` is None for ``state: absent``; ``baseline`` is then what its daemon had before our first change.
    ``missing`` says why the engine cannot start the runtime that is wanted, and is empty where it can.
    ``interrupted_restart``: no daemon runs, because a restart of ours did not come to its end. ``leftover`` is what
    others say of what an entry wants gone, and ``restore_edits`` are the edits of ``state: absent``.
    """

    kind: Kind
    configuration: Configuration
    running: Optional[RunningDaemon]
    wanted: Settings
    entry: Optional[WantedEngine] = None
    baseline: Settings = field(default_factory=dict)
    missing: str = ""
    interrupted_restart: bool = False
    leftover: Optional[Leftover] = None
    restore_edits: Tuple[Edit, ...] = ()

    @property
    def engine(self) -> str:
        return self.configuration.installation.engine


@frozen
class ContainerRuntimeState:
    """What was seen. ``lacking`` are the settings of what is not installed.

    ``specification`` is what is wrong with that of CDI (``cdi.state_of``), where it is to be made anew by ``refresh``.
    ``originals`` are the files that we changed, read for ``state: absent`` alone. ``conflicts`` are what others say of
    what we restore or take out.
    """

    engines: Tuple[Engine, ...]
    lacking: Tuple[Unmanaged, ...] = ()
    specification: str = ""
    refresh: Tuple[str, ...] = ()
    originals: Tuple[OriginalFile, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()


def inspect(host: Host, engine: str) -> Optional[Engine]:
    """An engine, the toolkit or CDI, with nothing wanted of it; None where it is not installed."""
    kind = kind_of(engine)
    installation = kind.find(host)
    if installation is None:
        return None
    configuration = kind.read(host.files, installation)
    running = kind.running(host, configuration)
    interrupted_restart = running is None and host.files.exists(marker_of(engine))
    return Engine(kind, configuration, running, wanted={}, interrupted_restart=interrupted_restart)


def inspect_entry(host: Host, entry: WantedEngine) -> Optional[Engine]:
    """The engine of an entry with what is wanted of it, None where it is not installed."""
    seen = inspect(host, entry.engine)
    if seen is None:
        return None
    wanted = seen.kind.wanted(entry, seen.configuration)
    if "base_runtime_spec" in entry.options:
        from .containerd.options import refuse_missing

        refuse_missing(host.files, entry.options["base_runtime_spec"])
    # The toolkit and CDI have none.
    starts = bool(entry.runtime_name) and wanted.get(runtime_of(entry)) is not None
    missing = _missing(host.files, entry) if starts else ""
    seen = replace(seen, wanted=wanted, entry=entry, missing=missing)
    if entry.present or all(seen.configuration.settings.get(name) == value for name, value in wanted.items()):
        return seen
    from . import leftover

    edits = seen.kind.edit(seen.configuration, entry)
    left = leftover.find(host, seen.kind, seen.configuration.installation, wanted, edits)
    return replace(seen, leftover=left)


def marker_of(engine: str) -> str:
    return f"{UNDER_WAY}/{engine}"


def runtime_of(entry: WantedEngine) -> SettingName:
    return SettingName(RUNTIME, entry.runtime_name)


def effective_of(seen: Engine) -> Dict[SettingName, Scalar]:
    """What is in effect of the settings that are wanted. An engine that runs nothing has what its files say.

    Nobody knows whether it can run with them where our restart left it without its daemon.
    """
    files, running = seen.configuration.settings, seen.running
    if seen.interrupted_restart:
        return dict.fromkeys(seen.wanted, NOT_KNOWN)
    if running is None:
        return {name: files.get(name) for name in seen.wanted}
    unsaid = NOT_KNOWN if running.stale else None
    return {name: running.settings.get(name, unsaid) for name in seen.wanted}


def not_taken_up(seen: Engine) -> Dict[SettingName, Scalar]:
    """The settings that the daemon does not have as they are wanted, with what it has."""
    found: Dict[SettingName, Scalar] = {}
    for name, value in effective_of(seen).items():
        wanted = seen.wanted[name]
        same = value == wanted or (name in seen.baseline and shown(value) == seen.baseline[name])
        if not same and (value == NOT_KNOWN or not _as_good(seen, name, value, wanted)):
            found[name] = value
    return found


def required_action_of(seen: Engine) -> RequiredAction:
    """What brings into effect what is wanted, once the files say it."""
    if seen.interrupted_restart:
        return RequiredAction(RESTART, "an earlier restart did not finish")
    behind = not_taken_up(seen) if seen.running is not None else {}
    if not behind:
        return RequiredAction(NOTHING)
    files, running = seen.configuration.settings, seen.running
    # What both have alike needs nothing, and may tell what a change beside it needs.
    alike = {name: value for name, value in files.items() if running and running.settings.get(name) == value}
    before = {name: value for name, value in effective_of(seen).items() if value != NOT_KNOWN}
    required_action = seen.kind.required_action({**alike, **before}, {**alike, **seen.wanted})
    return (
        required_action
        if required_action.action
        else RequiredAction(RESTART, f"it does not report {', '.join(map(str, behind))}")
    )


def containers_ended_by(seen: Engine) -> int:
    """How many containers end with a restart. Only those of Docker do, and with live restore in its file none.

    A daemon that has not taken that up yet is reloaded first, and one in a swarm is refused the restart, for it would
    not start with it. One that starts without it ends what it finds.
    """
    if seen.running is None or seen.engine != DOCKER or seen.configuration.settings.get(LIVE_RESTORE):
        return 0
    return seen.running.containers or 0


def _as_good(seen: Engine, name: SettingName, value: Scalar, wanted: Scalar) -> bool:
    """Whether a daemon has what is wanted although it calls it otherwise, such as a default by its name."""
    return seen.running is not None and seen.kind.required_action({name: value}, {name: wanted}).action == NOTHING


def _missing(files: Files, entry: WantedEngine) -> str:
    """Why a runtime cannot be started. Raises ``DeclarationError`` where nothing that we run will mend that."""
    path = entry.runtime_path
    there = files.exists(path)
    if there and files.mode(path) & 0o111 and not files.is_folder(path):
        return ""
    cause = "it cannot be executed" if there else "it does not exist"
    if not there and path == RUNTIME_PATH:
        # The package may come with this very run, before the engines are configured.
        return "which does not exist"
    raise DeclarationError(
        f"use {{}} as the runtime {entry.runtime_name} of {entry.engine}",
        object=path,
        cause=cause,
        hint=f"correct runtime_path; the package nvidia-container-toolkit has it as {RUNTIME_PATH}",
    )
