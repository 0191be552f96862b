# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps from the tools that are on the node to the declared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from ..._core.change import RoomAction, Step
from ..._core.errors import DeclarationError, OwnedByAnother
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._linux import systemd
from ..._linux.boot_service import UNIT
from ..._linux.program import ARCHIVE, ON_PATH, PROGRAM
from .state import BYTECODE, COMMAND, LAUNCHER, MODE, UNIT_FILE, UNIT_PATH, NodeToolsDesired, NodeToolsState

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .owners import Exposed


@frozen
class InstallArchive(RoomAction):
    """Give the archive this content, which must have this sum."""

    writes = (ARCHIVE,)
    content: Optional[bytes]
    digest: str


@frozen
class CompileProgram(RoomAction):
    """Compile the archive that is there, for looks without a module."""


@frozen
class Protect(RoomAction):
    """Give what is ours the owner and mode that it must have, and take away what somebody else put there."""

    places: Tuple[Exposed, ...]


@frozen
class RemoveArchive(RoomAction):
    """Remove the archive, and its folder where nothing else is in it."""


@frozen
class EnableUnit(RoomAction):
    """Make the links that the unit asks for, or remove all."""

    programs = ("systemctl",)
    enable: bool


def early_units(files: Files, units: Sequence[str]) -> Tuple[str, ...]:
    """Those that start before basic.target, which the boot service waits for: none of them can wait for it."""
    found = []
    for unit in units:
        lines = systemd.unit_lines(files, unit)
        if lines.get("Unit.DefaultDependencies", ("yes",))[-1:] in (("no",), ("false",), ("off",), ("0",)):
            found.append(unit)
    return tuple(found)


def refuse_impossible(state: NodeToolsState) -> None:
    """Raise what stands in the way of another unit than the one that is there."""
    if state.unsafe:
        raise OwnedByAnother(
            "keep the program and the declarations of this node",
            cause=state.unsafe,
            hint="fix its owner or mode with chown or chmod, and run again",
        )
    if state.masked:
        raise OwnedByAnother(
            "install the boot service",
            object=UNIT_PATH,
            cause="it is masked",
            hint=f"run systemctl unmask {UNIT}, or set permanent: false",
        )
    if state.early:
        raise DeclarationError(
            "use {}",
            object="boot_before",
            cause="it starts before basic.target, which the boot service waits for",
            found=state.early[0],
            hint="remove it from boot_before",
        )


def steps_of(
    state: NodeToolsState, desired: NodeToolsDesired, settings: Sequence[Setting], *, sent: Optional[bytes]
) -> Tuple[Step, ...]:
    """The archive and the command first: a unit that has nothing to start is not left behind by a failure."""
    wrong = {setting.setting: setting for setting in settings if setting.status != IN_SYNC}
    files: List[Step] = []
    if "archive" in wrong and desired.archive is not None and sent is None:
        # Another run may have taken it away since the module said that it needs none: before anything is changed.
        files.append(Step(InstallArchive(None, desired.archive)))
    if state.exposed and desired.archive is not None and MODE in wrong:
        changes = tuple(effective_change(setting) for setting in settings if setting.setting == MODE)
        files.append(Step(Protect(state.exposed), changes))
    if "archive" in wrong:
        install = RemoveArchive() if desired.archive is None else InstallArchive(sent, desired.archive)
        files.append(Step(install, (effective_change(wrong["archive"]),)))
    if BYTECODE in wrong and desired.archive is not None:
        files.append(Step(CompileProgram(), (effective_change(wrong[BYTECODE]),)))
    for name, path, text in ((LAUNCHER, PROGRAM, desired.launcher), (COMMAND, ON_PATH, desired.command)):
        if name in wrong:
            files.append(Step(file_action(path, text, 0o755), (effective_change(wrong[name]),)))
    unit: List[Step] = []
    if "enabled" in wrong:
        unit.append(Step(EnableUnit(bool(desired.links)), (boot_change(wrong["enabled"]),)))
    replace, reload = state.unit.steps(wrong.get(UNIT_FILE), desired.unit)
    # systemctl takes links away only while the unit is there, and makes them by what it says.
    unit = [*replace, *unit, *reload] if desired.unit is not None else [*unit, *replace, *reload]
    return (*files, *unit) if desired.unit is not None else (*unit, *files)
