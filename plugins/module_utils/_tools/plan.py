# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way from what is on the node to what is declared. Imported when something differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from .._core.change import RIGHT, RoomAction, Setting, Step
from .._core.errors import DeclarationError, OwnedByAnother
from .._core.planning import at_boot, effective, file_of
from .._host import systemd
from .._host.boot_service import PROGRAM, UNIT
from .._host.systemd_apply import AnnounceUnit, ReloadUnits
from .look import MODE, UNIT_PATH, Desired, State

if TYPE_CHECKING:
    from .._host.protocols import Files
    from .owners import Exposed


@dataclass(frozen=True)
class InstallArchive(RoomAction):
    """Give the archive this content, which must have this sum."""

    content: Optional[bytes]
    digest: str


@dataclass(frozen=True)
class Protect(RoomAction):
    """Give what is ours the owner and mode that it must have, and take away what somebody else put there."""

    places: Tuple[Exposed, ...]


@dataclass(frozen=True)
class RemoveArchive(RoomAction):
    """Remove the archive, and its folder where nothing else is in it."""


@dataclass(frozen=True)
class EnableUnit(RoomAction):
    """Make the links that the unit asks for, or remove all."""

    enable: bool


def early_units(files: Files, units: Sequence[str]) -> Tuple[str, ...]:
    """Those that start before basic.target, which the boot service waits for: none of them can wait for it."""
    found = []
    for unit in units:
        lines = systemd.unit_lines(files, unit)
        if lines.get("Unit.DefaultDependencies", ("yes",))[-1:] in (("no",), ("false",), ("off",), ("0",)):
            found.append(unit)
    return tuple(found)


def refuse_impossible(state: State) -> None:
    """Raise what stands in the way of another unit than the one that is there."""
    if state.unsafe:
        raise OwnedByAnother(
            "keep the program and the declarations of this node",
            cause=state.unsafe,
            hint="correct its owner or mode with chown or chmod, and run again",
        )
    if state.masked:
        raise OwnedByAnother(
            "install the boot service",
            object=UNIT_PATH,
            cause="somebody masked it",
            hint=f"run systemctl unmask {UNIT}, or say permanent: false",
        )
    if state.early:
        raise DeclarationError(
            "order the boot service",
            object="boot_before",
            cause="it starts before basic.target, which the boot service waits for",
            found=state.early[0],
            hint="take it out of boot_before",
        )


def steps_of(state: State, desired: Desired, settings: Sequence[Setting], *, sent: Optional[bytes]) -> Tuple[Step, ...]:
    """The archive and the command first: a unit that has nothing to start is not left behind by a failure."""
    wrong = {setting.setting: setting for setting in settings if setting.status != RIGHT}
    files: List[Step] = []
    if "archive" in wrong and desired.archive is not None and sent is None:
        # Another run may have taken it away since the module said that it needs none: before anything is changed.
        files.append(Step(InstallArchive(None, desired.archive)))
    if state.exposed and desired.archive is not None and MODE in wrong:
        changes = tuple(effective(setting) for setting in settings if setting.setting == MODE)
        files.append(Step(Protect(state.exposed), changes))
    if "archive" in wrong:
        install = RemoveArchive() if desired.archive is None else InstallArchive(sent, desired.archive)
        files.append(Step(install, (effective(wrong["archive"]),)))
    if "command" in wrong:
        files.append(Step(file_of(PROGRAM, desired.launcher, 0o755), (effective(wrong["command"]),)))
    unit: List[Step] = []
    if "enabled" in wrong:
        unit.append(Step(EnableUnit(bool(desired.links)), (at_boot(wrong["enabled"]),)))
    text = wrong.get("unit")
    if text is not None and text.boot != text.wanted:
        replace = (Step(AnnounceUnit(UNIT)), Step(file_of(UNIT_PATH, desired.unit), (at_boot(text),)))
        # systemctl takes links away only while the unit is there, and makes them by what it says.
        unit = [*replace, *unit] if desired.unit is not None else [*unit, *replace]
        unit.append(Step(ReloadUnits()))
    elif text is not None and not text.pending:
        unit.append(Step(ReloadUnits(), (effective(text),)))
    return (*files, *unit) if desired.unit is not None else (*unit, *files)
