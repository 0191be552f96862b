# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File systems that are made here: what of them is there, and what is left to be done.

The number of an array and of its file system follow from its name and from its drives. So what a run that was killed
left half made is known to be ours, and check mode knows what a run will write.

What is half made is finished only with our note that we were at it (``JOURNAL``), which is written before the first
byte and removed before the first mount. Without it, somebody may have an array of which one drive was replaced.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple

from ..._core.record import listed, read_note
from ..._core.value import frozen, replace
from ..._core.wording import counted, first_of
from . import drives as on_drives
from .drives import Array, Drive
from .spec import JOURNAL
from .superblocks import Superblock, of_mdadm, superblock_of, uuid_text

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .spec import Entry, MadeOf

# udev makes this link whatever the name of the array is.
BY_UUID = "/dev/disk/by-id/md-uuid-"
# What is left to be done, none for a file system that is there.
NONE, ASSEMBLE, CREATE, FINISH, FORMAT = "", "assemble", "create", "finish", "format"
# mkfs.xfs makes no log of 64 MiB in less, which it wants for a wide stripe.
LEAST = 1 << 30
PACKAGES = {"mdadm": "mdadm", "mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs"}
WIPE = "declare empty drives; if nothing on this one is needed, wipe it with blkdiscard --zeroout"
OR_WIPE = f"declare what is there, or {WIPE}"
SHOWN = 3


@frozen
class Intent:
    """What a run is about to make, and of which drives, by their identities."""

    array: str
    filesystem: str
    fstype: str
    drives: Tuple[str, ...]


@frozen
class Refusal:
    """Why nothing is made: what it is about, and what to do."""

    object: str
    cause: str
    hint: str


@frozen
class Made:
    """What is there of one file system, and what is left to be done (``work``).

    ``source`` is its name that stays the same, ``target`` the node of the array or drive, empty for an array that does
    not run. ``begun``: our note says that a run was about to make it. ``missing`` are programs that are not installed.
    """

    intent: Intent
    drives: Tuple[Drive, ...]
    array: Optional[Array]
    superblock: Optional[Superblock]
    source: str
    target: str
    number: str
    work: str
    begun: bool
    refusal: Optional[Refusal] = None
    missing: Tuple[str, ...] = ()

    @property
    def single(self) -> bool:
        """Whether the file system is on the only drive, without an array."""
        return len(self.drives) == 1

    @property
    def array_id(self) -> str:
        """The number of the array that is there, or that will be made, as mdadm(8) writes it."""
        member = self.drives[0].member
        return of_mdadm(member.array if member is not None else self.intent.array)


def number_of(*parts: str) -> str:
    """A UUID that follows from these texts (RFC 9562, version 8)."""
    digest = bytearray(hashlib.sha256("\0".join(("gpufleet.node.filesystems", *parts)).encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return uuid_text(bytes(digest))


def read_journal(files: Files) -> Mapping[str, Intent]:
    """What runs were about to make, by mount point. A damaged one says nothing: then nothing half made is touched."""
    return read_note(files, JOURNAL, _intents) or {}


def _intents(document: Any) -> Mapping[str, Intent]:
    return {
        str(path): Intent(
            str(entry["array"]),
            str(entry["filesystem"]),
            str(entry["fstype"]),
            tuple(map(str, listed(entry["drives"]))),
        )
        for path, entry in document.items()
    }


def write_journal(files: Files, intents: Mapping[str, Intent]) -> None:
    if not intents:
        if files.exists(JOURNAL):
            files.remove(JOURNAL)
        return
    if intents == read_journal(files):
        return
    document: Dict[str, Dict[str, Any]] = {
        path: {**vars(intent), "drives": list(intent.drives)} for path, intent in sorted(intents.items())
    }
    files.replace(JOURNAL, json.dumps(document, indent=1) + "\n", 0o600)


def look(host: Host, entry: Entry, made_of: MadeOf, journal: Mapping[str, Intent]) -> Made:
    """What is there of what this entry declares, and what is left to be done."""
    links, absent = on_drives.links_of(host.files, made_of.drives)
    found = on_drives.look(host, links)
    identities = tuple(drive.identity for drive in found)
    intent = Intent(
        array=number_of("array", made_of.name, *identities),
        filesystem=number_of("filesystem", made_of.name, *identities),
        fstype=entry.fstype,
        drives=identities,
    )
    single = len(found) == 1
    made = Made(
        intent=intent,
        drives=found,
        array=None,
        superblock=found[0].superblock if single else None,
        source=found[0].link if single else "",
        target=found[0].node if single else "",
        number=found[0].number if single else "",
        work=NONE,
        begun=journal.get(entry.path) == intent,
    )
    if found and not single:
        made = replace(made, source=f"{BY_UUID}{made.array_id}")
    refusal = _refuse_drives(host, entry, found, absent)
    if refusal is None:
        made, refusal = _on_one(made, entry) if single else _on_array(host, made, entry, made_of)
    if refusal is None and made.target:
        elsewhere = [path for path in on_drives.mounted_at(host.files, made.number) if path != entry.path]
        if elsewhere:
            refusal = Refusal(
                made.target, f"it is mounted at {first_of(elsewhere, SHOWN)}", "unmount it there, or leave it out"
            )
    if refusal is None and made.work in (CREATE, FINISH, FORMAT):
        refusal = _refuse_opened(host, made)
    return replace(made, refusal=refusal, missing=_missing(host, made, entry.fstype))


def _refuse_drives(host: Host, entry: Entry, found: Sequence[Drive], absent: Sequence[str]) -> Optional[Refusal]:
    """What is wrong with one drive alone."""
    if absent:
        return Refusal(entry.path, f"this machine has no {absent[0]}", "declare drives that exist")
    for drive in found:
        if drive.problem:
            return Refusal(_name(drive), drive.problem, WIPE)
        places = on_drives.mounted_at(host.files, drive.number) if len(found) > 1 else ()
        if places:
            return Refusal(_name(drive), f"it is mounted at {first_of(places, SHOWN)}", "unmount it, or leave it out")
    twice = [drive for drive in found if [other.identity for other in found].count(drive.identity) > 1]
    if twice:
        return Refusal(_name(twice[0]), "another drive has the same serial number", "declare one of them only")
    if entry.fstype == "xfs" and sum(drive.size for drive in found) < LEAST:
        return Refusal(
            entry.path, "XFS takes no less than 1 GiB with a stripe", "declare larger drives, or fstype: ext4"
        )
    return None


Verdict = Tuple[Made, Optional[Refusal]]


def _on_one(made: Made, entry: Entry) -> Verdict:
    drive = made.drives[0]
    if drive.member is not None:
        cause = f"it is a drive of the array {drive.member.name or drive.member.array}"
        return made, Refusal(_name(drive), cause, WIPE)
    return _on_target(made, entry, blank=drive.blank, known="")


def _on_target(made: Made, entry: Entry, *, blank: bool, known: str) -> Verdict:
    """The file system on an array, or on a drive. ``known`` is what else is on it."""
    found = made.superblock
    where = made.array.node if made.array is not None else _name(made.drives[0])
    if found is not None and found.complete:
        if found.fstype != entry.fstype:
            return made, Refusal(where, f"it holds {found.fstype}, and {entry.fstype} is declared", OR_WIPE)
        return made, None
    ours = made.begun and (found is None or found.uuid == made.intent.filesystem)
    if known or not (ours or (blank and made.single)):
        if found is not None:
            known = f"{found.fstype} that was never completely made"
        elif not known:
            known = "no file system" if blank else "data that no tool recognises"
        return made, Refusal(where, f"it holds {known}", WIPE)
    return _with_work(made, FORMAT), None


def _on_array(host: Host, made: Made, entry: Entry, made_of: MadeOf) -> Verdict:
    drives, intent = made.drives, made.intent
    members = [drive for drive in drives if drive.member is not None]
    for drive in drives:
        if drive.superblock is not None:
            return made, Refusal(_name(drive), f"it holds {drive.superblock.fstype}", WIPE)
        # What was half written when a run was killed is no signature yet.
        if drive.member is None and not drive.blank and not made.begun:
            return made, Refusal(_name(drive), "it has data that no tool recognises", WIPE)
    if not members:
        taken = _taken(host, f"/dev/md/{made_of.name}")
        work = CREATE if all(drive.blank for drive in drives) else FINISH
        return (made, taken) if taken is not None else (_with_work(made, work), None)
    arrays = {drive.member.array for drive in members if drive.member is not None}
    roles = {drive.member.role for drive in members if drive.member is not None}
    if len(members) == len(drives) and len(arrays) == 1 and roles == set(range(len(drives))):
        return _on_whole_array(host, made, entry, made_of)
    if made.begun and arrays == {intent.array}:
        return _with_work(made, FINISH), None
    drive = next((one for one in members if one.member is not None and one.member.array != intent.array), members[0])
    name = drive.member.name if drive.member is not None else ""
    blank = [one.name for one in drives if one.blank]
    rest = f", and {first_of(blank, SHOWN)} of it is blank" if blank and arrays == {intent.array} else ""
    return made, Refusal(_name(drive), f"it is a drive of the array {name}, with other drives than these{rest}", WIPE)


def _on_whole_array(host: Host, made: Made, entry: Entry, made_of: MadeOf) -> Verdict:
    """All of these drives, and no others, are one array."""
    drives, files = made.drives, host.files
    first = drives[0].member
    if first is None:
        raise ValueError("a drive of an array has its superblock")
    where = f"the array {first.name}"
    wanted = f"raid0 of {counted(len(drives), 'drive')} in chunks of {made_of.chunk_kb} KiB"
    found = f"raid{first.level} of {counted(first.disks, 'drive')} in chunks of {first.chunk_kb} KiB"
    if found != wanted:
        return made, Refusal(where, f"it is {found}, and {wanted} is declared", OR_WIPE)
    if first.name.rpartition(":")[2] != made_of.name:
        return made, Refusal(where, f"{made_of.name} is declared of its drives", "set made_of.name to that name")
    holders = {holder for drive in drives for holder in drive.holders}
    arrays = [array for array in (on_drives.array_of(files, name) for name in holders) if array is not None]
    array = arrays[0] if len(arrays) == 1 else None
    names = {drive.name for drive in drives}
    if array is not None and array.runs and (array.broken or set(array.members) != names):
        # It holds on to the drive that went, also when that is back, and nothing but a new start gives it that one.
        hint = f"unmount {entry.path}, stop the array with mdadm --stop {array.node}, then run again; or reboot"
        return made, Refusal(array.node, "one of its drives went away while it was running, so it has failed", hint)
    if array is None or not array.runs:
        if len(arrays) > 1:
            return made, Refusal(
                where, f"its drives are held by {first_of(sorted(holders), SHOWN)}", "stop those arrays"
            )
        return _with_work(made, ASSEMBLE), None
    if (array.level, array.disks) != ("raid0", len(drives)):
        return made, Refusal(array.node, f"it runs as {array.level} of {counted(array.disks, 'drive')}", WIPE)
    held = files.names(f"{on_drives.BLOCK}/{array.name}/holders")
    if held:
        return made, Refusal(array.node, f"it is held by {first_of(held, SHOWN)}", "release it, or leave it out")
    head = on_drives.head_of(files, array.node)
    made = replace(made, array=array, superblock=superblock_of(head), target=array.node, number=array.number)
    complete = made.superblock is not None and made.superblock.complete
    known = "" if complete or made.superblock is not None else on_drives.signature(host, array.node)
    blank = complete or on_drives.is_zero(files, array.node, on_drives.size_of(files, array.name))
    return _on_target(made, entry, blank=blank, known=known)


def _taken(host: Host, link: str) -> Optional[Refusal]:
    name = host.files.resolve(link).rpartition("/")[2]
    if on_drives.array_of(host.files, name) is None:
        return None
    return Refusal(link, f"it is the array {name} of other drives", "set another made_of.name")


def _refuse_opened(host: Host, made: Made) -> Optional[Refusal]:
    """Who has a drive open that nothing is on yet, such as a virtual machine or a database on the raw drive."""
    for node in (*(drive.node for drive in made.drives), *([made.target] if made.array is not None else ())):
        users = on_drives.users_of(host.files, node)
        if users:
            return Refusal(node, f"in use by {first_of(users, SHOWN)}", "stop what uses it, or leave the drive out")
    return None


def _missing(host: Host, made: Made, fstype: str) -> Tuple[str, ...]:
    needed = []
    if made.work in (ASSEMBLE, CREATE, FINISH):
        needed.append("mdadm")
    if made.work in (CREATE, FINISH, FORMAT):
        needed.append(f"mkfs.{fstype}")
    return tuple(name for name in needed if host.commands.find(name) is None)


def _with_work(made: Made, work: str) -> Made:
    return replace(made, work=work)


def _name(drive: Drive) -> str:
    return f"{drive.link} ({drive.name})"
