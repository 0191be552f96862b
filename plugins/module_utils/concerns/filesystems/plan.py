# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of mounts, and the steps from here to there.

What is not mounted is mounted before its unit is written: only that proves that the next boot can do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Plan, Refuse, RemoveFile, Step, Unmanaged
from ..._core.errors import InUse
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, REBOOT, Setting
from ..._core.value import replace
from ..._core.wording import first_of
from ..._kinds import units
from ..._linux import systemd
from ..._linux.boot_service import not_persisted
from . import array_file, tunables, unit_files
from .actions import KeepJournal, KeepNotes, Mounts, Remount, SetReadAhead, SetTunables, Unmount
from .clients import CLIENTS
from .making_plan import SETTINGS_OF_MADE, making_steps, rows_of_made
from .sources import fsname_of, is_source, is_source_hidden
from .state import (
    MOUNT,
    NOTES,
    READ_AHEAD,
    FilesystemsDesired,
    FilesystemsState,
    Note,
    Place,
    title_of,
)
from .values import (
    DIROPS,
    EFS,
    FLAGS,
    GPFS,
    NFS,
    OF_THE_MOUNT,
    WEKA,
    WITH_CLIENTS,
    Option,
    can_remount,
    flag_of,
    flags_with,
    is_recorded,
    kind_of,
    options_of,
    read_back,
)

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._linux.mounts import Mount
    from .spec import Entry

REMOUNT = "remount"
SHOWN = 5


def plan(state: FilesystemsState, desired: FilesystemsDesired, scope: Scope) -> Plan:
    rows: List[Setting] = []
    unmanaged: List[Unmanaged] = []
    late: List[Setting] = []
    for path, place in state.places.items():
        entry = desired.entries.get(path)
        if scope.immediate and entry is not None and path in state.made:
            found, refused = rows_of_made(entry, state.made[path])
            rows += found
            unmanaged += refused
        if scope.permanent:
            rows += _boot_rows(place, entry, scope)
        if path not in desired.stays:
            row = _mount_row(state, place, entry, scope)
            rows.append(row)
            if entry is not None and entry.ephemeral and row.boot_matters and row.boot != row.wanted:
                late.append(row)
        if scope.immediate and entry is not None:
            found, refused = _rows_of_entry(state, place, entry)
            rows += found
            unmanaged += refused
        elif scope.immediate and path in desired.stays:
            rows += _rows_that_stay(state, place, desired.stays[path])
    arrays = array_file.text_of(desired.entries, state.made)
    file_rows = state.arrays.rows(arrays) if state.arrays is not None and scope.permanent else []
    rows += file_rows
    steps: List[Step] = []
    if any(row.status != IN_SYNC for row in rows):
        steps = _steps(state, desired, [row for row in rows if row.status != IN_SYNC])
    if state.arrays is not None:
        steps += [state.arrays.step(arrays, (boot_change(row),)) for row in file_rows if row.boot != row.wanted]
    if late:
        # The boot service mounts them by the declaration that is written last; without it nothing is begun.
        steps.insert(0, Step(Refuse(not_persisted(state.carrier.missing))))
        steps.append(Step(Refuse(None), tuple(map(boot_change, late))))
    going_on = tuple(path for path in state.journal if path in state.made and state.made[path].work)
    if going_on != state.journal:
        # Before anything is mounted: of what somebody may have put data on, nothing is to say that it is half made.
        steps.insert(0, Step(KeepJournal(going_on)))
    if desired.restoring and scope.immediate and state.notes:
        steps.append(Step(RemoveFile(NOTES)))
    conflicts = () if desired.restoring else state.conflicts
    return Plan(tuple(rows), tuple(steps), tuple(unmanaged), conflicts)


def is_entry(state: FilesystemsState, place: Place, entry: Entry) -> bool:
    """Whether what is mounted there, or is at the first access, is what is declared: the whole of it, and no folder."""
    mount = place.automount or place.mount
    if mount is None or kind_of(mount) != entry.fstype:
        return False
    if entry.fstype in (NFS, EFS):
        # The kernel shows the source of what is mounted, also of a folder (nfs_show_devname), and as its root whatever
        # another mount of the same export has made of it.
        return is_source(entry.fstype, entry.source, mount)
    if entry.fstype in WITH_CLIENTS:
        return mount.root == "/" and is_source(entry.fstype, entry.source, mount)
    device = state.devices.get(entry.path, mount.number)
    return mount.root == "/" and mount.number == device


def _row(path: str, setting: str, wanted: Any, effective: Any) -> Setting:
    return Setting(path, setting, wanted, effective, None, path, boot_matters=False)


def _mount_row(state: FilesystemsState, place: Place, entry: Optional[Entry], scope: Scope) -> Setting:
    """What is mounted there. What others mounted instead was refused before, or stays where nothing is wanted."""
    wanted = None if entry is None else title_of(entry.fstype, entry.source)
    effective = place.title
    pending = ""
    if entry is not None and is_entry(state, place, entry):
        effective = wanted
    elif entry is not None and place.mount is not None:
        pending = f"it stays mounted until you unmount {place.path}, or until the next boot"
    elif entry is not None and entry.by_service:
        pending = _by_its_service(entry)
    return Setting(
        object=place.path,
        setting=MOUNT,
        wanted=wanted,
        effective=effective,
        # Where nothing is wanted of us, what fstab brings is not ours to end.
        boot=_brought(state, place, entry),
        identity=place.path,
        effective_matters=scope.immediate and (entry is not None or place.mount is None or place.by_us),
        # A service of its own mounts it at boot, which this module does not control.
        boot_matters=scope.permanent and (entry is None or not entry.by_service),
        pending=pending,
        needs=f"mount of {place.path}" if entry is not None and entry.by_service else REBOOT,
    )


def _by_its_service(entry: Entry) -> str:
    client = CLIENTS[entry.client]
    return f"{client.title} mounts it, and not this module: {client.remedy.replace('{}', entry.source)}"


def _brought(state: FilesystemsState, place: Place, entry: Optional[Entry]) -> Optional[str]:
    """What the next boot mounts there of what is wanted."""
    if entry is not None and entry.ephemeral:
        return title_of(entry.fstype, entry.source) if state.carrier.applies else None
    return _at_boot(place) or (state.in_fstab.get(place.path) if entry is not None else None)


def _at_boot(place: Place) -> Optional[str]:
    """What our unit mounts there at the next boot, which counts more than fstab."""
    boot = unit_files.at_boot(place.unit.text)
    return title_of(boot.fstype, boot.source) if boot is not None and place.status == systemd.ENABLED else None


def _boot_rows(place: Place, entry: Optional[Entry], scope: Scope) -> List[Setting]:
    rows: List[Setting] = []
    entry = entry if entry is not None and entry.at_boot else None
    mount_text = None if entry is None else unit_files.mount_text(entry)
    unit = place.unit.unit
    if entry is not None:
        # One that is not there yet is as good as disabled, and so it is called as soon as its file is written.
        found = systemd.DISABLED if place.status == systemd.NOT_FOUND else place.status
        rows += units.start_row(unit, systemd.ENABLED, found)
    elif place.unit.text is not None and place.status in (systemd.ENABLED, systemd.DISABLED):
        rows += units.start_row(unit, systemd.DISABLED, place.status)
    rows += place.unit.rows_in(mount_text, immediate=scope.immediate)
    for service, text in zip(place.services, unit_files.service_texts(entry)):
        rows += service.rows_in(text, immediate=scope.immediate)
    return rows


def _rows_of_entry(state: FilesystemsState, place: Place, entry: Entry) -> Tuple[List[Setting], List[Unmanaged]]:
    path, mount = place.path, place.mount
    rows: List[Setting] = []
    unmanaged: List[Unmanaged] = []
    if mount is not None and not is_entry(state, place, entry):
        return rows, unmanaged
    if place.automount is not None:
        return _rows_of_automount(place, place.automount, entry), unmanaged
    if mount is not None and is_source_hidden(entry.fstype, mount):
        why = f"only the process of {CLIENTS[entry.client].title} that serves it knows its source, and was not found"
        unmanaged.append(Unmanaged(path, MOUNT, why))
    for option in entry.settings:
        if mount is None:
            rows.append(_row(path, option.setting, option.wanted, None))
            continue
        row, reason = _row_of_option(state, place, mount, entry, option)
        rows.append(row)
        if reason:
            unmanaged.append(Unmanaged(path, option.setting, reason))
    if entry.read_ahead_kb is not None:
        row = _row(path, READ_AHEAD, entry.read_ahead_kb, place.read_ahead)
        if mount is not None and place.read_ahead is None:
            row = replace(row, effective_matters=False)
            unmanaged.append(Unmanaged(path, READ_AHEAD, "the kernel has no separate read-ahead for this mount"))
        rows.append(row)
    for name, wanted in entry.tunables.items():
        if entry.fstype == GPFS:
            row, reason = _row_of_attribute(place, name, wanted)
        else:
            row, reason = _row_of_tunable(state, place, name, wanted)
        rows.append(row)
        if reason and (mount is not None or entry.fstype == GPFS):
            unmanaged.append(Unmanaged(path, name, reason))
    return rows, unmanaged


def _rows_of_automount(place: Place, mount: Mount, entry: Entry) -> List[Setting]:
    """The options that the first access mounts it with. A remount would be that access; the rest its unit sets then."""
    found = {option.setting: option.wanted for option in options_of(mount.options, entry.fstype)}
    rows = [_row(place.path, option.setting, option.wanted, found.get(option.setting)) for option in entry.settings]
    why = f"the first access to {place.path} mounts it with the options of its unit"
    return [row if row.effective == row.wanted else replace(row, pending=why) for row in rows]


def _row_of_tunable(state: FilesystemsState, place: Place, name: str, wanted: str) -> Tuple[Setting, str]:
    """The row, and the reason where the client does not have it."""
    row = _row(place.path, name, wanted, None)
    if place.mount is None:
        return row, ""
    found = (place.tunables or {}).get(name)
    if not found:
        why = "the client has no such parameter" if place.tunables is not None else "lctl is not installed"
        return replace(row, effective_matters=False), why
    odd = [value for value in found.values() if not tunables.VALUE.fullmatch(value)]
    if odd:
        return replace(row, effective_matters=False), f"it is not one value: the client has {odd[0] or 'none'}"
    return replace(row, effective=tunables.seen(name, wanted, found, state.page_size)), ""


def _row_of_attribute(place: Place, name: str, wanted: str) -> Tuple[Setting, str]:
    """The row of an attribute of Storage Scale, and why it is not set: mmchconfig is for administrators."""
    from . import scale

    if place.tunables is None:
        row = _row(place.path, name, wanted, None)
        return replace(
            row, effective_matters=False
        ), "mmdiag shows no configuration; check whether mmfsd runs on this node"
    effective = place.tunables.get(name, {}).get(scale.CLIENT)
    row = _row(place.path, name, wanted, effective)
    if effective is None:
        return replace(row, effective_matters=False), "the client has no such attribute"
    if scale.is_same(wanted, effective):
        return replace(row, effective=wanted), ""
    configured = place.configured.get(name, ())
    if len(configured) == 1 and scale.is_same(wanted, configured[0]):
        why = "the cluster is configured to it, but not this daemon: restart it with mmshutdown and mmstartup"
        return replace(row, pending=why, needs="restart of mmfsd"), ""
    has = f" (mmlsconfig has {', '.join(configured)})" if configured else ""
    why = f"{effective} is in effect{has}, and this module does not change the configuration of a cluster"
    row = replace(row, effective_matters=False)
    return row, f"{why}: run mmchconfig {name}={wanted} -N NODE on an administration node"


def _row_of_option(
    state: FilesystemsState, place: Place, mount: Mount, entry: Entry, option: Option
) -> Tuple[Setting, str]:
    """The row, and the reason where the kernel did not take the option and will not."""
    row = _row(place.path, option.setting, option.wanted, read_back(option, mount, state.memory_kb))
    if row.effective == row.wanted:
        if option.setting == "fsc" and not state.cache:
            return row, "the mount has it, but there is no cache, because cachefilesd does not run"
        return row, ""
    if can_remount(option, mount):
        return row, ""
    if is_recorded(option.setting, entry.fstype) and (row.effective is None or option.setting != DIROPS):
        return _row_of_record(state, place, mount, entry, option)
    if _was_mounted_otherwise(state, place, mount, entry):
        return replace(row, pending=_by_a_new_mount(place)), ""
    if option.setting == "nconnect" and place.path in state.sharing and state.sharing[place.path]:
        others = first_of(state.sharing[place.path], SHOWN)
        why = f"all mounts from a server share the connections of the first: unmount {others} too, then run again"
        return replace(row, pending=why, needs=REMOUNT), ""
    return replace(row, effective_matters=False), _not_taken(option, row.effective)


def _row_of_record(
    state: FilesystemsState, place: Place, mount: Mount, entry: Entry, option: Option
) -> Tuple[Setting, str]:
    """The same of an option that the kernel does not show: what counts is what we know the mount was made with."""
    row = _row(place.path, option.setting, option.wanted, None)
    known = _made_with(state, place, mount)
    if known is None:
        why = "the kernel does not show it, and this module did not make the mount"
        return replace(row, effective_matters=False), why
    recorded = {one.setting: one.wanted for one in options_of(known.split(","), entry.fstype)}
    row = replace(row, effective=recorded.get(option.setting))
    earlier = state.sharing.get(place.path, ())
    if earlier and entry.fstype == WEKA and option.setting not in OF_THE_MOUNT:
        why = f"only the first mount starts the client, and {earlier[0]} was mounted before"
        return replace(row, effective_matters=False), why
    if row.effective != row.wanted:
        row = replace(row, pending=_by_a_new_mount(place))
    return row, ""


def _by_a_new_mount(place: Place) -> str:
    return f"a remount cannot change it: unmount {place.path} and run again, or reboot"


def _not_taken(option: Option, found: Any) -> str:
    if option.setting in ("rsize", "wsize") and found is not None:
        return f"the server allows {found}"
    if found is None:
        return f"the kernel was told {option.text}, and does not show it"
    return f"the kernel was told {option.text}, and took {found}"


def _was_mounted_otherwise(state: FilesystemsState, place: Place, mount: Mount, entry: Entry) -> bool:
    """Whether the mount was made without these options; else the kernel or the server did not take one of them."""
    return _made_with(state, place, mount) != ",".join(entry.options)


def _made_with(state: FilesystemsState, place: Place, mount: Mount) -> Optional[str]:
    """The options that the mount was made with, where a run or our unit made it."""
    note = note_of(state, mount)
    if note is not None:
        return note.options
    boot = unit_files.at_boot(place.unit.text)
    return boot.options if boot is not None else None


def note_of(state: FilesystemsState, mount: Mount) -> Optional[Note]:
    """What a run knows of this mount. One without a number was about to be made when a run was killed."""
    note = state.notes.get(mount.path)
    return note if note is not None and note.id in ("", mount.id) else None


def _rows_that_stay(state: FilesystemsState, place: Place, values: Mapping[str, Any]) -> List[Setting]:
    rows: List[Setting] = []
    if place.mount is None:
        return rows
    for setting, wanted in values.items():
        if setting == READ_AHEAD:
            found: Any = place.read_ahead
        elif tunables.NAME.fullmatch(setting):
            row, _reason = _row_of_tunable(state, place, setting, str(wanted))
            rows.append(row)
            continue
        elif str(wanted) in FLAGS:
            found = flag_of(setting, place.mount)
        else:
            found = read_back(Option(setting, str(wanted), f"{setting}={wanted}"), place.mount, state.memory_kb)
        rows.append(_row(place.path, setting, wanted, found))
    return rows


def _steps(state: FilesystemsState, desired: FilesystemsDesired, wrong: Sequence[Setting]) -> List[Step]:
    now: Dict[str, List[Setting]] = {}
    for row in wrong:
        if row.identity in state.places and row.effective_matters and row.effective != row.wanted and not row.pending:
            now.setdefault(row.identity, []).append(row)
    ends, changed, mounted, tuned = _running_steps(state, desired, now)
    # What is mounted already gets its unit before a server is asked that may not respond.
    new = [path for path in desired.entries if any(row.setting == MOUNT for row in now.get(path, ()))]
    there = [path for path in state.places if path not in new]
    return [
        *ends,
        *changed,
        *_boot_steps(state, desired, wrong, there),
        *making_steps(state, desired.entries, now),
        *mounted,
        *_boot_steps(state, desired, wrong, new),
        # At last, so that a value that the client refuses keeps no mount from being made.
        *tuned,
    ]


def _running_steps(
    state: FilesystemsState, desired: FilesystemsDesired, wrong: Mapping[str, Sequence[Setting]]
) -> Tuple[List[Step], List[Step], List[Step], List[Step]]:
    """Those that unmount, those that change what is mounted, those that mount, and those that set tunables."""
    steps: List[Step] = []
    entries: List[Entry] = []
    changes: List[Setting] = []
    later: List[Step] = []
    last: List[Step] = []
    for path, rows in wrong.items():
        place = state.places[path]
        by_setting = {row.setting: row for row in rows if row.setting not in SETTINGS_OF_MADE}
        mount_row = by_setting.pop(MOUNT, None)
        if mount_row is not None and mount_row.wanted is None:
            refuse_in_use(place)
            steps.append(Step(Unmount(path), (effective_change(mount_row),)))
            continue
        if mount_row is not None:
            entries.append(_mountable(state, desired.entries[path]))
            changes += [mount_row, *by_setting.values()]
            continue
        tuned = [by_setting.pop(name) for name in list(by_setting) if tunables.NAME.fullmatch(name)]
        if tuned and place.mount is not None:
            values = {row.setting: str(row.wanted) for row in tuned}
            action = SetTunables(path, fsname_of(place.mount.source), values)
            last.append(Step(action, tuple(map(effective_change, tuned))))
        read_ahead = by_setting.pop(READ_AHEAD, None)
        if by_setting and place.mount is not None:
            later.append(_remount(place.mount, list(by_setting.values())))
        if read_ahead is not None:
            later.append(Step(SetReadAhead(path, int(read_ahead.wanted or 0)), (effective_change(read_ahead),)))
    if entries:
        # What nobody else serves comes first: a server may take its time.
        entries.sort(key=lambda entry: entry.made_of is None)
        missing = tuple(entry.path for entry in entries if state.places[entry.path].missing)
        mounting = Mounts(tuple(entries), missing)
        return steps, later, [Step(mounting, tuple(map(effective_change, changes)))], last
    return steps, later, [], last


def _mountable(state: FilesystemsState, entry: Entry) -> Entry:
    """An array that runs under the name of another host is mounted by the name that it has until the next boot."""
    made = state.made.get(entry.path)
    return entry if made is None or not made.target else replace(entry, source=made.target)


def _remount(mount: Mount, rows: Sequence[Setting]) -> Step:
    values = {row.setting: str(row.wanted) for row in rows}
    flags = {setting: value for setting, value in values.items() if value in FLAGS}
    options = ",".join(f"{setting}={value}" for setting, value in values.items() if setting not in flags)
    action = Remount(
        path=mount.path,
        source=mount.source,
        fstype=mount.fstype,
        access="ro" if "ro" in mount.options else "rw",
        flags=flags_with(mount, flags),
        options=options or None,
    )
    return Step(action, tuple(map(effective_change, rows)))


def refuse_in_use(place: Place) -> None:
    """Raises ``InUse`` with the names of those that have something open in what is to be unmounted."""
    hint = "stop what uses it, then run again, or set immediate: false to keep it from being mounted at the next boot"
    if place.inside:
        raise InUse(
            "unmount {}", object=place.path, cause=f"{first_of(place.inside, SHOWN)} is mounted in it", hint=hint
        )
    if place.users:
        raise InUse("unmount {}", object=place.path, cause=f"in use by {first_of(place.users, SHOWN)}", hint=hint)


def _boot_steps(
    state: FilesystemsState, desired: FilesystemsDesired, wrong: Sequence[Setting], paths: Sequence[str]
) -> List[Step]:
    """The units of these mount points: those that go are disabled first, those that come enabled last."""
    by_key = {(row.identity, row.setting): row for row in wrong}
    steps: List[Step] = []
    reloads: List[Step] = []
    starts: List[Setting] = []
    stops: List[Setting] = []
    notes: Dict[str, Note] = {}
    for path in paths:
        place, entry = state.places[path], desired.entries.get(path)
        entry = entry if entry is not None and entry.at_boot else None
        start = by_key.get((place.unit.unit, units.START))
        if start is not None:
            (stops if entry is None else starts).append(start)
        written: List[Step] = []
        for file, text in (
            *zip(place.services, unit_files.service_texts(entry)),
            (place.unit, None if entry is None else unit_files.mount_text(entry)),
        ):
            write, reload = file.steps(by_key.get((file.path, file.setting)), text)
            written += write
            reloads += reload
        # The first access makes a mount of its own, which has the unit.
        mount = place.mount if place.automount is None else None
        if written and entry is not None and mount is not None and note_of(state, mount) is None:
            notes[path] = _note_before(place, mount)
        steps += written
    if notes:
        steps.insert(0, Step(KeepNotes(notes)))
    if stops:
        steps.insert(0, _change_units("disable", stops))
    if starts:
        steps.append(_change_units("enable", starts))
    brought = [path for path in paths if path not in desired.entries or desired.entries[path].at_boot]
    steps = _with_mounts(steps, [by_key[path, MOUNT] for path in brought if (path, MOUNT) in by_key], state)
    if reloads:
        steps.append(Step(reloads[0].action, tuple(change for step in reloads for change in step.changes)))
    return steps


def _with_mounts(steps: Sequence[Step], rows: Sequence[Setting], state: FilesystemsState) -> List[Step]:
    """The same steps, with what is mounted at boot among the changes of the last that is about its unit."""
    found = list(steps)
    for row in rows:
        if not row.boot_matters or row.boot == row.wanted:
            continue
        unit = state.places[row.identity].unit
        names = (unit.unit, unit.path)
        at = max(number for number, step in enumerate(found) if any(one.object in names for one in step.changes))
        found[at] = replace(found[at], changes=(*found[at].changes, boot_change(row)))
    return found


def _note_before(place: Place, mount: Mount) -> Note:
    """What the unit that is about to change says of a mount that is there, which nothing else would say after that."""
    boot = unit_files.at_boot(place.unit.text)
    return Note(mount.id, boot.options if boot is not None and place.by_us else None)


def _change_units(verb: str, rows: Sequence[Setting]) -> Step:
    from ..._linux.systemd_apply import ChangeUnitFiles

    return Step(ChangeUnitFiles(verb, tuple(row.object for row in rows)), tuple(map(boot_change, rows)))
