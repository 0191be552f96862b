# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of mounts, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, NoReturn, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._linux.mounts import is_below
from . import tunables
from .sources import CONSTANT, FORMS, fsname_of
from .values import (
    BEEGFS,
    BLOBFUSE,
    BY_SERVICE,
    CEPH,
    EFS,
    GCSFUSE,
    GPFS,
    HF3FS,
    JUICEFS,
    KERNEL_CONNECTIONS,
    LUSTRE,
    MOUNTPOINT,
    NFS,
    OBJECT_STORES,
    RCLONE,
    S3FS,
    SEVERAL,
    TMPFS,
    VAST,
    VAST_CONNECTIONS,
    WEKA,
    WITH_CLIENTS,
    Option,
    bytes_of,
    needs_vast,
    option_of,
    options_of,
)

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

NAME = "filesystems"
# What was about to be made, and of which drives; there only while a run is at it, or was killed there.
JOURNAL = "/var/lib/gpufleet/filesystems.making"
# So that nothing in them has to be quoted where a unit or a shell reads them.
MOUNT_POINT = regex(r"(/[A-Za-z0-9_.:+@,=-]+)+")
SOURCE = regex(r"[^\s\"'\\$`\x00-\x1f\x7f]+")
OPTION = regex(r"[A-Za-z0-9_][^\s\"'\\$`,\x00-\x1f\x7f]*")
# That of blobfuse2 for its own options, which are among those of FUSE.
FLAG_OPTION = regex(r"(?:--)?[A-Za-z0-9_][^\s\"'\\$`,\x00-\x1f\x7f]*")
# What systemd mounts before it reads any unit, what it keeps its own files in, and what a node does not boot without.
SYSTEM = ("/boot", "/dev", "/efi", "/etc", "/proc", "/run", "/sys", "/usr")
# Names that the kernel gives in the order in which it meets the devices.
BY_ORDER = regex(r"/dev/(?:(?:sd|vd|xvd|hd|dm-|md|nvme|loop)[a-z0-9]*)")
UUID = "UUID="
BY_UUID = "/dev/disk/by-uuid/"
NOT_A_SOURCE: Mapping[str, str] = {
    NFS: "it is not a server and the path that it exports",
    BEEGFS: "BeeGFS takes its servers from its client configuration (cfgFile), not from the source",
    CEPH: "it is neither monitors and a path, nor a user, a file system and a path",
    LUSTRE: "it is not the servers of a file system of Lustre and its name",
    WEKA: "it is not the backends of a cluster and a file system",
    EFS: "it is not the identifier of a file system of EFS with a path",
    GPFS: "it is not the device of a file system of Storage Scale",
    HF3FS: "it is not the source of a mount of 3FS",
    BLOBFUSE: "blobfuse2 takes the container from its configuration (--config-file), not from the source",
    GCSFUSE: "it is not a bucket of Cloud Storage",
    JUICEFS: "it is neither the address of a metadata engine nor the name of a file system",
    MOUNTPOINT: "it is not a bucket of S3 with a prefix",
    RCLONE: "it is not a remote of rclone and a path, or it has connection parameters",
    S3FS: "it is not a bucket and a path",
}
# Each does another thing than to mount, or says something that only fstab has.
ACTIONS: Mapping[str, str] = {
    "auto": "the mount is always made at boot",
    "bind": "that mounts a folder, not a file system",
    "loop": "that mounts a file, not a device",
    "move": "that moves an existing mount",
    "noauto": "the mount is always made at boot",
    "rbind": "that mounts folders, not a file system",
    "remount": "that changes an existing mount",
    "user": "only root makes the mount",
    "users": "only root makes the mount",
}
PAGE = 4096
# Sizes that the kernel rounds to whole pages.
IN_PAGES: Mapping[str, Tuple[str, ...]] = {
    NFS: ("rsize", "wsize"),
    EFS: ("rsize", "wsize"),
    CEPH: ("rasize", "rsize", "wsize"),
}
# Options whose value is a secret itself, and not the name of a file.
SECRET = regex(r"(?:.*[_-])?(?:secret|passw(?:or)?d|token)")
# Object stores have more names for secrets. A key of rclone or blobfuse2 is one, and the file with a key is not.
SECRET_OF_OBJECT_STORES = regex(
    r"(?:.*_)?(?:secret|pass|passw(?:or)?d|passphrase|token|credentials?|sas|key|key_base64)"
)
IN_ADDRESS = regex(r".*://[^/@]*:[^/]*@.*")
# Options with which the mount would not be what is declared, or could not be recognised.
NOT_OF_OBJECT_STORES: Mapping[str, str] = {
    "command": "the only command is mount",
    "devname": "that hides what is mounted",
    "foreground": "the mount command would never return",
    "fsname": "that hides what is mounted",
    "subtype": "that hides what is mounted",
}
ACCESS_POINT = regex(r"fsap-[0-9a-f]{17}")
# As mount.efs checks it: what an option needs, and which other one it excludes.
EFS_NEEDS: Mapping[str, str] = {"accesspoint": "tls", "iam": "tls", "awsprofile": "iam", "awscredsuri": "iam"}
EFS_EXCLUDES: Mapping[str, str] = {"tls": "port", "notls": "tls", "noocsp": "ocsp", "awscredsuri": "awsprofile"}
# Links of udev that stay the same from boot to boot; shell globs are for drives whose numbers nobody knows beforehand.
DRIVE = regex(r"/dev/disk/by-(?:id|path)/[A-Za-z0-9_.:+@,=*?\[\]-]+")
# With "any:" before it, md has room for 32 bytes.
PARTITION = regex(r".*-part[0-9]+")
ARRAY_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,27}")
LABEL = regex(r"[A-Za-z0-9_.+-]*")
# Who has the read-ahead instead.
NO_READ_AHEAD: Mapping[str, Tuple[str, str]] = {
    TMPFS: ("tmpfs has no read-ahead", "leave it out"),
    BEEGFS: ("the read-ahead of BeeGFS is in the file that cfgFile names", "set it there"),
    CEPH: ("the read-ahead of Ceph is an option of the mount", "set for example rasize=67108864 in options"),
    LUSTRE: ("Lustre has a read-ahead of its own", "set llite.max_read_ahead_mb in tunables"),
    WEKA: ("the read-ahead of WekaFS is an option of the mount", "set for example readahead_kb=32768 in options"),
    GPFS: ("Storage Scale has a prefetch of its own, which its cluster sets", "leave it out"),
    HF3FS: ("the client of 3FS has a read-ahead of its own, which its cluster sets", "leave it out"),
}
LONGEST_LABEL: Mapping[str, int] = {"xfs": 12, "ext4": 16}
CHUNKS_KB = tuple(4 << power for power in range(13))
# What the options of NFS with a number of connections may be.
CONNECTIONS: Mapping[str, Tuple[int, str]] = {
    "max_connect": (KERNEL_CONNECTIONS, f"the kernel takes 1 to {KERNEL_CONNECTIONS}"),
    "nconnect": (
        VAST_CONNECTIONS,
        f"the kernel takes 1 to {KERNEL_CONNECTIONS}, and the client of VAST 1 to {VAST_CONNECTIONS}",
    ),
}
PERCENT = regex(r"[1-9][0-9]{0,2}%")


@frozen
class MadeOf:
    """The drives of a file system that is made here, as links or globs. ``name`` is that of the array in /dev/md."""

    drives: Tuple[str, ...]
    name: str
    chunk_kb: int
    label: str
    ephemeral: bool


@frozen
class Entry:
    """One mount as it is declared. ``options`` are its texts in order, ``settings`` those that the kernel gets.

    With ``made_of`` the source is not known before the drives were looked at.
    """

    path: str
    source: str
    fstype: str
    options: Tuple[str, ...] = ()
    settings: Tuple[Option, ...] = ()
    read_ahead_kb: Optional[int] = None
    made_of: Optional[MadeOf] = None
    tunables: Mapping[str, str] = field(default_factory=dict)

    @property
    def at_boot(self) -> bool:
        """Whether a unit mounts it at boot. What is empty after a stop is made and mounted by the boot service."""
        return not self.ephemeral and not self.by_service

    @property
    def ephemeral(self) -> bool:
        return self.made_of is not None and self.made_of.ephemeral

    @property
    def by_service(self) -> bool:
        """Whether a service of the file system mounts it, and never this module."""
        return self.fstype in BY_SERVICE

    @property
    def daemon(self) -> bool:
        """Whether the mount leaves a process that serves it, which has to outlive whoever made the mount."""
        return self.fstype in (EFS, *OBJECT_STORES)

    @property
    def client(self) -> str:
        """Which of ``CLIENTS`` makes the mount."""
        return VAST if self.fstype == NFS and any(map(needs_vast, self.settings)) else self.fstype

    @property
    def remote(self) -> bool:
        """Whether it needs the network."""
        return self.fstype in (NFS, *WITH_CLIENTS) or "_netdev" in self.options


@frozen
class FilesystemsDeclaration:
    """The mounts by their mount points. ``changed`` is the baseline, for ``state: absent``."""

    mounts: Mapping[str, Entry]
    changed: Optional[Baseline] = None


def parse(params: Mapping[str, Any]) -> FilesystemsDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["mounts"]:
        raise DeclarationError(
            "read the declaration", cause="no mount is declared", hint="set mounts, or state: absent"
        )
    found: Dict[str, Entry] = {}
    for number, item in enumerate(params["mounts"]):
        entry = _entry(item, f"mounts[{number}]")
        for other in found:
            if is_below(entry.path, other) or is_below(other, entry.path):
                cause = f"{other} is declared too, and one would hide the other"
                _refuse(entry.path, cause, "declare mount points that are not inside each other")
        _refuse_same_drives(entry, found.values())
        _refuse_other_tunables(entry, found.values())
        found[entry.path] = entry
    return FilesystemsDeclaration(found)


def _entry(item: Mapping[str, Any], where: str) -> Entry:
    path, source, fstype = item["path"], item["source"], item["fstype"]
    if not MOUNT_POINT.fullmatch(path) or any(part in (".", "..") for part in path.split("/")):
        _refuse(
            f"{where}.path",
            "it is not the absolute path of a mount point, in letters, digits and _ . : + @ , = -",
            "set a path such as /data",
            path,
        )
    for folder in SYSTEM:
        if is_below(path, folder):
            _refuse(path, f"{folder} belongs to the operating system", "declare a mount point elsewhere, such as /data")
    made_of = _made_of(item, path, where)
    source = "" if made_of is not None else _source(source, fstype, f"{where}.source")
    options = tuple(item["options"])
    _refuse_options(options, fstype, f"{where}.options")
    options = (*options, *_implied(options, fstype))
    settings: Dict[str, Option] = {}
    for text in options:
        option = _option(text, fstype, f"{where}.options")
        if option is not None and option.setting in settings and option.setting not in SEVERAL.get(fstype, ()):
            other = settings[option.setting].text
            _refuse(f"{where}.options", f"{other} and {text} set the same thing", "leave one of them out")
        if option is not None:
            settings[option.setting] = option
    if fstype == EFS:
        _check_efs(settings, f"{where}.options")
    if fstype == BLOBFUSE and "config_file" not in settings:
        cause = "without it, blobfuse2 looks for its configuration in the folder in which it is started"
        _refuse(f"{where}.options", cause, "set --config-file=/etc/blobfuse2.yaml")
    if item["read_ahead_kb"] is not None:
        _check_read_ahead(item["read_ahead_kb"], fstype, f"{where}.read_ahead_kb")
    return Entry(
        path,
        source,
        fstype,
        options,
        options_of(options, fstype),
        item["read_ahead_kb"],
        made_of,
        _tunables(item.get("tunables") or {}, fstype, f"{where}.tunables"),
    )


def _implied(options: Tuple[str, ...], fstype: str) -> Tuple[str, ...]:
    """Options that are set although they are not declared."""
    if fstype not in WITH_CLIENTS or fstype in BY_SERVICE:
        return ()
    # systemd does not know all of these types, and would mount them before the network is there.
    implied = ["_netdev"] if "_netdev" not in options else []
    if fstype == MOUNTPOINT:
        # It does not start with the opposite, which systemd and mount(8) may say where nothing is said.
        implied += [f"no{flag}" for flag in ("suid", "dev") if not {flag, f"no{flag}"} & set(options)]
    return tuple(implied)


def _refuse_options(options: Tuple[str, ...], fstype: str, where: str) -> None:
    if options and fstype in BY_SERVICE:
        who = "the cluster database of Storage Scale" if fstype == GPFS else "the launcher of 3FS"
        _refuse(where, f"the options of the mount are in {who}, and are not set here", "leave them out")
    if fstype in OBJECT_STORES:
        for text in options:
            name = text.partition("=")[0].lstrip("-").replace("-", "_")
            if name in NOT_OF_OBJECT_STORES:
                _refuse(where, f"{name} is not supported: {NOT_OF_OBJECT_STORES[name]}", "leave it out")


def _check_efs(settings: Mapping[str, Option], where: str) -> None:
    for name, needed in EFS_NEEDS.items():
        if name in settings and needed not in settings:
            _refuse(where, f"mount.efs takes {name} only with {needed}", f"add {needed}")
    for name, other in EFS_EXCLUDES.items():
        if name in settings and other in settings:
            _refuse(where, f"{name} and {other} exclude each other", "leave one of them out")
    for name in ("nconnect", "max_connect"):
        if name in settings:
            _refuse(where, f"EFS does not support {name}", "leave it out", settings[name].text)
    point = settings.get("accesspoint")
    if point is not None and not ACCESS_POINT.fullmatch(point.wanted):
        hint = "set for example accesspoint=fsap-0123456789abcdef0"
        _refuse(where, "it is not the identifier of an access point", hint, point.text)


def _made_of(item: Mapping[str, Any], path: str, where: str) -> Optional[MadeOf]:
    given = item["made_of"]
    if given is None:
        return None
    if item["fstype"] not in LONGEST_LABEL:
        _refuse(
            f"{where}.made_of", f"{item['fstype']} cannot be made on drives", "set fstype: xfs or ext4, or leave it out"
        )
    if item["source"]:
        _refuse(
            f"{where}.source",
            "a file system that is made on drives has no other source",
            "leave it out",
            item["source"],
        )
    where = f"{where}.made_of"
    if not given["drives"]:
        _refuse(f"{where}.drives", "there is none", "name the drives")
    for name in given["drives"]:
        if BY_ORDER.fullmatch(name):
            cause = (
                "the kernel gives such names in the order in which it finds the drives, which may change at every boot"
            )
            _refuse(f"{where}.drives", cause, "set a name such as /dev/disk/by-id/nvme-MODEL_SERIAL", name)
        if not DRIVE.fullmatch(name) or PARTITION.fullmatch(name):
            cause = "it is not the name of a whole drive in /dev/disk/by-id or /dev/disk/by-path"
            _refuse(f"{where}.drives", cause, "set a name such as /dev/disk/by-id/nvme-MODEL_SERIAL", name)
        if given["drives"].count(name) > 1:
            _refuse(f"{where}.drives", "it is named twice", "leave one of them out", name)
    name = given["name"] or path.rpartition("/")[2]
    if not ARRAY_NAME.fullmatch(name):
        _refuse(f"{where}.name", "it is not the name of an array", "set up to 28 letters, digits, _ and -", name)
    if given["chunk_kb"] not in CHUNKS_KB:
        _refuse(f"{where}.chunk_kb", "it is not a power of 2 from 4 to 16384", "set for example 512", given["chunk_kb"])
    label, most = given["label"], LONGEST_LABEL[item["fstype"]]
    if not LABEL.fullmatch(label) or len(label) > most:
        hint = f"set up to {most} letters, digits and _ . + -"
        _refuse(f"{where}.label", f"{item['fstype']} cannot have this label", hint, label)
    return MadeOf(tuple(given["drives"]), name, given["chunk_kb"], label, given["ephemeral"])


def _refuse_same_drives(entry: Entry, others: Iterable[Entry]) -> None:
    if entry.made_of is None:
        return
    for other in others:
        if other.made_of is None:
            continue
        if other.made_of.name == entry.made_of.name:
            cause = f"{other.path} has an array with the name {other.made_of.name} too"
            _refuse(entry.path, cause, "set another made_of.name for one of them")
        for name in entry.made_of.drives:
            if name in other.made_of.drives:
                _refuse(entry.path, f"{name} is a drive of {other.path} too", "leave it out of one of them")


def _tunables(given: Mapping[str, Any], fstype: str, where: str) -> Mapping[str, str]:
    if given and fstype not in (LUSTRE, GPFS):
        _refuse(where, f"{fstype} has none", "leave it out; only Lustre and Storage Scale have tunables")
    if fstype == GPFS:
        return _attributes(given, where)
    found: Dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not tunables.NAME.fullmatch(name):
            cause = "it must be llite, lmv, lov, mdc, osc or ldlm.namespaces and a parameter, without instance or *"
            _refuse(where, cause, "set for example osc.max_rpcs_in_flight", str(name))
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if not isinstance(value, (str, int)) or not tunables.VALUE.fullmatch(text):
            _refuse(f"{where}.{name}", "it is not a whole number or a word", "set for example 16", text)
        if name == "ldlm.namespaces.lru_size" and text in ("0", "clear"):
            cause = "it reads back as the number of locks, so that nothing can be compared"
            _refuse(f"{where}.{name}", cause, "leave it out, or set a number above 0", text)
        found[name] = text
    return found


def _attributes(given: Mapping[str, Any], where: str) -> Mapping[str, str]:
    """The attributes of Storage Scale, which are only compared."""
    found: Dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not tunables.ATTRIBUTE.fullmatch(name):
            _refuse(where, "it is not an attribute of mmchconfig", "set for example pagepool: 16G", str(name))
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        if not isinstance(value, (str, int)) or not tunables.ATTRIBUTE_VALUE.fullmatch(text):
            _refuse(f"{where}.{name}", "it is not a value of mmchconfig", "set for example 16G", text)
        found[name] = text
    return found


def _refuse_other_tunables(entry: Entry, others: Iterable[Entry]) -> None:
    """Both mounts of one file system have what is set last."""
    for other in others:
        if fsname_of(other.source) != fsname_of(entry.source):
            continue
        # A node has one client of Storage Scale, and one of each file system of Lustre.
        of = "Storage Scale" if entry.fstype == GPFS else fsname_of(entry.source)
        for name, value in entry.tunables.items():
            if other.tunables.get(name, value) != value:
                cause = f"{other.path} is a mount of {of} too, with {name}: {other.tunables[name]}"
                _refuse(entry.path, cause, "declare the same for both", value)


def _source(source: str, fstype: str, where: str) -> str:
    if fstype == TMPFS:
        if source not in ("", TMPFS):
            _refuse(where, "tmpfs has no source", "leave it out", source)
        return TMPFS
    if fstype in CONSTANT and source in ("", CONSTANT[fstype]):
        return CONSTANT[fstype]
    if fstype in OBJECT_STORES and IN_ADDRESS.fullmatch(source):
        # It is not in the message: that goes to logs.
        cause = "the password would be in a unit that everybody can read, and in the list of processes"
        _refuse(where, cause, "leave it out, and have the metadata engine admit this node without a password")
    if not SOURCE.fullmatch(source):
        _refuse(where, "it is empty, or has blanks or quotes", "set what is to be mounted", source)
    if fstype in FORMS:
        form, example = FORMS[fstype]
        if not form.fullmatch(source):
            hint = "leave it out" if fstype in CONSTANT else f"set it as {example}"
            _refuse(where, NOT_A_SOURCE[fstype], hint, source)
        if fstype != NFS:
            return source
        host, colon, folder = source.rpartition(":/")
        return f"{host}{colon}{folder.rstrip('/')}"
    if source.startswith(UUID):
        source = f"{BY_UUID}{source[len(UUID) :]}"
    if not source.startswith("/dev/"):
        _refuse(where, "it is not a device", "set UUID=..., or a path in /dev that stays the same", source)
    if BY_ORDER.fullmatch(source):
        _refuse(
            where,
            "the kernel gives such names in the order in which it finds the devices, which may change at every boot",
            "set UUID=..., or a path such as /dev/disk/by-id/..., /dev/md/NAME or /dev/mapper/NAME",
            source,
        )
    return source


def _option(text: str, fstype: str, where: str) -> Optional[Option]:
    for part in text.split(","):
        name, equals, value = part.partition("=")
        plain = name.lstrip("-").replace("-", "_").rpartition(".")[2].lower()
        secret = (
            equals and SECRET_OF_OBJECT_STORES.fullmatch(plain) if fstype in OBJECT_STORES else SECRET.fullmatch(name)
        )
        if secret:
            # It is not in the message: that goes to logs.
            hint = "set secretfile=..." if fstype == CEPH else "set the option that names a file with it"
            _refuse(where, f"{name} would be in a unit that everybody can read, and in the list of processes", hint)
    name, equals, value = text.partition("=")
    if not (FLAG_OPTION if fstype == BLOBFUSE else OPTION).fullmatch(text):
        _refuse(where, "it is not one option", "make each option an element of the list, without blanks", text)
    if name.startswith("x-systemd.") or name in ACTIONS:
        cause = ACTIONS.get(name, "systemd reads it only in fstab, not in a unit")
        _refuse(where, f"{text} is not supported: {cause}", "leave it out")
    option = option_of(text, fstype)
    if name in IN_PAGES.get(fstype, ()):
        number = bytes_of(value)
        if number is None or (number < PAGE and name != "rasize") or number % PAGE:
            _refuse(
                where,
                f"the kernel rounds what is not a multiple of {PAGE} bytes",
                f"set for example {name}=1048576",
                text,
            )
    if fstype == NFS and name in CONNECTIONS and not (value.isdecimal() and 1 <= int(value) <= CONNECTIONS[name][0]):
        _refuse(where, CONNECTIONS[name][1], "set for example nconnect=8", text)
    if fstype == NFS and name == "mdconnect" and not (value.isdecimal() and 1 <= int(value) <= 8):
        _refuse(where, "the client of VAST takes 1 to 8", "set for example mdconnect=2", text)
    if fstype == CEPH and name in IN_PAGES[CEPH] and not value.isdecimal():
        _refuse(where, "the kernel takes a number of bytes without a unit", f"set for example {name}=16777216", text)
    if fstype == WEKA and name == "core" and value == "0":
        _refuse(where, "WEKA does not take core 0", "set another core, or num_cores", text)
    if fstype == TMPFS and name == "size" and not PERCENT.fullmatch(value) and not bytes_of(value):
        _refuse(where, "it is not a size", "set for example size=64g or size=50%", text)
    if equals and not value:
        _refuse(where, "it has no value", f"set {name}=..., or leave it out", text)
    return option


def _check_read_ahead(value: int, fstype: str, where: str) -> None:
    if fstype not in (NFS, EFS, *OBJECT_STORES):
        cause, hint = NO_READ_AHEAD.get(
            fstype, ("the read-ahead of a disk is that of its queue", "declare it in nvme_scheduler")
        )
        _refuse(where, cause, hint)
    if value < 0 or value % 4:
        _refuse(where, "the kernel rounds what is not a multiple of 4 KiB", "set for example 15360", value)


def _refuse(object: str, cause: str, hint: str, wanted: Any = None) -> NoReturn:
    raise DeclarationError("declare {}", object=object, cause=cause, wanted=wanted, hint=hint)
