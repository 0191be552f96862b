# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is written at the head of a drive: the superblocks of md, of XFS and of ext4. Pure.

Sources: include/uapi/linux/raid/md_p.h (version 1), fs/xfs/libxfs/xfs_format.h (xfs_dsb) and
Documentation/filesystems/ext4/super.rst. They are read here and not by programs, because a look comes often, and
because only they say whether mkfs.xfs ran to its end.
"""

from __future__ import annotations

import struct
from typing import Optional, Tuple

from ..._core.value import frozen

# How much of a drive has all of them.
HEAD = 8192
MD_OFFSET, MD_MAGIC = 4096, 0xA92B4EFC
# Of a role, what is no member that holds data (md_p.h).
MD_NO_ROLE = 0xFF00
XFS_MAGIC = b"XFSB"
EXT_OFFSET, EXT_MAGIC = 1024, 0xEF53
# The feature without which it would be ext2 or ext3 (EXT4_FEATURE_INCOMPAT_EXTENTS).
EXTENTS = 0x40


@frozen
class Member:
    """What a drive knows of the array that it belongs to. ``role`` is its place, None for a spare."""

    array: str
    name: str
    level: int
    chunk_kb: int
    disks: int
    role: Optional[int]


@frozen
class Superblock:
    """A file system. ``complete``: the program that made it came to its end.

    ``stripe`` is the stripe unit in KiB, and how many of them are a stripe; None where it knows of none.
    """

    fstype: str
    uuid: str
    label: str
    complete: bool
    stripe: Optional[Tuple[int, int]]


def member_of(head: bytes) -> Optional[Member]:
    """The array of a drive with metadata of version 1.2; None without that. ``head`` are its first ``HEAD`` bytes."""
    block = head[MD_OFFSET:]
    if len(block) < 1024 or struct.unpack_from("<II", block) != (MD_MAGIC, 1):
        return None
    level, _layout = struct.unpack_from("<iI", block, 72)
    chunk, disks = struct.unpack_from("<II", block, 88)
    (number,) = struct.unpack_from("<I", block, 160)
    role = struct.unpack_from("<H", block, 256 + 2 * number)[0] if number < 256 else MD_NO_ROLE
    return Member(
        array=uuid_text(block[16:32]),
        name=_text(block[32:64]),
        level=level,
        chunk_kb=chunk // 2,
        disks=disks,
        role=role if role < MD_NO_ROLE else None,
    )


def superblock_of(head: bytes) -> Optional[Superblock]:
    """The file system, where it is XFS or of the ext family."""
    if len(head) < HEAD:
        return None
    if head[:4] == XFS_MAGIC:
        (block,) = struct.unpack_from(">I", head, 4)
        unit, width = struct.unpack_from(">II", head, 184)
        stripe = (unit * block // 1024, width // unit) if unit else None
        return Superblock("xfs", uuid_text(head[32:48]), _text(head[108:120]), complete=head[126] == 0, stripe=stripe)
    ext = head[EXT_OFFSET : EXT_OFFSET + 1024]
    if struct.unpack_from("<H", ext, 56)[0] != EXT_MAGIC:
        return None
    (incompatible,) = struct.unpack_from("<I", ext, 96)
    (log,) = struct.unpack_from("<I", ext, 24)
    stride, width = struct.unpack_from("<H", ext, 0x164)[0], struct.unpack_from("<I", ext, 0x170)[0]
    stripe = (stride << log, width // stride) if stride else None
    # mke2fs writes the first superblock after everything else (ext2fs_flush2).
    fstype = "ext4" if incompatible & EXTENTS else "ext3"
    return Superblock(fstype, uuid_text(ext[104:120]), _text(ext[120:136]), complete=True, stripe=stripe)


def uuid_text(number: bytes) -> str:
    """A UUID as it is usually written."""
    text = number.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def of_mdadm(uuid: str) -> str:
    """A UUID as mdadm(8) reads and writes it."""
    digits = uuid.replace("-", "")
    return ":".join(digits[at : at + 8] for at in range(0, 32, 8))


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").strip()
