# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The source of a mount where the kernel does not show it, and the program that serves the mount does.

EFS is a mount of NFS from a proxy on this machine, for which amazon-efs-utils keeps a file (mount_efs, proxy.py). Of
some object stores the kernel shows only the name of the program, and the bucket is in its command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

from ..._core.regex import regex
from ..._core.value import replace
from ..._machine import processes
from .values import EFS, JUICEFS, MOUNTPOINT, NFS, S3FS, kind_of

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.mounts import Mount

PROXIES = "/run/efs"
LOOPBACK = regex(r"(?:127\.0\.0\.1|\[::1\]|::1):(/.*)")
# Without encryption, amazon-efs-utils before 2.0 mounts from the server itself.
BY_NAME = regex(r"(?:[a-z0-9-]+\.)?fs-[0-9a-f]{8,40}\.efs\.[a-z0-9.-]+:/.*")
FSID = regex(r"fs-[0-9a-f]+")
PROGRAMS = {
    JUICEFS: ("juicefs", "mount.juicefs"),
    MOUNTPOINT: ("mount-s3", "mount.mount-s3"),
    S3FS: ("s3fs", "mount.s3fs", "fuse.s3fs"),
}
# In an address of a database.
PASSWORD = regex(r"(?<=://)([^/@]*):[^/]*@")


def identify(files: Files, mount: Mount, wanted: str) -> Mount:
    """A mount of NFS, or of a hidden source, with its source as it is declared.

    ``wanted`` is the type that is declared, or that of our unit.
    """
    kind = kind_of(mount)
    if kind == NFS:
        return _efs(files, mount, wanted)
    source = _of_process(files, kind, mount)
    return replace(mount, fstype=kind, source=source) if source else mount


def _efs(files: Files, mount: Mount, wanted: str) -> Mount:
    proxied = LOOPBACK.fullmatch(mount.source)
    if proxied is not None:
        # As get_mount_specific_filename of amazon-efs-utils has it.
        ends = f".{mount.path.replace('/', '.').lstrip('.')}.{mount.values.get('port', '')}"
        for name in files.names(PROXIES):
            fsid = name[: -len(ends)]
            if name.endswith(ends) and FSID.fullmatch(fsid):
                return replace(mount, fstype=EFS, source=f"{fsid}:{proxied[1]}")
    elif wanted == EFS and BY_NAME.fullmatch(mount.source):
        return replace(mount, fstype=EFS)
    return mount


def _of_process(files: Files, kind: str, mount: Mount) -> str:
    """The source in the command line of the process that serves a mount; empty where there is no such process.

    Any user can start one with such words: it has to be root's, or that of the user who mounted it, as the kernel says.
    """
    path, owner = mount.path, mount.values.get("user_id") or processes.ROOT
    for pid in processes.ids(files):
        words = processes.text_of(files, pid, "cmdline").rstrip("\0").split("\0")
        if words[0].rpartition("/")[2] not in PROGRAMS[kind] or path not in words[1:]:
            continue
        if processes.user_of(files, pid) in (processes.ROOT, owner):
            source = _before(words, words.index(path, 1), cut=kind == S3FS)
            if source:
                return PASSWORD.sub(r"\1@", source)
    return ""


def _before(words: Sequence[str], at: int, *, cut: bool) -> str:
    """The argument before the mount point. s3fs overwrites the colon in its own (``cut``), which makes it two."""
    if at < 2:
        return ""
    if cut and at > 2 and words[at - 1].startswith("/"):
        return f"{words[at - 2]}:{words[at - 1]}"
    return words[at - 1]
