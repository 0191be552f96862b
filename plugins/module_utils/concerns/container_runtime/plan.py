# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container engines: the steps to what is declared, and what ``state: absent`` restores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterator, List, Optional, Sequence, Tuple

from ..._core.change import Blocker, Change, Conflict, RemoveFile, ReplaceFile, RoomAction, RunCommand, Step, Unmanaged
from ..._core.setting import BOOT, EFFECTIVE, IN_SYNC, Scalar, Setting
from ..._core.value import frozen, replace
from . import last_good, leftover, original_files
from .entries import TOOLKIT
from .model import DEFAULT_RUNTIME, ENGINES, RUNTIME, Edit, SettingName, by_text, shown
from .state import (
    NOT_INSTALLED,
    SPECIFICATION,
    ContainerRuntimeState,
    Engine,
    inspect,
    not_taken_up,
)

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .original_files import OriginalFile
    from .spec import Changed

TEXT = "text"
FOUND = "as it was found"
LEFT = "as this collection left it"
WITHOUT = "without what this collection added"
EDITED = "it was edited since"
WORDS = {"true": True, "false": False}
# Their values are names and paths, whatever they spell.
NAMES = (RUNTIME, DEFAULT_RUNTIME.kind)


@frozen
class RequireRuntime(RoomAction):
    """Refuse before anything changes: the engine could not start the runtime. ``why`` says it."""

    engine: str
    path: str
    why: str


@frozen
class CheckEdits(RoomAction):
    """Let everybody who can say whether the files of an engine are good, and mean what is wanted, do so.

    ``found`` are those that would bring all texts from before our first change back.
    """

    seen: Engine
    edits: Tuple[Edit, ...]
    found: Tuple[Edit, ...] = ()


@frozen
class KeepFiles(RoomAction):
    """Note the texts that are about to change. ``anew``: the daemon has all that its files say up to now.

    ``daemon`` is whether there is one that may not come back with the new texts.
    """

    engine: str
    edits: Tuple[Edit, ...]
    daemon: bool
    anew: bool


def observe_changed(host: Host, changed: Changed) -> ContainerRuntimeState:
    """The engines that we ever changed and that are still there, with what they had before."""
    kept = original_files.load(host.files)
    seen: List[Engine] = []
    lacking: List[Unmanaged] = []
    conflicts: List[Conflict] = []
    # What went from the folders of CDI comes back as a text alone: what was wrong there has no other meaning.
    for engine in (*ENGINES, TOOLKIT):
        values = changed.get(engine)
        if not values:
            continue
        here = inspect(host, engine)
        if here is None:
            lacking.extend(Unmanaged(engine, str(setting), NOT_INSTALLED) for setting in sorted(values))
            continue
        wanted = {setting: _typed(setting, value.boot) for setting, value in values.items()}
        found = {setting: value.effective for setting, value in values.items()}
        back = replace(here, wanted=wanted, baseline=found)
        # What others have said since in files of theirs is no more ours to change than it was ours to write.
        edits = _edits_back(back, kept)
        rest = leftover.find(host, here.kind, here.configuration.installation, wanted, edits)
        seen.append(replace(back, wanted={**wanted, **rest.left}, restore_edits=edits))
        lacking.extend(rest.unmanaged(engine))
        conflicts.extend(rest.conflicts)
    there = {one.engine for one in seen}
    lacking.extend(Unmanaged(one.path, TEXT, EDITED) for one in kept if one.engine not in there and not one.unedited)
    return ContainerRuntimeState(tuple(seen), tuple(lacking), originals=kept, conflicts=tuple(conflicts))


def find_blocker(state: ContainerRuntimeState) -> Optional[Blocker]:
    """Why there is nothing to do although something is not as declared: others have it in files of theirs."""
    errors = [seen.leftover.error(seen.engine) for seen in state.engines if seen.leftover]
    return next((Blocker(error) for error in errors if error), None)


def plan_steps(
    state: ContainerRuntimeState, settings: Tuple[Setting, ...], scope: Scope
) -> Tuple[Tuple[Setting, ...], Tuple[Step, ...]]:
    """The settings, with the files of engines that are gone, and the steps.

    What any engine refuses is met before the first file of any is written.
    """
    first: List[Step] = []
    last: List[Step] = []
    rows: List[Setting] = []
    restoring = scope.restoring and scope.permanent
    for seen in state.engines:
        changes = _changes(seen, [setting for setting in settings if setting.object == seen.engine])
        if (
            not changes
            and not seen.leftover
            and not (restoring and any(one.engine == seen.engine for one in state.originals))
        ):
            continue
        edits = seen.restore_edits if seen.entry is None else seen.kind.edit(seen.configuration, seen.entry)
        edits = in_order(edits, seen.configuration.installation.drop_in)
        if edits and not changes and seen.leftover:
            changes = tuple(Change(edit.path, TEXT, LEFT, WITHOUT, BOOT) for edit in edits)
        elif edits and not changes:
            # A run that was killed on its way back, or a file of ours that says nothing.
            texts = [_text_row(edit) for edit in edits]
            rows.extend(texts)
            changes = _changes(seen, texts)
        needed = _needed(seen, changes if not edits else ())
        first.extend(needed)
        if edits:
            first.append(
                Step(CheckEdits(seen, edits, _texts([one for one in state.originals if one.engine == seen.engine])))
            )
            last.append(Step(_keep(seen, edits), notes=(original_files.RECORD, last_good.path_of(seen.engine))))
            last.extend(_writes(edits, changes))
    last.extend(
        Step(RunCommand(state.refresh, "regenerate the CDI specification"), (_effective(setting),))
        for setting in settings
        if setting.setting == SPECIFICATION and setting.status != IN_SYNC
    )
    if restoring:
        for row, edit in _orphans(state):
            rows.append(row)
            last.extend(_writes([edit], (Change(row.object, row.setting, row.boot, row.wanted, BOOT),)))
        last.extend([Step(RemoveFile(original_files.RECORD))] if state.originals else [])
    return (*settings, *rows), (*first, *last)


def in_order(edits: Sequence[Edit], drop_in: str) -> Tuple[Edit, ...]:
    """Our drop-in first, or last where it goes: what imports it is there only while it is. New files before others."""

    def rank(edit: Edit) -> int:
        # By its name: the folders of an edit have their links resolved.
        ours = bool(drop_in) and os.path.basename(edit.path) == os.path.basename(drop_in)
        if edit.after is None:
            return 4 if ours else 3
        return 0 if ours else (1 if edit.before is None else 2)

    return tuple(sorted(edits, key=rank))


def _changes(seen: Engine, settings: Sequence[Setting]) -> Tuple[Change, ...]:
    """What the files change. A daemon takes it up later; an engine that runs nothing has it at once."""
    changes: List[Change] = []
    at_once = seen.running is None and not seen.interrupted_restart
    left = by_text(seen.leftover.left) if seen.leftover else {}
    for row in settings:
        # What others have too only becomes theirs.
        after = shown(left[row.setting]) if row.setting in left else row.wanted
        if row.boot_matters and row.boot != after:
            changes.append(Change(row.object, row.setting, row.boot, after, BOOT))
        if row.effective_matters and row.effective != after and at_once:
            changes.append(Change(row.object, row.setting, row.effective, after, EFFECTIVE))
    return tuple(changes)


def _effective(row: Setting) -> Change:
    return Change(row.object, row.setting, row.effective, row.wanted, EFFECTIVE)


def _keep(seen: Engine, edits: Tuple[Edit, ...]) -> KeepFiles:
    daemon = bool(seen.configuration.installation.unit)
    # What a restart was cut off with is not known to be any good.
    anew = not seen.interrupted_restart and (seen.running is None or not _behind(seen))
    return KeepFiles(seen.engine, edits, daemon=daemon, anew=anew)


def _needed(seen: Engine, changes: Tuple[Change, ...]) -> Tuple[Step, ...]:
    """What must be there first; ``changes`` are what that alone would change."""
    if seen.entry is None or not seen.missing:
        return ()
    return (Step(RequireRuntime(seen.engine, seen.entry.runtime_path, seen.missing), changes),)


def _edits_back(seen: Engine, kept: Sequence[OriginalFile]) -> Tuple[Edit, ...]:
    """The files as they were: byte for byte where nobody else has edited one of them."""
    mine = [one for one in kept if one.engine == seen.engine]
    read = {document.path for document in seen.configuration.documents}
    # Such as what a link led to that somebody made a file of: there the engine reads a copy of ours.
    unread = [one for one in mine if one.now is not None and one.path not in read]
    if mine and not unread and all(one.unedited for one in mine):
        return _texts(mine)
    edits = seen.kind.restore(seen.configuration, seen.wanted)
    edited = {edit.path for edit in edits}
    return (*edits, *_texts([one for one in unread if one.unedited and one.path not in edited]))


def _texts(kept: Sequence[OriginalFile]) -> Tuple[Edit, ...]:
    return tuple(Edit(one.path, one.now, one.text) for one in kept if one.now != one.text)


def _behind(seen: Engine) -> bool:
    """Whether the daemon lacks something that its files said before this change."""
    files = seen.configuration.settings
    as_it_is = {name: files.get(name) for name in seen.wanted}
    return bool(not_taken_up(replace(seen, wanted=as_it_is, baseline={})))


def _orphans(state: ContainerRuntimeState) -> Iterator[Tuple[Setting, Edit]]:
    """The files of engines that are not installed any more, as we left them: they go back to what they were."""
    there = {seen.engine for seen in state.engines}
    # Those that were there before first: what imports a file of ours goes before that.
    for one in sorted(state.originals, key=lambda one: one.text is None):
        if one.engine not in there and one.unedited and one.now != one.text:
            edit = Edit(one.path, one.now, one.text)
            yield _text_row(edit), edit


def _text_row(edit: Edit) -> Setting:
    return Setting(edit.path, TEXT, FOUND, LEFT, LEFT, edit.path, effective_matters=False)


def _writes(edits: Sequence[Edit], changes: Tuple[Change, ...]) -> Tuple[Step, ...]:
    """The last file completes the changes."""
    steps = [
        Step(RemoveFile(edit.path) if edit.after is None else ReplaceFile(edit.path, edit.after)) for edit in edits
    ]
    return (*steps[:-1], Step(steps[-1].action, changes))


def _typed(setting: SettingName, value: Scalar) -> Scalar:
    """A value from the record, in which what is true or false is a word."""
    word: Optional[bool] = None if setting.kind in NAMES else WORDS.get(str(value))
    return value if word is None else word
