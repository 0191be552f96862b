# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mounts as they are, as the next boot brings them, and as they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._linux.boot_service import BootCarrier
from ..._linux.mounts import Mount
from .values import kind_of

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue, Key
    from ..._core.change import Conflict
    from ..._core.setting import Scalar
    from ..._kinds.own_files import OwnFile
    from ..._kinds.units import UnitFile
    from .made import Made
    from .spec import Entry

MOUNT = "mount"
READ_AHEAD = "read_ahead_kb"
# For each mount point its number in the table of mounts, and the options that it was mounted with.
NOTES = "/run/gpufleet/filesystems.json"


@frozen
class Note:
    """What a run knows of a mount: with which options it was mounted, None for one that was there before us."""

    id: str
    options: Optional[str]


@frozen
class Place:
    """One mount point. ``unit`` and ``services`` are our files for it, and ``status`` is that of the unit.

    ``automount`` is what the first access to the path mounts, where systemd waits for it and its unit is known.
    ``foreign``: the unit is a file of others. ``by_us``: what is mounted was mounted by us, now or at boot. ``users``
    is who has something in it open, where it is to be unmounted, and ``inside`` what is mounted in it. ``obstacle``
    says why nothing can be mounted on it, and ``found`` what is there; both are empty where it can be. ``missing``:
    the folder is to be made. ``tunables`` are those of Lustre or Storage Scale that matter, by name and instance, None
    without the program that tells them, and ``configured`` is what the cluster of Storage Scale has for those that
    are not as they are wanted.
    """

    path: str
    mount: Optional[Mount]
    unit: UnitFile
    services: Tuple[UnitFile, ...]
    status: str
    automount: Optional[Mount] = None
    foreign: bool = False
    by_us: bool = False
    read_ahead: Optional[int] = None
    tunables: Optional[Mapping[str, Mapping[str, str]]] = None
    configured: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    users: Tuple[str, ...] = ()
    inside: Tuple[str, ...] = ()
    obstacle: str = ""
    found: str = ""
    missing: bool = False

    @property
    def title(self) -> Optional[str]:
        """What is mounted, or is at the first access, in words."""
        mount = self.automount or self.mount
        return title_of(kind_of(mount), mount.source) if mount is not None else None


@frozen
class FilesystemsState:
    """What was seen. ``devices`` are the numbers of the declared block devices, empty for one that is missing.

    ``lacking`` is by client what it lacks, where something of it is to be mounted, ``cache`` whether the kernel
    has one for FS-Cache. ``sharing`` are by mount point the others that were there first, whose connections or client
    it shares: for NFS those of the same server and version, for WekaFS those that were mounted before it.
    ``in_fstab`` is what fstab brings at boot, by mount point. ``made`` is what is there of the file systems that are
    made here, ``journal`` the mount points of those that a run was about to make, ``arrays`` our file for mdadm.
    ``ephemeral`` are the entries that no unit mounts at boot, and ``carrier`` is what does it instead. ``before`` are
    the values from before us, where something of ours is to go.
    """

    places: Mapping[str, Place]
    notes: Mapping[str, Note]
    devices: Mapping[str, str]
    conflicts: Tuple[Conflict, ...] = ()
    sharing: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    memory_kb: int = 0
    page_size: int = 4096
    lacking: Mapping[str, str] = field(default_factory=dict)
    cache: bool = True
    in_fstab: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    journal: Tuple[str, ...] = ()
    arrays: Optional[OwnFile] = None
    ephemeral: Mapping[str, Entry] = field(default_factory=dict)
    carrier: BootCarrier = BootCarrier()
    before: Mapping[Key, BaselineValue] = field(default_factory=dict)


@frozen
class FilesystemsDesired:
    """What is wanted of each mount point: an entry, or a mount of others that stays (``stays``), with these values.

    All others of the state are to go.
    """

    entries: Mapping[str, Entry]
    stays: Mapping[str, Mapping[str, Scalar]]
    restoring: bool = False


def was_empty(before: Mapping[Key, BaselineValue], path: str) -> bool:
    """Whether it is on record that nothing was mounted there before us. Without a record a mount counts as theirs."""
    return (path, MOUNT) in before and before[path, MOUNT].effective is None


def title_of(fstype: str, source: str) -> str:
    return fstype if fstype == source else f"{fstype} {source}"
