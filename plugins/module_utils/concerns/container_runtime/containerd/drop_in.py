# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drop-in of containerd 2.x, and the one pattern in ``imports`` of its main file that brings it in.

The pattern has a star, for a file without one that is not there would keep containerd from starting. The defaults of
2.2 and newer import a folder as well, but what counts is what the files themselves say (``resolveImports``).
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Any, List, Optional, Sequence, Tuple

from ...._core.errors import OwnedByAnother
from ...._core.setting import Scalar
from ...._text.nested import Tree, get, put
from ...._text.toml_edit import add_to_array, dump, remove, remove_block, remove_from_array, same, set_value
from ...._text.toml_text import parse
from ..merged_toml import HEADER
from ..model import RUNTIME, Configuration, Document, Edit, Installation, SettingName, Settings, shown
from . import meaning, places
from .meaning import CGROUP, MARKER, MERGES, PLUGINS, ConfigSource, in_order, leaves
from .spelling import last_spelled, spellings

OUR_FILES = "99-gpufleet*.toml"
IMPORTS = ("imports",)


def edits(configuration: Configuration, target: Settings, *, restoring: bool) -> Tuple[Edit, ...]:
    """As ``containerd_edit.edits``. What the other files say already is not in ours."""
    installation, drop_in = configuration.installation, configuration.parsed.drop_in
    main = configuration.documents[0]
    sources: Tuple[ConfigSource, ...] = configuration.parsed.sources
    ours = next((source for source in sources if source.name == installation.drop_in), None)
    tree: Tree = deepcopy(dict(ours.cri)) if ours else {}
    theirs = places.is_theirs(installation, main.text)
    beside = {name: value for name, value in meaning.settings_of(tree, 0).items() if name not in target}
    if restoring:
        # What we wrote beside what is asked about stays only where the others do not say it, and goes with its runtime.
        gone = [setting.name for setting, value in target.items() if value is None and setting.kind == RUNTIME]
        beside = {setting: value for setting, value in beside.items() if setting.name not in gone}
        target = {**beside, **target}
    # What an earlier version of containerd had there.
    text = main.text if theirs or main.text is None else remove_block(main.text, MARKER)
    for setting, value in in_order(target):
        others = _others(sources, installation, text)
        if value is None or (restoring and setting not in beside and _is_said(setting, others)):
            left = _left_to_others(setting, value, others, tree, text)
            text = text if theirs else left
        else:
            _bring(setting, value, others, tree, meaning.newest(others, installation))
        if not restoring:
            _refuse_overruled(setting, value, sources, installation)
    version = _version_of(text)
    after = None
    if tree:
        spelled = last_spelled(tree, meaning.merged_as_written(_others(sources, installation, text)))
        data = {"version": version, "plugins": {PLUGINS[version]: spelled}}
        after = drop_in.text if ours and same(ours.data, data) else HEADER + dump(data)
    if not theirs:
        text = _importing(text, installation, version) if tree else _not_importing(text, installation, version)
    made = (Edit(drop_in.path, drop_in.text, after), Edit(main.path, main.text, text))
    return tuple(edit for edit in made if edit.before != edit.after)


def _others(sources: Sequence[ConfigSource], installation: Installation, text: Optional[str]) -> List[ConfigSource]:
    """All files but ours, the main one with this text."""
    found = [source for source in sources if source.name != installation.drop_in]
    if found and text is not None:
        document = Document(found[0].document.path, text)
        found[0] = meaning.make_source(found[0].name, document, ask=lambda: meaning.version_of(installation) or (2,))
    return found


def _bring(setting: SettingName, value: Scalar, others: Sequence[ConfigSource], tree: Tree, version: int) -> None:
    """Put a setting into our tree, or remove it where the others, of this version, have it so."""
    cri = meaning.merged(others, merges=True)
    right = meaning.settings_of(cri, version).get(setting) == value
    for keys, leaf in leaves(setting, value):
        put(tree, keys, None)
        # A runtime that is ours says about its cgroups itself, also what it would be anyway.
        if not right or (setting.kind == CGROUP and get(tree, keys[:3]) is not None):
            put(tree, keys, leaf)


def _is_said(setting: SettingName, others: Sequence[ConfigSource]) -> bool:
    return any(get(source.cri, keys) is not None for source in others for keys, _leaf in leaves(setting, True))


def _left_to_others(
    setting: SettingName, value: Scalar, others: Sequence[ConfigSource], tree: Tree, text: Optional[str]
) -> Optional[str]:
    """Take a setting out of our tree. The text of the main file without it, or with it where that says it.

    What another file says by now is its own matter.
    """
    for keys, leaf in leaves(setting, value):
        put(tree, keys, None)
        if text is None or not others:
            continue
        for way in spellings(others[0].written, keys):
            path = ("plugins", PLUGINS[others[0].version], *way)
            if leaf is None:
                text = remove(text, path)
            elif get(others[0].cri, keys) is not None:
                text = set_value(text, path, leaf)
    return text


def _refuse_overruled(
    setting: SettingName, value: Scalar, sources: Sequence[ConfigSource], installation: Installation
) -> None:
    """Raises ``OwnedByAnother`` where a file that is read after ours has the last word, or one that is not ours has
    what no file shall have."""
    place = next((at for at, source in enumerate(sources) if source.name == installation.drop_in), None)
    for at, source in enumerate(sources[1:], start=1):
        beside = os.path.dirname(source.name) == os.path.dirname(installation.drop_in)
        is_later = at > place if place is not None else beside and source.name > installation.drop_in
        if source.name == installation.drop_in or not (value is None or is_later):
            continue
        for keys, leaf in leaves(setting, value):
            found: Any = get(source.cri, keys)
            if found is not None and found != leaf:
                raise OwnedByAnother(
                    f"set {setting}",
                    object=source.document.path,
                    cause=f"this file sets it too, and {'is not ours' if value is None else 'is read after ours'}",
                    found=None if isinstance(found, dict) else shown(found),
                    wanted=shown(value),
                    hint="remove it from that file",
                )


def _version_of(text: Optional[str]) -> int:
    """That of the main file: until 2.2 all files have to agree, or the older ones lose their tables.

    Version 1 is not even read there; its main file and a drop-in of version 3 go well with all of 2.x.
    """
    version = MERGES if text is None else int(parse(text).data.get("version", 1))
    return version if version > 1 else MERGES


def _pattern(installation: Installation) -> str:
    return f"{os.path.dirname(installation.drop_in)}/{OUR_FILES}"


def _new_main(installation: Installation, version: int) -> str:
    return f'{HEADER}version = {version}\nimports = ["{_pattern(installation)}"]\n'


def _importing(text: Optional[str], installation: Installation, version: int) -> str:
    """The main file with our pattern, where nothing that it imports means our file already."""
    if text is None:
        return _new_main(installation, version)
    data = parse(text).data
    patterns = meaning.imported(installation.main, data, installation.main)
    if any(meaning.matches(pattern, installation.drop_in) for pattern in patterns):
        return text
    if not data:
        text = set_value(text, ("version",), version)
    return add_to_array(text, IMPORTS, _pattern(installation))


def _not_importing(text: Optional[str], installation: Installation, version: int) -> Optional[str]:
    if text is None or text == _new_main(installation, version):
        return None
    # Made by us, and with something of others in it by now.
    text = text.replace(HEADER, "", 1)
    left = remove_from_array(text, IMPORTS, _pattern(installation))
    return remove(left, IMPORTS) if left != text and not parse(left).data.get("imports") else left
