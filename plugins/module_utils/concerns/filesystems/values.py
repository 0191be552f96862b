# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of mounts: what is asked for, and how the kernel shows that it took it.

The kernel shows units of its own, adds what was not asked for, and hides what is its default. So each option is
compared by what it means: fs/nfs/super.c, mm/shmem.c, fs/xfs/xfs_super.c, fs/ext4/super.c, fs/ceph/super.c with
net/ceph/ceph_common.c, fs/fuse/inode.c, and lustre/llite/llite_lib.c have what is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._core.value import frozen

if TYPE_CHECKING:
    from ..._linux.mounts import Mount

NFS, TMPFS = "nfs", "tmpfs"
BEEGFS, CEPH, LUSTRE, WEKA = "beegfs", "ceph", "lustre", "wekafs"
EFS, GPFS, HF3FS = "efs", "gpfs", "hf3fs"
BLOBFUSE, GCSFUSE, JUICEFS, MOUNTPOINT = "blobfuse2", "gcsfuse", "juicefs", "mountpoint-s3"
RCLONE, S3FS = "rclone", "s3fs"
# Object stores: a process serves the mount, through FUSE.
OBJECT_STORES = (BLOBFUSE, GCSFUSE, JUICEFS, MOUNTPOINT, RCLONE, S3FS)
# What a service of the file system mounts, as its cluster is configured. It is only compared here.
BY_SERVICE = (GPFS, HF3FS)
# Types that need a client of their own.
WITH_CLIENTS = (BEEGFS, CEPH, LUSTRE, WEKA, EFS, *BY_SERVICE, *OBJECT_STORES)
# What mount(8) calls them, where that is another name than ours.
MOUNT_TYPES: Mapping[str, str] = {BLOBFUSE: "fuse3", MOUNTPOINT: "mount-s3", S3FS: "fuse.s3fs"}
# What the kernel calls them.
KERNEL_TYPES: Mapping[str, str] = {
    "nfs4": NFS,
    "fuse.gcsfuse": GCSFUSE,
    "fuse.hf3fs": HF3FS,
    "fuse.juicefs": JUICEFS,
    "fuse.rclone": RCLONE,
    "fuse.s3fs": S3FS,
}
# Some have no type of their own in the kernel, and are known by what it shows as their source.
KERNEL_SOURCES: Mapping[str, str] = {"blobfuse2": BLOBFUSE, "mountpoint-s3": MOUNTPOINT}
# Options of NFS that only the modules of VAST have, and the most connections of the kernel and of VAST.
VAST = "vast"
VAST_OPTIONS = (
    *("extend", "forcerdirplus", "idlexprt", "localports", "localports_failover", "mdconnect", "noextend"),
    *("noforcerdirplus", "noidlexprt", "nosharetransport", "nospread_reads", "nospread_writes", "optlockflush"),
    *("pconnect", "relmtime", "remoteports", "remoteports_offset", "sharetransport", "spread_reads", "spread_writes"),
)
KERNEL_CONNECTIONS, VAST_CONNECTIONS = 16, 64
SET = "set"
ACCESS, ATIME = "access", "atime"
# What belongs to the mount and not to the file system: a remount changes it, and no server is asked.
FLAGS: Mapping[str, Tuple[str, str]] = {
    "ro": (ACCESS, "ro"),
    "rw": (ACCESS, "rw"),
    "noatime": (ATIME, "noatime"),
    "relatime": (ATIME, "relatime"),
    "strictatime": (ATIME, "strictatime"),
    "nodiratime": ("diratime", "nodiratime"),
    "diratime": ("diratime", "diratime"),
    "nosuid": ("suid", "nosuid"),
    "suid": ("suid", "suid"),
    "nodev": ("dev", "nodev"),
    "dev": ("dev", "dev"),
    "noexec": ("exec", "noexec"),
    "exec": ("exec", "exec"),
}
# The flags that are shown, by setting; the kernel hides the other value.
SHOWN_FLAGS: Mapping[str, Tuple[str, str]] = {
    "diratime": ("nodiratime", "diratime"),
    "suid": ("nosuid", "suid"),
    "dev": ("nodev", "dev"),
    "exec": ("noexec", "exec"),
}
# What mount(8), its helpers and systemd read, and no kernel gets to see.
USERLAND = ("_netdev", "bg", "defaults", "fg", "nofail", "retry", "sloppy")
# The defaults of the kernel that it does not show; what is shown is the opposite.
HIDDEN: Mapping[str, Tuple[str, ...]] = {
    NFS: ("ac", "acl", "async", "cto", "lock", "rdirplus", "resvport", "sharecache"),
    TMPFS: ("async", "swap"),
    "xfs": ("async", "noikeep", "nolargeio", "nodiscard"),
    "ext4": ("acl", "async", "auto_da_alloc", "barrier", "delalloc", "nodiscard", "user_xattr"),
    EFS: ("ac", "acl", "async", "cto", "lock", "rdirplus", "resvport", "sharecache"),
    BEEGFS: ("async",),
    CEPH: (
        *("async", "asyncreaddir", "cephx_require_signatures", "cephx_sign_messages", "crc", "dcache", "nocopyfrom"),
        *("nodirstat", "noino32", "norbytes", "nosparseread", "pagecache", "poolperm"),
        *("quotadf", "share", "tcp_nodelay"),
    ),
    LUSTRE: ("async", "checksum", "lazystatfs", "lruresize", "noalways_ping", "nouser_fid2path", "user_xattr"),
    WEKA: ("async", "noacl"),
}
OPPOSITES = {"async": "sync"}
_NFS_DEFAULTS: Mapping[str, str] = {
    "acdirmax": "60",
    "acdirmin": "30",
    "acregmax": "60",
    "acregmin": "3",
    "lookupcache": "all",
    "max_connect": "1",
    "nconnect": "1",
}
# What the kernel uses where it shows nothing.
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    NFS: _NFS_DEFAULTS,
    EFS: _NFS_DEFAULTS,
    TMPFS: {"huge": "never", "mode": "1777"},
    CEPH: {
        "caps_max": "0",
        "caps_wanted_delay_max": "60",
        "caps_wanted_delay_min": "5",
        "mount_timeout": "60",
        "ms_mode": "legacy",
        "osd_idle_ttl": "60",
        "osd_request_timeout": "0",
        "rasize": "8388608",
        "read_from_replica": "no",
        "readdir_max_bytes": "524288",
        "readdir_max_entries": "1024",
        "recover_session": "no",
        "rsize": "67108864",
        "snapdirname": ".snap",
        "wsize": "67108864",
    },
    LUSTRE: {"flock": "noflock"},
    WEKA: {"cache": "writecache", "dentry_max_age_negative": "0", "dentry_max_age_positive": "1000"},
}
DIROPS = "dirops"
# Options that exclude each other: the setting that they are values of.
ONE_OF: Mapping[str, Mapping[str, str]] = {
    CEPH: {"wsync": DIROPS, "nowsync": DIROPS},
    LUSTRE: {"flock": "flock", "localflock": "flock", "noflock": "flock"},
    WEKA: {"coherent": "cache", "forcedirect": "cache", "readcache": "cache", "writecache": "cache"},
}
# What the kernel does not show, or as the helper has changed it. The default of how Ceph changes folders (nowsync) is
# not shown either, and differs between kernels. Only whoever made the mount knows what it was made with.
RECORDED: Mapping[str, Tuple[str, ...]] = {
    CEPH: ("conf", DIROPS, "mon_addr", "mon_host", "secretfile"),
    # What mount.efs keeps from mount.nfs (NON_NFS_OPTIONS of amazon-efs-utils).
    EFS: (
        *("accesspoint", "awscredsuri", "awsprofile", "az", "azid", "cafile", "crossaccount", "iam", "jwtpath"),
        *("mounttargetip", "netns", "noocsp", "notls", "ocsp", "region", "rolearn", "stunnel", "tls", "tlsport"),
        "verify",
    ),
    LUSTRE: ("mgssec", "network", "skpath"),
    WEKA: (
        *("auth_token_path", "connect_timeout_secs", "core", "dedicated_mode", "df_remote", "dpdk_base_memory_mb"),
        *("join_timeout_secs", "memory_mb", "mgmt_ip", "net", "num_cores", "qos_max_ops", "qos_max_throughput_mbps"),
        *("qos_preferred_throughput_mbps", "quiet", "remove_after_secs", "reserve_1g_hugepages"),
        *("response_timeout_secs", "restricted", "traces_capacity_mb", "verbose", "weka_version"),
    ),
}
# The only options of FUSE that the kernel shows.
SHOWN_BY_FUSE = ("allow_other", "default_permissions", "max_read")
# What each mount has for itself, of those; all others are of the client, which the first mount starts.
OF_THE_MOUNT = ("auth_token_path", "df_remote", "quiet", "verbose")
# What may be there several times.
SEVERAL: Mapping[str, Tuple[str, ...]] = {WEKA: ("core", "mgmt_ip", "net")}
# What a remount changes of the file system itself (shmem_reconfigure). For NFS, XFS and ext4 it is never tried: the
# kernel refuses most of it, and of XFS it accepts and ignores it.
REMOUNTABLE: Mapping[str, Tuple[str, ...]] = {TMPFS: ("huge", "size")}
ATTRIBUTES = ("acregmin", "acregmax", "acdirmin", "acdirmax")
# What other names of an option there are.
ALIASES: Mapping[str, Mapping[str, str]] = {
    NFS: {"nfsvers": "vers"},
    EFS: {"nfsvers": "vers"},
    CEPH: {"fs": "mds_namespace"},
}
SAME = {"lookupcache": {"positive": "pos"}}
NUMBER = regex(r"([0-9]+)([kmgtKMGT]?)")
POWERS = " kmgt"
# Of the client of VAST: addresses, ranges of them, and several of both.
PORTS = ("localports", "remoteports")
ADDRESSES = regex(r"[0-9a-fA-F.:]+(?:[~-][0-9a-fA-F.:]+)*")


@frozen
class Option:
    """One option as it is asked for: ``text``, and the setting and the value that it means."""

    setting: str
    wanted: str
    text: str


def option_of(text: str, fstype: str) -> Optional[Option]:
    """None for what no kernel gets to see."""
    if text in FLAGS:
        return Option(*FLAGS[text], text)
    if text in ONE_OF.get(fstype, ()):
        return Option(ONE_OF[fstype][text], text, text)
    name, equals, value = text.partition("=")
    if name in USERLAND or name.startswith(("x-", "X-")):
        return None
    if fstype in OBJECT_STORES:
        # Their programs take either, and blobfuse2 has its own among those of FUSE.
        name = name.lstrip("-").replace("-", "_")
    name = ALIASES.get(fstype, {}).get(name, name)
    return Option(name, SAME.get(name, {}).get(value, value) if equals else SET, text)


def options_of(texts: Iterable[str], fstype: str) -> Tuple[Option, ...]:
    """Those that a kernel or a helper gets; what may be there several times is one option with all values."""
    found: Dict[str, Option] = {}
    for text in texts:
        option = option_of(text, fstype)
        if option is None:
            continue
        other = found.get(option.setting)
        if other is not None and option.setting in SEVERAL.get(fstype, ()):
            option = Option(option.setting, f"{other.wanted},{option.wanted}", f"{other.text},{text}")
        found[option.setting] = option
    return tuple(found.values())


def read_back(option: Option, mount: Mount, memory_kb: int) -> Optional[str]:
    """What the kernel has for it: as it is asked for, where that is what it means; None for nothing."""
    if option.text in FLAGS:
        return flag_of(option.setting, mount)
    kind = kind_of(mount)
    shown = mount.values
    among = [name for name, setting in ONE_OF.get(kind, {}).items() if setting == option.setting]
    if among:
        return next((name for name in among if name in shown), DEFAULTS.get(kind, {}).get(option.setting))
    if option.wanted == SET:
        return SET if _is_set(option.setting, kind, shown) else None
    if option.setting == "actimeo":
        found = [shown.get(name, DEFAULTS[NFS][name]) for name in ATTRIBUTES]
        return found[0] if len(set(found)) == 1 else ",".join(found)
    value = shown.get(option.setting, DEFAULTS.get(kind, {}).get(option.setting))
    if kind == TMPFS and option.setting == "size":
        wanted, half = size_kb(option.wanted, memory_kb), size_kb("50%", memory_kb)
        has = half if value is None else size_kb(value, memory_kb)
        return option.wanted if wanted == has else f"{has}k"
    return option.wanted if value is not None and _same(option, value) else value


def flag_of(setting: str, mount: Mount) -> str:
    """The value of one of ``FLAGS``."""
    if setting == ACCESS:
        return "ro" if "ro" in (*mount.flags, *mount.options) else "rw"
    if setting == ATIME:
        return next((flag for flag in ("noatime", "relatime") if flag in mount.flags), "strictatime")
    shown, hidden = SHOWN_FLAGS[setting]
    return shown if shown in mount.flags else hidden


def flags_with(mount: Mount, values: Mapping[str, str]) -> Tuple[str, ...]:
    """All flags of a mount with these values, for a remount sets all of them."""
    settings = (ACCESS, ATIME, *SHOWN_FLAGS)
    # Of those that are not in FLAGS, such as nosymfollow, a remount would take what it is not told.
    others = tuple(flag for flag in mount.flags if flag not in FLAGS)
    now = {setting: flag_of(setting, mount) for setting in settings}
    if "ro" not in mount.flags:
        now[ACCESS] = "rw"
    now.update(values)
    hidden = {hides for _shown, hides in SHOWN_FLAGS.values()}
    return (*(value for value in now.values() if value not in hidden), *others)


def kind_of(mount: Mount) -> str:
    """The type as it is declared: version 4 of NFS has a type of its own in the kernel, and object stores have FUSE."""
    if mount.fstype == "fuse":
        return KERNEL_SOURCES.get(mount.source, mount.fstype)
    return KERNEL_TYPES.get(mount.fstype, mount.fstype)


def mount_type(fstype: str) -> str:
    """What mount(8) calls a type."""
    return MOUNT_TYPES.get(fstype, fstype)


def declared_type(name: str) -> str:
    """What we call a type of mount(8)."""
    return next((fstype for fstype, called in MOUNT_TYPES.items() if called == name), name)


def is_recorded(setting: str, fstype: str) -> bool:
    """Whether the kernel does not show an option, so that only whoever made the mount knows of it."""
    if fstype in OBJECT_STORES:
        return setting not in SHOWN_BY_FUSE
    return setting in RECORDED.get(fstype, ())


def needs_vast(option: Option) -> bool:
    """Whether only the client of VAST takes an option of NFS."""
    if option.setting == "nconnect":
        return option.wanted.isdecimal() and int(option.wanted) > KERNEL_CONNECTIONS
    return option.setting in VAST_OPTIONS


def can_remount(option: Option, mount: Mount) -> bool:
    """Whether a remount changes it."""
    if option.setting == ACCESS and option.text == "rw":
        return "ro" not in mount.options
    return option.text in FLAGS or option.setting in REMOUNTABLE.get(kind_of(mount), ())


def size_kb(text: str, memory_kb: int) -> int:
    """A size of tmpfs in KiB, of whole pages as the kernel makes them."""
    if text.endswith("%"):
        return -(-(memory_kb // 4 * int(text[:-1])) // 100) * 4
    return -(-(bytes_of(text) or 0) // 4096) * 4


def bytes_of(text: str) -> Optional[int]:
    """A number with the unit that the kernel knows; None for anything else."""
    found = NUMBER.fullmatch(text)
    return int(found[1]) * 1024 ** max(POWERS.find(found[2].lower()), 0) if found else None


def _is_set(name: str, kind: str, shown: Mapping[str, str]) -> bool:
    opposite = OPPOSITES.get(name) or (name[2:] if name.startswith("no") else f"no{name}")
    return name in shown or (name in HIDDEN.get(kind, ()) and opposite not in shown)


def _same(option: Option, value: str) -> bool:
    wanted = option.wanted
    if wanted == value:
        return True
    if option.setting == "vers":
        # 4 is whatever the two agree on.
        return value.startswith(f"{wanted}.")
    if option.setting == "mode":
        return wanted.lstrip("0") == value.lstrip("0")
    if option.setting in PORTS and not ADDRESSES.fullmatch(wanted):
        # The names of interfaces, and what DNS says, are addresses by then (fs_context.c of vastnfs).
        return ADDRESSES.fullmatch(value) is not None
    number = bytes_of(wanted)
    return number is not None and number == bytes_of(value)
