# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container engines: the steps to what is wanted. Pure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterator, List, Optional, Sequence, Tuple

from ..._core.change import Blocker, Change, Refuse, RemoveFile, ReplaceFile, RoomAction, RunCommand, Step
from ..._core.errors import Refused
from ..._core.setting import BOOT, EFFECTIVE, IN_SYNC, Setting
from ..._core.value import frozen
from . import last_good, original_files
from .model import Edit, Settings, by_text, shown
from .resolve import SPECIFICATION, ContainerRuntimeDesired, EngineDesired, not_taken_up
from .restore import TEXT, texts_back
from .state import ContainerRuntimeState, Engine

if TYPE_CHECKING:
    from ..._core.contract import Scope

FOUND = "as it was found"
LEFT = "as this collection left it"
WITHOUT = "without what this collection added"


class NoRuntime(Refused):
    """The program of the runtime is missing, or cannot be started."""

    code = "no_runtime"


@frozen
class CheckEdits(RoomAction):
    """Let everybody who can say whether the files of an engine are good, and mean what is ``expected``, do so.

    ``goes``: they only take away. ``found`` are those that would bring all texts from before our first change back.
    """

    seen: Engine
    expected: Settings
    goes: bool
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


def find_blocker(desired: ContainerRuntimeDesired) -> Optional[Blocker]:
    """Why there is nothing to do although something is not as declared: others have it in files of theirs."""
    errors = [want.leftover.error(engine) for engine, want in desired.engines.items() if want.leftover]
    return next((Blocker(error) for error in errors if error), None)


def plan_steps(
    state: ContainerRuntimeState, desired: ContainerRuntimeDesired, settings: Tuple[Setting, ...], scope: Scope
) -> Tuple[Tuple[Setting, ...], Tuple[Step, ...]]:
    """The settings, with the files of engines that are gone, and the steps.

    What any engine refuses is met before the first file of any is written.
    """
    first: List[Step] = []
    last: List[Step] = []
    rows: List[Setting] = []
    restoring = scope.restoring and scope.permanent
    for seen in state.engines:
        want = desired.engines[seen.engine]
        changes = _changes(seen, want, [setting for setting in settings if setting.object == seen.engine])
        originals = [one for one in state.originals if one.engine == seen.engine]
        if not changes and not want.leftover and not (restoring and originals):
            continue
        edits = want.edits if want.entry is None else seen.kind.edit(seen.configuration, want.entry)
        edits = in_order(edits, seen.configuration.installation.drop_in)
        if edits and not changes and want.leftover:
            changes = tuple(Change(edit.path, TEXT, LEFT, WITHOUT, BOOT) for edit in edits)
        elif edits and not changes:
            # A run that was killed on its way back, or a file of ours that says nothing.
            texts = [_text_row(edit) for edit in edits]
            rows.extend(texts)
            changes = _changes(seen, want, texts)
        if want.entry is not None and want.missing:
            # What must be there first; it has the changes where that alone would make them.
            missing = NoRuntime(
                f"add the runtime {{}} to {seen.engine}",
                object=want.entry.runtime_path,
                cause=want.missing.replace("which", "it", 1),
                hint="install the package nvidia-container-toolkit, as the role container_toolkit does",
            )
            first.append(Step(Refuse(missing), () if edits else changes))
        if edits:
            expected = {**want.wanted, **(want.leftover.left if want.leftover else {})}
            goes = want.entry is None or not want.entry.present
            first.append(Step(CheckEdits(seen, expected, goes, edits, texts_back(originals))))
            last.append(Step(_keep(seen, want, edits), notes=(original_files.RECORD, last_good.path_of(seen.engine))))
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


def _changes(seen: Engine, want: EngineDesired, settings: Sequence[Setting]) -> Tuple[Change, ...]:
    """What the files change. A daemon takes it up later; an engine that runs nothing has it at once."""
    changes: List[Change] = []
    at_once = seen.running is None and not seen.interrupted_restart
    left = by_text(want.leftover.left) if want.leftover else {}
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


def _keep(seen: Engine, want: EngineDesired, edits: Tuple[Edit, ...]) -> KeepFiles:
    daemon = bool(seen.configuration.installation.unit)
    # What a restart was cut off with is not known to be any good.
    anew = not seen.interrupted_restart and (seen.running is None or not _behind(seen, want))
    return KeepFiles(seen.engine, edits, daemon=daemon, anew=anew)


def _behind(seen: Engine, want: EngineDesired) -> bool:
    """Whether the daemon lacks something that its files said before this change."""
    files = seen.configuration.settings
    return bool(not_taken_up(seen, EngineDesired({name: files.get(name) for name in want.wanted})))


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
