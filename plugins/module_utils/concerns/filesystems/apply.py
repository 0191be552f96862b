# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only mounts have: each program has a deadline, for a server may never respond."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional, Tuple

from ..._core import steps as core_steps
from ..._core.change import RunCommand, Step
from ..._core.errors import InUse, Refused
from ..._core.wording import counted, first_of
from ..._kinds import steps
from ..._linux import mounts
from . import made, making, tunables, users
from .actions import KeepJournal, KeepNotes, Make, Mounts, Remount, SetReadAhead, SetTunables, Unmount
from .clients import CLIENTS
from .observation import BDI, text_of_notes
from .observation import read_notes as notes_of
from .sources import fsname_of
from .state import NOTES, READ_AHEAD, Note
from .unit_files import SECONDS, mount_unit
from .values import OBJECT_STORES, mount_type

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .spec import Entry

SHOWN = 5
AS_AT_BOOT = "check its options; they must name its files, because it starts without HOME, as at boot"
# All that systemd gives to a mount, so that what works now works at boot.
ENVIRONMENT = ("LANG=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def perform(step: Step, host: Host) -> None:
    action = step.action
    if isinstance(action, Mounts):
        mount_all(action, host)
    elif isinstance(action, Make):
        making.make(action, host)
    elif isinstance(action, KeepJournal):
        journal = made.read_journal(host.files)
        made.write_journal(host.files, {path: journal[path] for path in action.paths if path in journal})
    elif isinstance(action, Unmount):
        unmount(action.path, host)
    elif isinstance(action, Remount):
        remount(action, host)
    elif isinstance(action, SetReadAhead):
        set_read_ahead(action.path, action.kb, host)
    elif isinstance(action, SetTunables):
        refusal = set_tunables(action, host)
        if refusal is not None:
            raise refusal
    elif isinstance(action, KeepNotes):
        note(host, action.notes)
    else:
        steps.perform(step, host)


def mount_all(action: Mounts, host: Host) -> None:
    """Raises ``Refused`` with what was said of the first that could not be mounted, after all were tried."""
    failures: List[Refused] = []
    made_now: List[Entry] = []
    for entry in action.entries:
        if entry.path in action.folders:
            core_steps.run(RunCommand(("mkdir", "--parents", entry.path), "make the mount point"), host)
        # First, so that a run that is killed between the two leaves no mount of which nobody knows.
        note(host, {entry.path: Note("", ",".join(entry.options))})
        failure = mount(entry, host)
        if failure is None:
            found = mounts.at(mounts.read(host.files), entry.path)
            note(host, {entry.path: Note(found.id if found is not None else "", ",".join(entry.options))})
            made_now.append(entry)
            if entry.read_ahead_kb is not None:
                set_read_ahead(entry.path, entry.read_ahead_kb, host)
        else:
            note(host, {}, without=entry.path)
            failures.append(failure)
    refusals = [
        set_tunables(SetTunables(entry.path, fsname_of(entry.source), entry.tunables), host)
        for entry in made_now
        if entry.tunables
    ]
    if failures:
        first = failures[0]
        others = f"; {counted(len(failures) - 1, 'other mount')} failed too" if len(failures) > 1 else ""
        raise Refused("mount {}", object=first.object, cause=f"{first.cause}{others}", hint=first.hint)
    refusal = next((one for one in refusals if one is not None), None)
    if refusal is not None:
        raise refusal


def mount(entry: Entry, host: Host) -> Optional[Refused]:
    """What went wrong; None where nothing did."""
    options = ("-o", ",".join(entry.options)) if entry.options else ()
    argv = ("mount", "-t", mount_type(entry.fstype), *options, entry.source, entry.path)
    if entry.daemon:
        argv = (*_scope(entry.path), *argv)
    failure = _tried(argv, "mount {}", entry.path, host, name="mount")
    if entry.fstype not in OBJECT_STORES:
        return failure
    if failure is None:
        return _answer(entry, host)
    return Refused("mount {}", object=entry.path, cause=failure.cause, hint=failure.hint or AS_AT_BOOT)


def _answer(entry: Entry, host: Host) -> Optional[Refused]:
    """Why the program that serves a mount does not answer, after the mount was removed; None where it does.

    s3fs goes into the background before it looks for its bucket. FUSE lowers the read-ahead with the first answer, so
    it can only be set after that.
    """
    failure = _tried(("stat", entry.path), "mount {}", entry.path, host)
    if failure is None:
        return None
    if mounts.at(mounts.read(host.files), entry.path) is not None:
        _tried(("umount", "--no-canonicalize", entry.path), "unmount {}", entry.path, host)
    program = CLIENTS[entry.client].title
    cause = f"{program} made the mount, but does not serve it: {failure.cause}"
    return Refused("mount {}", object=entry.path, cause=cause, hint=f"check the journal for messages of {program}")


def _scope(path: str) -> Tuple[str, ...]:
    """What runs a mount helper so that the process it leaves ends neither with our session nor before the mount."""
    # systemd-run takes a backslash for a quote.
    unit = mount_unit(path).replace("\\", "\\\\")
    before = f"--property=Before={unit}"
    words = ("systemd-run", "--scope", "--quiet", "--collect", before, "--", "env", "--ignore-environment")
    return (*words, *ENVIRONMENT)


def unmount(path: str, host: Host) -> None:
    """Raises ``InUse`` with who uses it by now, and ``Refused`` with what else was said."""
    if mounts.at(mounts.read(host.files), path) is not None:
        # Its server may be gone, so that nothing is to look where the path leads.
        failure = _tried(("umount", "--no-canonicalize", path), "unmount {}", path, host)
        found = users.of(host.files, path) if failure is not None else ()
        if found:
            cause = f"in use by {first_of(found, SHOWN)}"
            raise InUse("unmount {}", object=path, cause=cause, hint="stop what uses it, then run again") from failure
        if failure is not None:
            raise failure
    note(host, {}, without=path)


def remount(action: Remount, host: Host) -> None:
    """The flags of a mount by a remount of the mount alone (``bind``), which asks no server and needs no helper.

    Raises ``Refused`` with what was said.
    """
    words = ("mount", "--internal-only", "--no-canonicalize")
    commands: List[Tuple[str, ...]] = []
    if action.options is not None:
        # It sets the access of the file system too, which stays as it is.
        flags = (action.access, *(flag for flag in action.flags if flag not in ("ro", "rw")))
        options = ",".join(("remount", *flags, action.options))
        commands.append((*words, "-t", action.fstype, "-o", options, action.source, action.path))
    if action.options is None or action.access not in action.flags:
        options = ",".join(("remount", "bind", *action.flags))
        commands.append((*words, "-o", options, action.source, action.path))
    for command in commands:
        failure = _tried(command, "remount {}", action.path, host)
        if failure is not None:
            raise failure


def _tried(argv: Tuple[str, ...], goal: str, path: str, host: Host, *, name: str = "") -> Optional[Refused]:
    """What a program said that failed; None where it did not. One that takes too long is ended.

    ``name`` is what messages call it, where ``argv`` begins with a program that starts it.
    """
    name = name or argv[0]
    try:
        completed = host.commands.run(argv, timeout=float(SECONDS))
    except OSError as error:
        return Refused(goal, object=path, cause=f"{argv[0]}: {error.strerror or error}")
    if completed.status == 0:
        return None
    if completed.timed_out:
        return Refused(
            goal,
            object=path,
            cause=f"{name} did not end within {SECONDS} seconds",
            hint="check whether its server responds, and the network between them",
        )
    # The first line is what happened, the others say where to read more.
    said = (completed.errors or completed.output).strip().partition("\n")[0].rstrip(".")
    return Refused(goal, object=path, cause=said or f"{name} failed with exit status {completed.status}")


def set_read_ahead(path: str, kb: int, host: Host) -> None:
    """A rule of nfs-utils sets its own value when the kernel adds the device, so that it has to be through with it."""
    making.settle(host)
    found = mounts.at(mounts.read(host.files), path)
    if found is None:
        return
    file = f"{BDI}/{found.number}/{READ_AHEAD}"
    try:
        host.files.write_attribute(file, str(kb))
    except OSError as error:
        cause = f"the kernel refused the value at {file}: {error.strerror or error}"
        raise Refused("set read_ahead_kb", object=path, cause=cause, wanted=kb) from error


def set_tunables(action: SetTunables, host: Host) -> Optional[Refused]:
    """What lctl said of the first that failed, after all were tried; None where none did.

    Never with -P, which would change them for the whole cluster.
    """
    found = tunables.read(host, action.fsname, action.values) or {}
    page = tunables.page_size(host.files)
    first: Optional[Refused] = None
    for name in tunables.in_order(action.values):
        words = tunables.settings_of(name, action.values[name], found.get(name, {}), page)
        failure = _tried((tunables.LCTL, "set_param", *words), f"set {name}", action.path, host) if words else None
        first = first or failure
    return first


def note(host: Host, more: Mapping[str, Note], *, without: str = "") -> None:
    """What is known of mounts, until the next boot."""
    before = notes_of(host.files)
    after = {**{path: known for path, known in before.items() if path != without}, **more}
    if after == before:
        return
    if after:
        host.files.replace(NOTES, text_of_notes(after))
    else:
        host.files.remove(NOTES)
