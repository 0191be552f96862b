# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``state: absent`` looks at, and what it restores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.setting import Scalar
from ..._core.value import replace
from . import leftover, original_files
from .entries import OF_CONTAINERD, TOOLKIT
from .model import DEFAULT_RUNTIME, ENGINES, RUNTIME, Edit, SettingName, Settings
from .resolve import NOT_INSTALLED, ContainerRuntimeDesired, EngineDesired
from .state import ContainerRuntimeState, Engine, inspect

if TYPE_CHECKING:
    from ..._core.baseline import BaselineValue
    from ..._core.protocols import Host
    from .original_files import OriginalFile
    from .spec import Changed, ContainerRuntimeDeclaration

TEXT = "text"
EDITED = "it was edited since"
WORDS = {"true": True, "false": False}
# Their values are names and paths, whatever they spell.
NAMES = (RUNTIME, DEFAULT_RUNTIME.kind, *(name for name, option in OF_CONTAINERD.items() if option["type"] != "bool"))
# What went from the folders of CDI comes back as a text alone: what was wrong there has no other meaning.
RESTORED = (*ENGINES, TOOLKIT)


def observe_changed(host: Host, declaration: ContainerRuntimeDeclaration) -> ContainerRuntimeState:
    """The engines that we ever changed and that are still there."""
    kept = original_files.load(host.files)
    engines: List[Engine] = []
    for engine in RESTORED:
        values = declaration.changed.get(engine)
        seen = inspect(host, engine) if values else None
        if values and seen is not None:
            # What others have said since in files of theirs is no more ours to change than it was ours to write. It is
            # read with ours gone, so the edits are made here already.
            wanted = _wanted(values)
            edits = _edits_back(seen, wanted, kept)
            rest = leftover.find(host, seen.kind, seen.configuration.installation, wanted, edits)
            engines.append(replace(seen, leftover=rest))
    return ContainerRuntimeState(declaration, tuple(engines), originals=kept)


def restore(changed: Changed, state: ContainerRuntimeState) -> ContainerRuntimeDesired:
    """The values from before our first change, but for what others say by now."""
    there = {seen.engine: seen for seen in state.engines}
    engines: Dict[str, EngineDesired] = {}
    unmanaged: List[Unmanaged] = []
    for engine in RESTORED:
        values = changed.get(engine)
        if not values:
            continue
        seen = there.get(engine)
        rest = seen.leftover if seen else None
        if rest is None:
            unmanaged.extend(Unmanaged(engine, str(setting), NOT_INSTALLED) for setting in sorted(values))
            continue
        baseline = {setting: value.effective for setting, value in values.items()}
        engines[engine] = EngineDesired({**_wanted(values), **rest.left}, baseline=baseline, edits=rest.edits)
        unmanaged.extend(rest.unmanaged(engine))
    edited = [one for one in state.originals if one.engine not in there and not one.unedited]
    unmanaged.extend(Unmanaged(one.path, TEXT, EDITED) for one in edited)
    return ContainerRuntimeDesired(engines, tuple(unmanaged))


def texts_back(kept: Sequence[OriginalFile]) -> Tuple[Edit, ...]:
    """What brings the texts of the files back, where they are not there."""
    return tuple(Edit(one.path, one.now, one.text) for one in kept if one.now != one.text)


def _edits_back(seen: Engine, wanted: Settings, kept: Sequence[OriginalFile]) -> Tuple[Edit, ...]:
    """The files as they were: byte for byte where nobody else has edited one of them."""
    mine = [one for one in kept if one.engine == seen.engine]
    read = {document.path for document in seen.configuration.documents}
    # Such as what a link led to that somebody made a file of: there the engine reads a copy of ours.
    unread = [one for one in mine if one.now is not None and one.path not in read]
    if mine and not unread and all(one.unedited for one in mine):
        return texts_back(mine)
    edits = seen.kind.restore(seen.configuration, wanted)
    edited = {edit.path for edit in edits}
    return (*edits, *texts_back([one for one in unread if one.unedited and one.path not in edited]))


def _wanted(values: Mapping[SettingName, BaselineValue]) -> Settings:
    return {setting: typed(setting, value.boot) for setting, value in values.items()}


def typed(setting: SettingName, value: Scalar) -> Scalar:
    """A value from the record, in which what is true or false is a word."""
    word: Optional[bool] = None if setting.kind in NAMES else WORDS.get(str(value))
    return value if word is None else word
