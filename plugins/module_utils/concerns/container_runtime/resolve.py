# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of the engines that are there, and what their daemons need to have it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import field, frozen
from .entries import CDI, TOOLKIT
from .model import (
    DOCKER,
    LIVE_RESTORE,
    NOT_KNOWN,
    NOTHING,
    RESTART,
    RUNTIME,
    RequiredAction,
    SettingName,
    Settings,
    WantedEngine,
    shown,
)
from .spec import RUNTIME_PATH
from .state import NO_FILE

if TYPE_CHECKING:
    from .leftover import Leftover
    from .model import Edit
    from .spec import ContainerRuntimeDeclaration
    from .state import ContainerRuntimeState, Engine

NOT_INSTALLED = "it is not installed"
SPECIFICATION = "specification"
UNTOLD = "no driver is loaded, or a specification cannot be read, so it is not known whether it is current"


@frozen
class EngineDesired:
    """What is wanted of one engine.

    ``entry`` is None for ``state: absent``; ``baseline`` is then what its daemon had before our first change, and
    ``edits`` are the files as they go back. ``missing`` says why the engine cannot start the runtime that is wanted,
    and is empty where it can. ``leftover`` is what others say of what an entry wants gone.
    """

    wanted: Settings
    entry: Optional[WantedEngine] = None
    baseline: Settings = field(default_factory=dict)
    missing: str = ""
    leftover: Optional[Leftover] = None
    edits: Tuple[Edit, ...] = ()


@frozen
class ContainerRuntimeDesired:
    """What is wanted, by engine. ``refresh``: the CDI specification has to be current."""

    engines: Mapping[str, EngineDesired]
    unmanaged: Tuple[Unmanaged, ...] = ()
    refresh: bool = False


def resolve(declaration: ContainerRuntimeDeclaration, state: ContainerRuntimeState) -> ContainerRuntimeDesired:
    """Raises ``DeclarationError`` on what an engine does not take, and on a path of which it could make nothing."""
    there = {seen.engine: seen for seen in state.engines}
    unmanaged: List[Unmanaged] = []
    engines: Dict[str, EngineDesired] = {}
    for entry in declaration.entries:
        seen = there.get(entry.engine)
        if seen is None:
            # Nobody can be asked what the entry means.
            names = tuple(entry.options) if entry.engine == TOOLKIT else (str(_runtime_of(entry)),)
            unmanaged.extend(Unmanaged(entry.engine, name, NOT_INSTALLED) for name in names)
        else:
            engines[entry.engine] = _desired(entry, seen, state.unusable)
    can_refresh = bool(state.specification and state.refresh)
    if declaration.refresh and not can_refresh:
        unmanaged.append(Unmanaged(CDI, SPECIFICATION, NOT_INSTALLED if state.specification else UNTOLD))
    return ContainerRuntimeDesired(engines, tuple(unmanaged), declaration.refresh and can_refresh)


def _desired(entry: WantedEngine, seen: Engine, unusable: Mapping[str, str]) -> EngineDesired:
    wanted = seen.kind.wanted(entry, seen.configuration)
    specification = entry.options.get("base_runtime_spec")
    if specification in unusable:
        # containerd's CRI plugin does not load without it.
        raise DeclarationError(
            "set base_runtime_spec in containerd",
            object=str(specification),
            cause=unusable[str(specification)],
            hint="correct base_runtime_spec, or put the file there first",
        )
    starts = entry.runtime_path in unusable and wanted.get(_runtime_of(entry)) is not None
    missing = _missing(entry, unusable[entry.runtime_path]) if starts else ""
    return EngineDesired(wanted, entry, missing=missing, leftover=seen.leftover)


def _runtime_of(entry: WantedEngine) -> SettingName:
    return SettingName(RUNTIME, entry.runtime_name)


def _missing(entry: WantedEngine, cause: str) -> str:
    """Why a runtime cannot be started. Raises ``DeclarationError`` where nothing that we run will mend that."""
    if cause == NO_FILE and entry.runtime_path == RUNTIME_PATH:
        # The package may come with this very run, before the engines are configured.
        return "which does not exist"
    raise DeclarationError(
        f"use {{}} as the runtime {entry.runtime_name} of {entry.engine}",
        object=entry.runtime_path,
        cause=cause,
        hint=f"correct runtime_path; the package nvidia-container-toolkit has it as {RUNTIME_PATH}",
    )


def effective_of(seen: Engine, wanted: Settings) -> Dict[SettingName, Scalar]:
    """What is in effect of the settings that are wanted. An engine that runs nothing has what its files say.

    Nobody knows whether it can run with them where our restart left it without its daemon.
    """
    files, running = seen.configuration.settings, seen.running
    if seen.interrupted_restart:
        return dict.fromkeys(wanted, NOT_KNOWN)
    if running is None:
        return {name: files.get(name) for name in wanted}
    unsaid = NOT_KNOWN if running.stale else None
    return {name: running.settings.get(name, unsaid) for name in wanted}


def not_taken_up(seen: Engine, desired: EngineDesired) -> Dict[SettingName, Scalar]:
    """The settings that the daemon does not have as they are wanted, with what it has."""
    found: Dict[SettingName, Scalar] = {}
    for name, value in effective_of(seen, desired.wanted).items():
        wanted = desired.wanted[name]
        same = value == wanted or (name in desired.baseline and shown(value) == desired.baseline[name])
        if not same and (value == NOT_KNOWN or not _as_good(seen, name, value, wanted)):
            found[name] = value
    return found


def required_action_of(seen: Engine, desired: EngineDesired) -> RequiredAction:
    """What brings into effect what is wanted, once the files say it."""
    if seen.interrupted_restart:
        return RequiredAction(RESTART, "an earlier restart did not finish")
    behind = not_taken_up(seen, desired) if seen.running is not None else {}
    if not behind:
        return RequiredAction(NOTHING)
    files, running = seen.configuration.settings, seen.running
    # What both have alike needs nothing, and may tell what a change beside it needs.
    alike = {name: value for name, value in files.items() if running and running.settings.get(name) == value}
    before = {name: value for name, value in effective_of(seen, desired.wanted).items() if value != NOT_KNOWN}
    required_action = seen.kind.required_action({**alike, **before}, {**alike, **desired.wanted})
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
