# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values from before the first change, one file a concern, so that ``state: absent`` can restore them.

It is written before the change, so that a run that is killed loses nothing, and what turned out unchanged is dropped
when the run ends: whoever changes that later shall find it as they left it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, AbstractSet, Any, Dict, FrozenSet, Iterable, List, Mapping, Tuple

from .change import ReplaceFile, RoomAction, Step
from .errors import CannotLook
from .exposure import BINDING_FOLDER, PROGRAM_FOLDER
from .protocols import TEMPORARY, temporary_of
from .record import Damaged, listed, read_record
from .setting import Scalar, Setting
from .value import frozen

if TYPE_CHECKING:
    from .protocols import Files

FOLDER = "/var/lib/gpufleet/baseline"
# Shared by the concerns: whoever is restored last removes them.
STATE_FOLDER = "/var/lib/gpufleet"
OUR_FOLDERS = (
    "/etc/gpufleet/declared.d",
    "/etc/gpufleet",
    FOLDER,
    PROGRAM_FOLDER,
    BINDING_FOLDER,
    STATE_FOLDER,
)
SCHEMA = 1
GOAL = "read the original values in {}"
HINT = "restore it from a backup, or remove it to give up restoring"
Key = Tuple[str, str]


@frozen
class BaselineValue:
    """The values of one setting before our first change: in effect and for the next boot."""

    effective: Scalar
    boot: Scalar


@frozen
class Baseline:
    """All values from before us: by (identity, setting), and the folders that were not there.

    ``begun`` are those that a run is about to change, or was when it was killed. ``files`` are those that runs wrote: a
    run that is killed leaves a temporary file beside one.
    """

    values: Mapping[Key, BaselineValue]
    folders: Tuple[str, ...] = ()
    begun: FrozenSet[Key] = frozenset()
    files: Tuple[str, ...] = ()


def path_of(concern: str) -> str:
    return f"{FOLDER}/{concern}.json"


def load(files: Files, concern: str, *, believed: bool = True) -> Baseline:
    """Read the baseline, which is empty without a change so far. Raises ``CannotLook`` as ``read_record`` does."""
    known = read_record(
        files,
        path_of(concern),
        _baseline,
        schema=SCHEMA,
        goal=GOAL,
        hint=HINT,
        believed=believed,
    )
    return known or Baseline({})


def damaged(concern: str, cause: str) -> CannotLook:
    """What only the concern can see: a value that it never had."""
    return CannotLook(GOAL, object=path_of(concern), cause=f"the file is damaged: {cause}", hint=HINT)


def _baseline(document: Any) -> Baseline:
    values = {
        (_text(entry["identity"]), _text(entry["setting"])): BaselineValue(
            _scalar(entry["effective"]), _scalar(entry["boot"])
        )
        for entry in listed(document["values"])
    }
    begun = frozenset((_text(identity), _text(setting)) for identity, setting in listed(document.get("begun", [])))
    return Baseline(
        values=values,
        folders=_paths(document["folders"]),
        begun=begun & values.keys(),
        files=_paths(document.get("files", [])),
    )


def _scalar(value: object) -> Scalar:
    if value is None or (isinstance(value, (str, int)) and not isinstance(value, bool)):
        return value
    raise Damaged(f"{value!r:.80} is not the value of a setting")


def _paths(value: object) -> Tuple[str, ...]:
    paths = tuple(map(_text, listed(value)))
    if all(os.path.isabs(path) and "\0" not in path for path in paths):
        return paths
    raise Damaged(f"{value!r:.80} are not absolute paths")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise Damaged(f"{value!r:.80} is not a string")


def save(files: Files, concern: str, settings: Iterable[Setting], steps: Iterable[Step]) -> FrozenSet[Key]:
    """Add what the steps are about to change for the first time, and return what that is.

    What is already known is never overwritten.
    """
    known = load(files, concern, believed=False)
    after = _with_steps(files, concern, known, settings, steps)
    if after == known:
        return frozenset()
    _write(files, concern, after)
    return frozenset(after.values.keys() - known.values.keys())


def is_to_be_saved(files: Files, concern: str, settings: Iterable[Setting], steps: Iterable[Step]) -> bool:
    """Whether ``save`` would write the record."""
    known = load(files, concern, believed=False)
    return _with_steps(files, concern, known, settings, steps) != known


def _with_steps(
    files: Files, concern: str, known: Baseline, settings: Iterable[Setting], steps: Iterable[Step]
) -> Baseline:
    """The record with what the steps are about to change."""
    values: Dict[Key, BaselineValue] = dict(known.values)
    steps = tuple(steps)
    touched = {(change.object, change.setting) for step in steps for change in step.changes}
    for setting in settings:
        key = (setting.identity, setting.setting)
        # What an interrupted run left in a file of ours is nothing that anybody had before us.
        ours = setting.identity.startswith(f"{STATE_FOLDER}/")
        if (setting.object, setting.setting) in touched and key not in values and not ours:
            values[key] = BaselineValue(effective=setting.effective, boot=setting.boot)
    if not values:
        return known
    targets = [target for step in steps for target in _targets(step)]
    folders: List[str] = list(known.folders)
    made = [f"{folder}/" for step in steps if isinstance(step.action, RoomAction) for folder in step.action.folders]
    for target in (path_of(concern), *targets, *made):
        folders.extend(folder for folder in _missing_folders(files, target) if folder not in folders)
    written = tuple(dict.fromkeys((*known.files, *targets)))
    new = frozenset(values.keys() - known.values.keys())
    return Baseline(values, tuple(folders), known.begun | new, written)


def _targets(step: Step) -> Tuple[str, ...]:
    """The files that a step writes beside the state folder, which has no owner but us."""
    action = step.action
    if isinstance(action, ReplaceFile):
        return (action.path,)
    return action.writes if isinstance(action, RoomAction) else ()


def prune(
    files: Files, concern: str, *, changed: AbstractSet[Key], untried: AbstractSet[Key], now: Iterable[Setting]
) -> None:
    """Drop what the run that ends was about to change and did not, and the record where nothing else is in it.

    ``changed`` is what steps that succeeded changed, ``untried`` what no step came to, ``now`` what the machine says
    after them. What it does not speak of may have been changed by this run, or by one that was killed.
    """
    known = load(files, concern, believed=False)
    if not known.begun:
        return
    after = {(setting.identity, setting.setting): BaselineValue(setting.effective, setting.boot) for setting in now}

    def is_changed(key: Key) -> bool:
        return key in changed or (after[key] != known.values[key] if key in after else key not in untried)

    values = {key: value for key, value in known.values.items() if key not in known.begun or is_changed(key)}
    if values or changed:
        folders = tuple(folder for folder in known.folders if files.exists(folder))
        begun = frozenset(key for key in known.begun & values.keys() if key not in changed and key not in after)
        _write(files, concern, Baseline(values, folders, begun, known.files))
    else:
        drop(files, concern)


def _write(files: Files, concern: str, known: Baseline) -> None:
    document = {
        "schema": SCHEMA,
        "values": [
            {"identity": identity, "setting": setting, "effective": value.effective, "boot": value.boot}
            for (identity, setting), value in sorted(known.values.items())
        ],
        "folders": known.folders,
        "files": known.files,
        **({"begun": sorted(known.begun)} if known.begun else {}),
    }
    files.replace(path_of(concern), json.dumps(document, indent=1) + "\n", 0o600)


def drop(files: Files, concern: str) -> None:
    """Drop the record of a concern that was restored, with the folders that its files needed, where empty now."""
    known = load(files, concern)
    # What is beside the files of others first, and their folders: once the record is gone nobody knows of them.
    for temporary in (temporary_of(files.resolve(path)) for path in known.files):
        # A file system that is read-only would refuse to remove what is not there.
        if files.exists(temporary):
            files.remove(temporary)
    for folder in OUR_FOLDERS:
        for name in files.names(folder):
            # We have the lock, so nobody is about to put it in place.
            if name.endswith(TEMPORARY):
                files.remove(f"{folder}/{name}")
    for folder in sorted(known.folders, key=len, reverse=True):
        files.remove_folder(folder)
    files.remove(path_of(concern))
    for folder in OUR_FOLDERS:
        files.remove_folder(folder)


def empty_folder(files: Files) -> bool:
    """Whether one of our own folders is empty: a run that made it was killed before it wrote its record."""
    return any(files.is_folder(folder) and not files.names(folder) for folder in OUR_FOLDERS)


def _missing_folders(files: Files, path: str) -> List[str]:
    missing = []
    folder = os.path.dirname(path)
    while folder != "/" and not files.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing
