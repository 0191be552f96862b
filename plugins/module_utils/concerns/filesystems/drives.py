# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drives that a file system is made of: which they are, and what is on them. Reads only.

A drive counts as blank when nothing claims it, no signature is on it, and what was sampled of it is zeros. Anything
else is a reason to leave it alone: what no tool knows may be somebody's data.
"""

from __future__ import annotations

import errno
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from ..._core.errors import CannotLook
from ..._core.value import frozen, replace
from ..._core.wording import first_of
from ..._linux import mounts, swaps
from ..._machine import processes
from ..._machine.numbers import read_number
from .spec import PARTITION
from .superblocks import HEAD, Member, Superblock, member_of, superblock_of

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

BLOCK = "/sys/class/block"
SECTOR = 512
MIB = 1 << 20
# Between the first and the last MiB: where md begins its data lies within the first of these on big drives.
SAMPLES, SAMPLE = 64, 4096
DATA_OF_MD = 128 * MIB
# blkid(8): nothing was found; more than one thing was.
NOTHING, AMBIVALENT = 2, 8


@frozen
class Array:
    """An array that the kernel has. ``members`` are the names of its drives, ``state`` is ``array_state`` of sysfs."""

    name: str
    number: str
    level: str
    disks: int
    chunk_kb: int
    state: str
    members: Tuple[str, ...]

    @property
    def node(self) -> str:
        return f"/dev/{self.name}"

    @property
    def runs(self) -> bool:
        return self.state not in ("clear", "inactive")

    @property
    def broken(self) -> bool:
        """Whether a drive went away since it was started (``raid0_error`` of the kernel, 5.4 and later)."""
        return self.state == "broken"


@frozen
class Drive:
    """A drive. ``link`` is the name that stays the same, ``name`` that of the kernel for now.

    ``identity`` is its number among all drives of the world. ``problem`` says why nothing may be made on it;
    empty for one that is ``blank``, or a ``member`` of an array, or has a file system (``superblock``).
    """

    link: str
    name: str
    identity: str
    number: str
    size: int
    holders: Tuple[str, ...] = ()
    member: Optional[Member] = None
    superblock: Optional[Superblock] = None
    blank: bool = False
    problem: str = ""

    @property
    def node(self) -> str:
        return f"/dev/{self.name}"


def links_of(files: Files, patterns: Sequence[str]) -> Tuple[Dict[str, str], Tuple[str, ...]]:
    """The names that these name or match, by the kernel's name of the drive, and those for which there is none."""
    found: Dict[str, str] = {}
    missing: List[str] = []
    for pattern in patterns:
        folder, _slash, last = pattern.rpartition("/")
        if any(sign in last for sign in "*?["):
            names = [name for name in files.names(folder) if fnmatchcase(name, last) and not PARTITION.fullmatch(name)]
        else:
            names = [last] if files.exists(pattern) else []
        for name in names:
            link = f"{folder}/{name}"
            found.setdefault(files.resolve(link).rpartition("/")[2], link)
        if not names:
            missing.append(pattern)
    return found, tuple(missing)


def identity_of(files: Files, name: str) -> str:
    """What a drive is known by wherever it is plugged in; empty for what is no drive."""
    for path in (f"{BLOCK}/{name}/wwid", f"{BLOCK}/{name}/device/wwid", f"{BLOCK}/{name}/device/serial"):
        text = (files.read_optional(path) or "").strip()
        if text:
            return text
    return ""


def look(host: Host, links: Dict[str, str]) -> Tuple[Drive, ...]:
    """Each of them, in the order of their identities, which is the same on every boot."""
    found = [_drive(host, name, link) for name, link in links.items()]
    return tuple(sorted(found, key=lambda drive: (drive.identity, drive.link)))


def array_of(files: Files, name: str) -> Optional[Array]:
    """The md device of this name; None for one of another kind."""
    folder = f"{BLOCK}/{name}/md"
    if not files.exists(folder):
        return None

    def number(attribute: str) -> int:
        text = (files.read_optional(f"{folder}/{attribute}") or "").split()
        return int(text[0]) if text and text[0].isdecimal() else 0

    return Array(
        name=name,
        number=(files.read_optional(f"{BLOCK}/{name}/dev") or "").strip(),
        level=(files.read_optional(f"{folder}/level") or "").strip(),
        disks=number("raid_disks"),
        chunk_kb=number("chunk_size") // 1024,
        state=(files.read_optional(f"{folder}/array_state") or "").strip(),
        members=files.names(f"{BLOCK}/{name}/slaves"),
    )


def signature(host: Host, node: str) -> str:
    """What blkid(8) finds on a device, in words; empty for nothing. Raises ``CannotLook`` where it cannot say."""
    try:
        completed = host.commands.run(("blkid", "--probe", "--output", "export", node))
    except OSError as error:
        raise CannotLook("look what is on {}", object=node, cause=f"blkid: {error.strerror or error}") from error
    if completed.status == NOTHING and not completed.output.strip():
        return ""
    if completed.status == AMBIVALENT:
        return "signatures of several kinds"
    if completed.status != 0:
        said = (completed.errors or completed.output).strip() or f"exit status {completed.status}"
        raise CannotLook("look what is on {}", object=node, cause=f"blkid: {said}")
    pairs = dict(line.partition("=")[::2] for line in completed.output.splitlines())
    if "TYPE" in pairs:
        label = pairs.get("LABEL")
        return pairs["TYPE"] + (f" {label}" if label else "")
    return f"a partition table ({pairs['PTTYPE']})" if "PTTYPE" in pairs else "a signature"


def head_of(files: Files, node: str) -> bytes:
    return files.read_part(node, 0, HEAD)


def is_zero(files: Files, node: str, size: int) -> bool:
    """Whether all that is sampled of a device is zeros: its first and its last MiB, and some in between."""
    last = max(size - MIB, 0)
    places = [(0, MIB), (last, MIB), (min(DATA_OF_MD, last), MIB)]
    places += [(size // SAMPLES * number // SAMPLE * SAMPLE, SAMPLE) for number in range(1, SAMPLES)]
    return not any(any(files.read_part(node, offset, length)) for offset, length in places)


def size_of(files: Files, name: str) -> int:
    return (read_number(files, f"{BLOCK}/{name}/size") or 0) * SECTOR


def mounted_at(files: Files, number: str) -> Tuple[str, ...]:
    """Where a device is mounted, by us or in the name space of the first process."""
    texts = [files.read_optional(path) or "" for path in (mounts.PATH, "/proc/1/mountinfo")]
    return tuple(dict.fromkeys(mount.path for text in texts for mount in mounts.parse(text) if mount.number == number))


def _drive(host: Host, name: str, link: str) -> Drive:
    files = host.files
    folder = f"{BLOCK}/{name}"
    drive = Drive(
        link=link,
        name=name,
        identity=identity_of(files, name),
        number=(files.read_optional(f"{folder}/dev") or "").strip(),
        size=size_of(files, name),
        holders=files.names(f"{folder}/holders"),
    )

    problem = _claim(files, drive)
    if not problem and any(array_of(files, holder) is None for holder in drive.holders):
        problem = f"it is held by {first_of(drive.holders, 3)}"
    return replace(drive, problem=problem) if problem else _with_content(host, drive)


def _with_content(host: Host, drive: Drive) -> Drive:
    files = host.files
    try:
        head = head_of(files, drive.node)
        member, superblock = member_of(head), superblock_of(head)
        if member is not None or superblock is not None:
            return replace(drive, member=member, superblock=None if member else superblock)
        if drive.holders:
            return replace(drive, problem=f"it is held by {first_of(drive.holders, 3)}")
        files.read_part(drive.node, 0, SECTOR, exclusive=True)
        known = signature(host, drive.node)
        if known:
            return replace(drive, problem=f"it holds {known}")
        return replace(drive, blank=is_zero(files, drive.node, drive.size))
    except OSError as error:
        busy = error.errno == errno.EBUSY
        cause = "the kernel uses it" if busy else f"it cannot be read: {error.strerror or error}"
        return replace(drive, problem=cause)


def _claim(files: Files, drive: Drive) -> str:
    """Why it is no drive that could be empty, as the kernel tells without the drive being opened."""
    folder = f"{BLOCK}/{drive.name}"
    if not drive.number:
        return "it is not a block device"
    if files.exists(f"{folder}/partition"):
        return "it is a partition, not a whole drive"
    if not files.exists(f"{folder}/device"):
        return "it is made of other devices"
    if not drive.identity:
        return "it has no serial number by which it could be recognised"
    if drive.size == 0 or (files.read_optional(f"{folder}/ro") or "0").strip() != "0":
        return "it is read-only, or has no size"
    parts = [name for name in files.names(folder) if files.exists(f"{folder}/{name}/partition")]
    if parts:
        return f"it is partitioned ({first_of(parts, 3)})"
    if any(files.resolve(area.path) == drive.node for area in swaps.read_areas(files)):
        return "it is swap"
    return ""


def users_of(files: Files, node: str) -> Tuple[str, ...]:
    """The processes that have a device open, as ``name (pid)``."""
    found = []
    for pid in processes.ids(files):
        try:
            if node in processes.opened(files, pid):
                found.append(f"{processes.name_of(files, pid) or 'process'} ({pid})")
        except OSError:
            # It has ended.
            continue
    return tuple(found)
