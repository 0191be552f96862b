# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is mounted, as the kernel has it in /proc/self/mountinfo (proc_pid_mountinfo(5)).

Nothing here asks a file system: one whose server is gone would not answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Tuple

from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Files

PATH = "/proc/self/mountinfo"


@frozen
class Mount:
    """One entry. ``number`` is that of the device, as ``259:3``; that of NFS and tmpfs begins with ``0:``.

    ``root`` is the part of the file system that is mounted. ``flags`` are those of this mount (``rw,noatime``),
    ``options`` those of the file system, which all its mounts share.
    """

    id: str
    number: str
    root: str
    path: str
    flags: Tuple[str, ...]
    fstype: str
    source: str
    options: Tuple[str, ...]

    @property
    def values(self) -> Dict[str, str]:
        """The options of the file system by name; one without a value is there with an empty one."""
        pairs = (option.partition("=") for option in self.options)
        return {name: value for name, _equals, value in pairs}


def parse(text: str) -> Tuple[Mount, ...]:
    """The entries in order. Those that no kernel writes are left out."""
    found = []
    for line in text.splitlines():
        # Between the two parts are optional fields, as many as there are.
        left, _dash, right = line.partition(" - ")
        first, second = left.split(" "), right.split(" ")
        if len(first) > 5 and len(second) > 2:
            found.append(
                Mount(
                    id=first[0],
                    number=first[2],
                    root=decode(first[3]),
                    path=decode(first[4]),
                    flags=tuple(first[5].split(",")),
                    fstype=second[0],
                    source=decode(second[1]),
                    options=tuple(decode(second[2]).split(",")),
                )
            )
    return tuple(found)


def read(files: Files) -> Tuple[Mount, ...]:
    """What is mounted in our namespace; nothing where there is no /proc."""
    return parse(files.read_optional(PATH) or "")


def at(mounts: Sequence[Mount], path: str) -> Optional[Mount]:
    """What is mounted at this path. The last one hides those before it."""
    return next((mount for mount in reversed(mounts) if mount.path == path), None)


def is_automount(mount: Mount) -> bool:
    """Whether it is a mount point of systemd, the first access to which mounts the unit of the path over it.

    systemd names it after its process (``automount_enter_waiting`` of its automount.c); the source of those of
    automount(8) is a map.
    """
    return mount.fstype == "autofs" and mount.source.startswith("systemd-")


def around(mounts: Sequence[Mount], path: str) -> Optional[Mount]:
    """The mount in which a path lies that is no mount point itself."""
    inside = [mount for mount in mounts if mount.path != path and is_below(path, mount.path)]
    longest = max((len(mount.path) for mount in inside), default=0)
    return next((mount for mount in reversed(inside) if len(mount.path) == longest), None)


def below(mounts: Sequence[Mount], path: str) -> Tuple[str, ...]:
    """The mount points in a mount."""
    return tuple(mount.path for mount in mounts if mount.path != path and is_below(mount.path, path))


def is_below(path: str, folder: str) -> bool:
    """Whether a path is this folder, or in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def decode(field: str) -> str:
    """A field of fstab, or of a table of the kernel, without its octal escapes (a blank is ``\\040``)."""
    if "\\" not in field:
        return field
    raw = re.sub(
        rb"\\([0-3][0-7]{2})",
        lambda escape: bytes([int(escape[1], 8)]),
        field.encode("utf-8", "surrogateescape"),
    )
    return raw.decode("utf-8", "surrogateescape")
