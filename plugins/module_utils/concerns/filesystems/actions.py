# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only mounts have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.change import RoomAction
from ..._core.value import frozen

if TYPE_CHECKING:
    from .made import Made
    from .spec import Entry, MadeOf
    from .state import Note


@frozen
class Mounts(RoomAction):
    """Mount all of these with their read-ahead and tunables, each for itself.

    One whose server is gone does not keep the others. ``folders`` are the mount points that are not there.
    """

    optional_programs = ("udevadm", "lctl", "systemd-run", "stat", "umount")
    entries: Tuple[Entry, ...]
    folders: Tuple[str, ...]

    @property
    def programs(self) -> Tuple[str, ...]:
        return ("mount", *(("mkdir",) if self.folders else ()))


@frozen
class Make(RoomAction):
    """Make what is left of a file system at ``path``, and of the array under it; note before that it is begun."""

    # Those that an array or a file system is made with are looked for in ``made``.
    optional_programs = ("mdadm", "mkfs.xfs", "mkfs.ext4", "udevadm", "blkid")
    path: str
    made: Made
    made_of: MadeOf


@frozen
class KeepJournal(RoomAction):
    """Keep of the note what is about these mount points: what others were about to become is forgotten."""

    paths: Tuple[str, ...]


@frozen
class Unmount(RoomAction):
    """Unmount what is mounted there; never by force, and never what is in use."""

    programs = ("umount",)
    path: str


@frozen
class Remount(RoomAction):
    """Give a mount all of these flags, and the file system these options, None for as they are."""

    programs = ("mount",)
    path: str
    source: str
    fstype: str
    access: str
    flags: Tuple[str, ...]
    options: Optional[str]


@frozen
class SetReadAhead(RoomAction):
    """Set it for what is mounted there by then."""

    optional_programs = ("udevadm",)
    path: str
    kb: int


@frozen
class SetTunables(RoomAction):
    """Set these of a file system of Lustre, each where an instance has another value."""

    programs = ("lctl",)
    path: str
    fsname: str
    values: Mapping[str, str]


@frozen
class KeepNotes(RoomAction):
    """Note what is known of the mounts that are there before their units change."""

    notes: Mapping[str, Note]
