# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine cannot have, before anything changes, and what it had before us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Container, Dict, Iterable, Mapping

from ..._core.baseline import damaged
from ..._core.errors import CannotLook, DeclarationError, OwnedByAnother
from ..._core.value import replace
from ..._core.wording import agreeing
from ..._linux import systemd
from . import tunables, unit_files
from .clients import CLIENTS
from .plan import is_entry
from .spec import NAME, FilesystemsDeclaration
from .state import MOUNT, READ_AHEAD, FilesystemsDesired, FilesystemsState, Place, title_of, was_empty
from .values import FLAGS, NFS, REMOUNTABLE, bytes_of, kind_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline, BaselineValue, Key
    from .made import Made
    from .spec import Entry


class NoDisk(CannotLook):
    """A disk that is reached over a network is not there; ``nvme_of`` may be about to bring it."""

    code = "no_disk"


def resolve(declaration: FilesystemsDeclaration, state: FilesystemsState) -> FilesystemsDesired:
    """Raises ``DeclarationError``, ``NoDisk`` or ``OwnedByAnother`` for the first mount that cannot be had."""
    for path, entry in declaration.mounts.items():
        place = state.places[path]
        _refuse_owner(place)
        if path in state.made:
            _refuse_unmakeable(path, state.made[path])
        _refuse_without_client(state, path, entry)
        if place.mount is None or (place.automount is not None and state.devices.get(path) == ""):
            if not entry.by_service:
                _refuse_unmountable(state, place, entry)
        elif not (is_entry(state, place, entry) or place.by_us or _is_our_automount(place)):
            raise OwnedByAnother(
                "mount {}",
                object=path,
                cause="something else is mounted there",
                found=_found(place),
                wanted=title_of(entry.fstype, _source(state, entry)),
                hint="unmount it, declare what is there, or choose another mount point",
            )
    _refuse_shared(declaration, state)
    _refuse_same_drives(state)
    orphaned = [path for path in state.places if path not in declaration.mounts]
    try:
        # What fstab brings at boot belongs to whoever wrote it.
        stays = _staying(state.before, orphaned, brought=state.in_fstab)
    except ValueError as error:
        raise damaged(NAME, str(error)) from error
    entries = {path: replace(entry, source=_source(state, entry)) for path, entry in declaration.mounts.items()}
    return FilesystemsDesired(entries, stays)


def restore(baseline: Baseline, state: FilesystemsState) -> FilesystemsDesired:
    """Raises ``ValueError`` on a value that no mount had."""
    return FilesystemsDesired({}, _staying(baseline.values, state.places), restoring=True)


def _staying(
    before: Mapping[Key, BaselineValue], paths: Iterable[str], *, brought: Container[str] = ()
) -> Dict[str, Dict[str, Any]]:
    """Which of these mounts stay, those that are ``brought`` by others among them, each with its values from before us.

    Raises ``ValueError`` on a value that no mount had.
    """
    stays: Dict[str, Dict[str, Any]] = {path: {} for path in paths if path in brought or not was_empty(before, path)}
    for (path, setting), value in before.items():
        if setting == MOUNT:
            if not (value.effective is None or isinstance(value.effective, str)):
                raise ValueError(f"{value.effective!r} is not what was mounted")
        # None is what a mount had that was not there just then, when a run made it again.
        elif path in stays and value.effective is not None and not was_empty(before, path):
            stays[path][setting] = _before(path, setting, value.effective)
    return stays


def _before(path: str, setting: str, value: Any) -> Any:
    if setting == READ_AHEAD:
        if isinstance(value, int):
            return value
    elif tunables.NAME.fullmatch(setting):
        if isinstance(value, str) and tunables.SEVERAL.fullmatch(value):
            return value
    elif isinstance(value, str):
        named = value in FLAGS and FLAGS[value][0] == setting
        if named or (any(setting in names for names in REMOUNTABLE.values()) and (value.isalpha() or bytes_of(value))):
            return value
    raise ValueError(f"{value!r} is not a value of {setting} on {path}")


def _is_our_automount(place: Place) -> bool:
    """Whether the first access mounts our unit, which then has what is declared."""
    return place.automount is not None and place.unit.text is not None


def _found(place: Place) -> str:
    mount = place.mount
    if place.automount is not None:
        return f"an automount of {place.title}"
    if mount is not None and mount.root != "/" and kind_of(mount) != NFS:
        return f"{mount.root} of {kind_of(mount)} {mount.source}"
    return place.title or ""


def _refuse_owner(place: Place) -> None:
    if place.foreign or place.status == systemd.MASKED:
        cause, hint = "the unit is a file of someone else", "remove it, or leave the mount to whoever wrote it"
        if place.status == systemd.MASKED:
            unmask = f"systemctl unmask {place.unit.unit}"
            cause, hint = "it is masked", f"run {unmask}, or leave the mount out of the declaration"
        raise OwnedByAnother("write {}", object=unit_files.file_of(place.unit.unit), cause=cause, hint=hint)


def _refuse_unmountable(state: FilesystemsState, place: Place, entry: Entry) -> None:
    if place.obstacle:
        raise DeclarationError(
            "mount {}",
            object=place.path,
            cause=place.obstacle,
            found=place.found or None,
            hint="choose another mount point, or clear this one",
        )
    if entry.made_of is None and state.devices.get(place.path) == "":
        if entry.remote:
            raise NoDisk(
                "mount {}",
                object=place.path,
                cause=f"this machine has no {entry.source}",
                hint="connect the disk, with nvme_of or otherwise, or declare a device that is there",
            )
        raise DeclarationError(
            "mount {}",
            object=place.path,
            cause=f"this machine has no {entry.source}",
            hint="declare an existing device, or make one on empty drives with made_of",
        )


def _refuse_without_client(state: FilesystemsState, path: str, entry: Entry) -> None:
    lacking = state.lacking.get(entry.client)
    if lacking:
        client = CLIENTS[entry.client]
        raise DeclarationError(
            "mount {}",
            object=path,
            cause=f"the client of {client.title} is not installed",
            hint=f"there is no {lacking}: {client.hint}",
        )


def _source(state: FilesystemsState, entry: Entry) -> str:
    """What is mounted; what is made here has the name of its array, or of its only drive."""
    return state.made[entry.path].source if entry.path in state.made else entry.source


def _refuse_unmakeable(path: str, made: Made) -> None:
    refusal = made.refusal
    if refusal is not None:
        about = "" if refusal.object == path else f"{refusal.object}: "
        raise DeclarationError("make {}", object=path, cause=f"{about}{refusal.cause}", hint=refusal.hint)
    if made.missing:
        from .made import PACKAGES

        packages = ", ".join(PACKAGES[name] for name in made.missing)
        cause = f"{' and '.join(made.missing)} {agreeing(len(made.missing), 'is', 'are')} not installed"
        raise DeclarationError("make {}", object=path, cause=cause, hint=f"install {packages}")


def _refuse_same_drives(state: FilesystemsState) -> None:
    """Two names may lead to one drive."""
    seen: Dict[str, str] = {}
    for path, made in state.made.items():
        for drive in made.drives:
            other = seen.setdefault(drive.name, path)
            if other != path:
                cause = f"{drive.link} ({drive.name}) is a drive of {other} too"
                raise DeclarationError("make {}", object=path, cause=cause, hint="leave it out of one of them")


def _refuse_shared(declaration: FilesystemsDeclaration, state: FilesystemsState) -> None:
    """Mounts of one export are one file system for the kernel, which has one read-ahead."""
    seen: Dict[str, Entry] = {}
    for path, entry in declaration.mounts.items():
        mount = state.places[path].mount
        if mount is None or entry.read_ahead_kb is None:
            continue
        other = seen.setdefault(mount.number, entry)
        if other.read_ahead_kb != entry.read_ahead_kb:
            raise DeclarationError(
                "set read_ahead_kb on {}",
                object=path,
                cause=f"{other.path} is the same file system, and the two share one read-ahead",
                found=other.read_ahead_kb,
                wanted=entry.read_ahead_kb,
                hint="declare the same for both",
            )
