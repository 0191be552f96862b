# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is mounted where, and what the next boot mounts.

No path in a mount is asked for: its server may be gone.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional, Tuple

from ..._core import baseline
from ..._core.change import US, Conflict
from ..._core.record import read_note, texts_of
from ..._core.value import replace
from ..._core.wording import first_of
from ..._kinds import units
from ..._linux import boot_service, fstab, mounts, systemd
from ..._linux.boot_service import BootCarrier
from ..._linux.numa import parse_meminfo
from ..._machine.numbers import read_number
from . import array_file, clients, tunables, unit_files
from .sources import HIDDEN_SOURCES, fsname_of, is_source
from .spec import JOURNAL, NAME, FilesystemsDeclaration
from .state import MOUNT, NOTES, READ_AHEAD, FilesystemsState, Note, Place, title_of, was_empty
from .values import BY_SERVICE, EFS, GPFS, LUSTRE, NFS, TMPFS, VAST, WEKA, kind_of

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._linux.mounts import Mount
    from .made import Made
    from .spec import Entry
    from .unit_files import AtBoot

BDI = "/sys/class/bdi"
CACHES = "/proc/fs/fscache/caches"
# Of those that the kernel numbers itself, and that no server stands behind.
LOCAL = ("aufs", "btrfs", "devtmpfs", "overlay", "ramfs", "rootfs", TMPFS, "zfs")
# Where a proxy may serve what is mounted.
LOOPBACK = ("127.0.0.1:", "[::1]:", "::1:")
SHOWN = 3


def observe(host: Host, declaration: FilesystemsDeclaration, scope: Scope) -> FilesystemsState:
    files, entries = host.files, declaration.mounts
    table = mounts.read(files)
    notes = read_notes(files)
    paths = dict.fromkeys((*entries, *unit_files.ours(files).values()))
    paths.update(dict.fromkeys(path for path, note in notes.items() if note.options is not None))
    before = _recorded(files, declaration, paths)
    if scope.restoring:
        paths.update(dict.fromkeys(path for path, _setting in before if path.startswith("/") and not _is_file(path)))
    status = systemd.unit_files(files)
    lines = [line for line in fstab.parse(files.read_optional(fstab.PATH) or "", "\0") if "noauto" not in line.options]
    of_fstab = {line.target.rstrip("/"): line for line in lines}
    places = {}
    for path in sorted(paths):
        place = _place(host, path, table, status, notes.get(path), entries.get(path))
        if path in entries:
            goes, wants_read_ahead = False, entries[path].read_ahead_kb is not None
            tuned = tuple(entries[path].tunables)
        else:
            goes = was_empty(before, path) and (scope.restoring or path not in of_fstab)
            wants_read_ahead = (path, READ_AHEAD) in before
            kept = () if was_empty(before, path) else before
            tuned = tuple(name for where, name in kept if where == path and tunables.NAME.fullmatch(name))
        places[path] = _with_more(
            place,
            host,
            table,
            read_ahead=wants_read_ahead,
            tuned=tuned if scope.immediate else (),
            wanted=path in entries,
            goes=goes and scope.immediate and place.by_us,
        )
        if path in entries and entries[path].fstype == GPFS and entries[path].tunables and scope.immediate:
            places[path] = _with_attributes(places[path], host, entries[path].tunables)
    made, journal = _made(host, entries)
    ephemeral = {path: entry for path, entry in entries.items() if entry.ephemeral}
    sources = {path: entry.source for path, entry in entries.items() if entry.source.startswith("/dev/")}
    devices = {path: _number(files, source) for path, source in sources.items()}
    devices.update((path, one.number) for path, one in made.items())
    # An existing mount with options of VAST cannot be made again at boot without its client.
    needed = {entry.client for path, entry in entries.items() if places[path].mount is None or entry.client == VAST}
    return FilesystemsState(
        places=places,
        notes=notes,
        devices=devices,
        conflicts=tuple(
            Conflict("fstab", fstab.PATH, line.number, path, MOUNT, title_of(line.kind, line.spec), US)
            for path, line in of_fstab.items()
            if path in entries and scope.permanent
        ),
        sharing={path: _sharing(table, path) for path, entry in entries.items() if entry.fstype in (NFS, WEKA)},
        memory_kb=_memory(files) if any(kind_of_place(place) == TMPFS for place in places.values()) else 0,
        lacking={client: clients.lacking(host, client) for client in needed},
        cache=_has_cache(files, entries.values()),
        page_size=tunables.page_size(files) if any(map(_is_tuned, places.values())) else 4096,
        in_fstab={path: title_of(line.kind, line.spec) for path, line in of_fstab.items()},
        made=made,
        journal=journal,
        arrays=array_file.read(files),
        ephemeral=ephemeral,
        carrier=boot_service.carrier(files, scope) if ephemeral and scope.permanent else BootCarrier(),
        before=before,
    )


def _made(host: Host, entries: Mapping[str, Entry]) -> Tuple[Mapping[str, Made], Tuple[str, ...]]:
    """What is there of what is made here, and of which mount points we noted that it was begun."""
    of_drives = {path: entry for path, entry in entries.items() if entry.made_of is not None}
    if not of_drives and not host.files.exists(JOURNAL):
        return {}, ()
    from . import made

    journal = made.read_journal(host.files)
    found = {
        path: made.look(host, entry, entry.made_of, journal)
        for path, entry in of_drives.items()
        if entry.made_of is not None
    }
    # A damaged one is about nothing, and goes like what is not declared any more.
    return found, tuple(journal) or (("",) if host.files.exists(JOURNAL) else ())


def _recorded(
    files: Files, declaration: FilesystemsDeclaration, paths: Iterable[str]
) -> Mapping[baseline.Key, baseline.BaselineValue]:
    """The values from before us, which count as soon as something of ours is to go."""
    if declaration.changed is not None:
        return declaration.changed.values
    return baseline.load(files, NAME).values if any(path not in declaration.mounts for path in paths) else {}


def kind_of_place(place: Place) -> str:
    return kind_of(place.mount) if place.mount is not None else ""


def _is_tuned(place: Place) -> bool:
    return bool(place.tunables) and kind_of_place(place) == LUSTRE


def _is_file(path: str) -> bool:
    """Whether the record means one of our files, and no mount point: none may be in /etc."""
    return path.startswith("/etc/")


def _place(
    host: Host,
    path: str,
    table: Tuple[Mount, ...],
    status: systemd.UnitFiles,
    note: Optional[Note],
    entry: Optional[Entry],
) -> Place:
    unit = unit_files.mount_unit(path)
    unit_path = unit_files.file_of(unit)
    text = host.files.read_optional(unit_path)
    foreign = text is not None and not text.startswith(unit_files.HEADER)
    text = None if foreign else text
    boot = unit_files.at_boot(text)
    wanted = entry.fstype if entry is not None else boot.fstype if boot is not None else ""
    mount = _identified(host.files, mounts.at(table, path), wanted)
    automount = _behind(host.files, mount) if mount is not None and mounts.is_automount(mount) else None
    return Place(
        path=path,
        mount=mount,
        unit=units.unit_file(host, unit, unit_path, unit_files.MOUNT_UNIT, text),
        services=(
            _service(host, unit_files.read_ahead_unit(path), unit_files.READ_AHEAD_UNIT),
            _service(host, unit_files.tunables_unit(path), unit_files.TUNABLES_UNIT),
        ),
        status=status.status(unit),
        automount=automount,
        foreign=foreign,
        by_us=mount is not None and automount is None and _by_us(host.files, mount, boot, note),
    )


def _behind(files: Files, automount: Mount) -> Optional[Mount]:
    """What an automount of systemd mounts: the unit of its path, which the generator makes of a line in fstab.

    None where no file has it. The path is not accessed, which would mount it.
    """
    unit = unit_files.from_values(systemd.unit_lines(files, unit_files.mount_unit(automount.path)))
    if not unit.source:
        return None
    number = _number(files, unit.source) if unit.source.startswith("/dev/") else ""
    options = tuple(filter(None, unit.options.split(",")))
    return replace(automount, number=number, fstype=unit.fstype, source=unit.source, flags=(), options=options)


def _identified(files: Files, mount: Optional[Mount], wanted: str) -> Optional[Mount]:
    """The mount, with the source that the program knows that serves it where the kernel does not show it."""
    if mount is None:
        return None
    kind = kind_of(mount)
    if kind not in HIDDEN_SOURCES and (kind != NFS or not (wanted == EFS or mount.source.startswith(LOOPBACK))):
        return mount
    from . import source_lookup

    return source_lookup.identify(files, mount, wanted)


def _service(host: Host, unit: str, setting: str) -> units.UnitFile:
    path = unit_files.file_of(unit)
    return units.unit_file(host, unit, path, setting, host.files.read_optional(path))


def _by_us(files: Files, mount: Mount, boot: Optional[AtBoot], note: Optional[Note]) -> bool:
    if kind_of(mount) in BY_SERVICE:
        # The kernel uses numbers of mounts again, so that a note may be about one that is gone.
        return False
    if note is not None and note.id in ("", mount.id) and note.options is not None:
        return True
    if boot is None or boot.fstype != kind_of(mount) or (boot.fstype not in (NFS, EFS) and mount.root != "/"):
        return False
    if boot.source.startswith("/dev/"):
        return _number(files, boot.source) == mount.number
    return is_source(boot.fstype, boot.source, mount)


def _with_more(
    place: Place,
    host: Host,
    table: Tuple[Mount, ...],
    *,
    read_ahead: bool,
    tuned: Tuple[str, ...],
    wanted: bool,
    goes: bool,
) -> Place:
    """What is only read where it matters."""
    files = host.files
    if place.mount is None:
        if not wanted:
            return place
        obstacle, found, missing = _obstacle(files, table, place.path)
        return replace(place, obstacle=obstacle, found=found, missing=missing)
    if place.automount is not None:
        return place
    source = place.mount.source
    if read_ahead:
        place = replace(place, read_ahead=read_number(files, f"{BDI}/{place.mount.number}/{READ_AHEAD}"))
    if tuned and kind_of_place(place) == LUSTRE:
        place = replace(place, tunables=tunables.read(host, fsname_of(source), tuned))
    if goes:
        from . import users

        place = replace(place, users=users.of(files, place.path), inside=mounts.below(table, place.path))
    return place


def _with_attributes(place: Place, host: Host, wanted: Mapping[str, str]) -> Place:
    """The attributes in effect on the client of Storage Scale, and those of its cluster where they differ."""
    from . import scale

    found = scale.read(host, wanted)
    values = {name: value for name, instances in (found or {}).items() for value in instances.values()}
    wrong = [name for name, value in values.items() if not scale.is_same(wanted[name], value)]
    return replace(place, tunables=found, configured=scale.configured(host, wrong) if wrong else {})


def _obstacle(files: Files, table: Tuple[Mount, ...], path: str) -> Tuple[str, str, bool]:
    """Why nothing can be mounted there, what is there, and whether the folder is to be made."""
    around = mounts.around(table, path)
    if around is not None and around.number.startswith("0:") and around.fstype not in LOCAL:
        return (
            f"it is inside the mount {around.path}, and would hang whenever the server of that does not respond",
            title_of(kind_of(around), around.source),
            False,
        )
    real = files.resolve(path)
    if real != path:
        return "it is a symbolic link or lies behind one, where systemd does not mount", real, False
    if not files.exists(path):
        return "", "", True
    if not files.is_folder(path):
        return "it is not a folder", "", False
    names = files.names(path)
    if names:
        return "it is not empty, and a mount would hide its content", first_of(names, SHOWN), False
    return "", "", False


def _number(files: Files, source: str) -> str:
    """The number of a block device as the table of mounts has it; empty where it is not there."""
    name = files.resolve(source).rpartition("/")[2]
    return (files.read_optional(f"/sys/class/block/{name}/dev") or "").strip()


def _sharing(table: Tuple[Mount, ...], path: str) -> Tuple[str, ...]:
    """The kernel has one transport for each address and version, which the first mount makes (nfs_get_client).

    The client of WekaFS is started by the first mount too.
    """
    one = mounts.at(table, path)
    if one is None:
        return ()
    if kind_of(one) == WEKA:
        earlier = takewhile(lambda mount: mount is not one, table)
        return tuple(dict.fromkeys(mount.path for mount in earlier if kind_of(mount) == WEKA and mount.path != path))
    if kind_of(one) != NFS:
        return ()
    nfs = [mount for mount in table if kind_of(mount) == NFS]
    key = _transport(one)
    return tuple(dict.fromkeys(mount.path for mount in nfs if mount.path != path and _transport(mount) == key))


def _transport(mount: Mount) -> Tuple[Optional[str], ...]:
    values = mount.values
    return values.get("addr"), values.get("port"), values.get("vers"), values.get("proto")


def _memory(files: Files) -> int:
    return parse_meminfo(files.read("/proc/meminfo"))["MemTotal"]


def _has_cache(files: Files, entries: Iterable[Entry]) -> bool:
    """Whether FS-Cache has somewhere to cache. Kernels before 5.17 do not say."""
    if all(option.setting != "fsc" for entry in entries for option in entry.settings):
        return True
    text = files.read_optional(CACHES)
    # Two lines are the heading.
    return text is None or len(text.splitlines()) > 2


def read_notes(files: Files) -> Mapping[str, Note]:
    """What is in it is gone at the next boot, and only tells for how long something is pending: damaged is none."""
    return read_note(files, NOTES, _notes) or {}


def _notes(document: Any) -> Mapping[str, Note]:
    options = texts_of({path: note["options"] for path, note in document.items()})
    return {path: Note(str(note["id"]), options[path]) for path, note in document.items()}


def text_of_notes(notes: Mapping[str, Note]) -> str:
    document: Dict[str, Dict[str, Optional[str]]] = {
        path: {"id": note.id, "options": note.options} for path, note in sorted(notes.items())
    }
    return json.dumps(document) + "\n"
