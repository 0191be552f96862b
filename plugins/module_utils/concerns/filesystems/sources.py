# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is mounted of a server or a cluster: how it is written, and how the kernel shows that it is the same.

The helpers of Lustre and Ceph resolve names, so that the kernel shows addresses: mount_lustre.c, mount.ceph.c. What
only a program knows was found by ``source_lookup``, and is the source of the mount here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._core.value import frozen
from .values import (
    BEEGFS,
    BLOBFUSE,
    CEPH,
    EFS,
    GCSFUSE,
    GPFS,
    HF3FS,
    JUICEFS,
    LUSTRE,
    MOUNTPOINT,
    NFS,
    RCLONE,
    S3FS,
    WEKA,
)

if TYPE_CHECKING:
    from ..._linux.mounts import Mount

NODEV = "beegfs_nodev"
HOST = r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)"
NID = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:@[a-z0-9]+)?"
MONITOR = rf"(?:v[12]:)?{HOST}(?::[0-9]+)?"
# Of each type the form of a source, and one to learn from.
FORMS = {
    BEEGFS: (regex(NODEV), NODEV),
    CEPH: (
        regex(
            rf"(?:(?P<user>[A-Za-z0-9._-]+)@(?P<fsid>[0-9a-f-]{{36}})?\.(?P<fsname>[A-Za-z0-9._-]+)="
            rf"|(?P<servers>{MONITOR}(?:,{MONITOR})*):)(?P<path>/.*)"
        ),
        "mon1,mon2:/path, user@fsid.fsname=/path or user@.fsname=/path",
    ),
    LUSTRE: (
        regex(rf"(?P<servers>{NID}(?:[:,]{NID})*):/(?P<fsname>[A-Za-z0-9_-]{{1,8}})(?P<path>/.*)?"),
        "mgs1@o2ib:mgs2@o2ib:/fsname",
    ),
    NFS: (regex(rf"(?:\[[^\]]+\]|{HOST}):(?P<path>/.*)"), "nfs1:/export/data"),
    WEKA: (regex(rf"(?:(?P<servers>{HOST}(?:,{HOST})*):?/)?(?P<fsname>[A-Za-z0-9_.-]+)"), "backend1,backend2/fsname"),
    # By its identifier, or by the name that it has in DNS.
    EFS: (
        regex(
            r"(?:[a-z0-9-]+\.)?(?P<fsid>fs-[0-9a-f]{8,40})(?:\.efs\.[a-z0-9.-]+)?(?::(?P<path>/.*)?)?",
        ),
        "fs-0123456789abcdef0:/path",
    ),
    GPFS: (regex(r"(?:/dev/)?(?P<fsname>[A-Za-z0-9_.-]+)"), "gpfs0"),
    HF3FS: (regex(r"hf3fs\.[A-Za-z0-9_.-]+"), "hf3fs.CLUSTER, with the identifier of the cluster"),
    BLOBFUSE: (regex(BLOBFUSE), BLOBFUSE),
    GCSFUSE: (regex(r"[a-z0-9][a-z0-9._-]+"), "bucket"),
    JUICEFS: (regex(r"[a-z][a-z0-9+]*://.+|[A-Za-z0-9][A-Za-z0-9_.-]*"), "redis://redis1:6379/1"),
    MOUNTPOINT: (regex(r"(?:s3://)?(?P<fsname>[A-Za-z0-9][A-Za-z0-9._-]+)(?:/(?P<path>.*))?"), "s3://bucket/prefix/"),
    RCLONE: (regex(r":?[A-Za-z0-9_][A-Za-z0-9_.+@-]*:[^:]*"), "remote:bucket/path"),
    S3FS: (regex(r"(?P<fsname>[A-Za-z0-9][A-Za-z0-9._-]+)(?::(?P<path>/.*)?)?"), "bucket:/path"),
}
# Types with the same source for every mount.
CONSTANT = {BEEGFS: NODEV, BLOBFUSE: BLOBFUSE}
# What the kernel shows instead of a source that only a process knows.
HIDDEN_SOURCES = {JUICEFS: regex(r"JuiceFS:.*"), MOUNTPOINT: regex(r"mountpoint-s3"), S3FS: regex(r"s3fs")}
# rclone adds a hash to the name of a remote if options override its configuration.
OVERRIDDEN = regex(r"\{[A-Za-z0-9_-]+\}(?=:)")
ADDRESS = regex(r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9a-fA-F:.]+\])(?:@[a-z0-9]+)?")
NETWORK_ZERO = regex(r"(@[a-z0-9]*[a-z])0$")
PORT = regex(r"^(?:v[12]:)?(.*?)(?::[0-9]+)?$")


@frozen
class Source:
    """What is mounted (``fields``), and the servers that know of it."""

    fields: Mapping[str, str]
    servers: Tuple[str, ...]


def is_source(fstype: str, source: str, mount: Mount) -> bool:
    """Whether it is what is mounted. Names and addresses of servers cannot be compared, so that the rest decides."""
    if is_source_hidden(fstype, mount):
        return fstype != JUICEFS or "://" in source or mount.source == f"JuiceFS:{source}"
    if fstype not in (CEPH, LUSTRE, WEKA, EFS, GPFS, MOUNTPOINT, S3FS):
        found = OVERRIDDEN.sub("", mount.source) if fstype == RCLONE else mount.source
        # Somebody may have written the path with a slash at its end.
        return source.rstrip("/") == found.rstrip("/")
    wanted, shown = _parse(fstype, source), _parse(fstype, mount.source)
    if wanted is None or shown is None:
        return source == mount.source
    fields = {**_of_options(mount), **shown.fields} if fstype == CEPH else shown.fields
    # The helper of Ceph finds out what the identifier of a cluster is, and tells no kernel that does not ask for it.
    if any(fields.get(name, value if name == "fsid" else "") != value for name, value in wanted.fields.items()):
        return False
    servers = (*wanted.servers, *shown.servers)
    return (
        not wanted.servers
        or not shown.servers
        or not all(map(ADDRESS.fullmatch, servers))
        or not set(wanted.servers).isdisjoint(shown.servers)
    )


def is_source_hidden(fstype: str, mount: Mount) -> bool:
    """Whether only a process knows what it mounted, and that process was not found."""
    return fstype in HIDDEN_SOURCES and HIDDEN_SOURCES[fstype].fullmatch(mount.source) is not None


def fsname_of(source: str) -> str:
    """The file system of Lustre that is mounted."""
    found = FORMS[LUSTRE][0].fullmatch(source)
    return str(found["fsname"]) if found is not None else ""


def _parse(fstype: str, source: str) -> Optional[Source]:
    found = FORMS[fstype][0].fullmatch(source)
    if found is None:
        return None
    fields = {name: value for name, value in found.groupdict().items() if value and name != "servers"}
    if "path" in found.groupdict():
        fields["path"] = f"/{(found['path'] or '').strip('/')}"
    if "user" in fields:
        fields["user"] = _user(fields["user"])
    servers = found.groupdict().get("servers") or ""
    if fstype == LUSTRE:
        # A colon is between two servers, and a comma between two addresses of one.
        return Source(fields, tuple(map(_nid, servers.replace(":", ",").split(","))))
    return Source(fields, tuple(PORT.sub(r"\1", name) for name in servers.split(",") if name))


def _nid(name: str) -> str:
    return NETWORK_ZERO.sub(r"\1", name if "@" in name else f"{name}@tcp")


def _of_options(mount: Mount) -> Dict[str, str]:
    """What the kernel shows of Ceph among the options, where the source does not have it."""
    values = mount.values
    named = {"user": _user(values.get("name", "")), "fsname": values.get("mds_namespace", "")}
    return {name: value for name, value in {**named, "fsid": values.get("fsid", "")}.items() if value}


def _user(name: str) -> str:
    return name[len("client.") :] if name.startswith("client.") else name
