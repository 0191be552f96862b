# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of containerd as they have to be.

2.x gets a drop-in (``containerd_drop_in``). 1.x takes the whole table of a plugin from one file: there, and in
templates, new tables come as a block at the end of the main file, and keys of tables that are there in their places.
A block in a file of version 2 means the same to all of 1.x and 2.x, so that is the way too where nobody tells which.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ...._core.errors import OwnedByAnother
from ...._core.setting import Scalar
from ...._core.value import frozen
from ...._text.nested import Tree, get, put
from ...._text.toml_edit import (
    TomlBlockError,
    TomlEditError,
    block_body,
    dump,
    remove,
    remove_block,
    same,
    set_block,
    set_value,
)
from ...._text.toml_text import TomlDocument, parse
from ..gpu_operator import refuse
from ..merged_toml import HEADER
from ..model import CDI, CONTAINERD, RUNTIME, Configuration, Edit, SettingName, Settings, shown
from . import check, drop_in, meaning, places, template
from .meaning import (
    CGROUP,
    DEFAULT,
    MARKER,
    MERGES,
    PLUGINS,
    RUNC,
    RUNC_TYPES,
    Keys,
    ParsedContainerd,
    in_order,
    leaves,
)
from .spelling import by_name, spellings

NEW_FILE = f"{HEADER}version = 2\n"


def edits(configuration: Configuration, target: Settings, *, restoring: bool) -> Tuple[Edit, ...]:
    """The files with ``target`` in them, None in it for what no file shall say.

    ``restoring``: what others say in their files by now is theirs. Raises ``OwnedByAnother`` where somebody else
    writes the files, or has the last word.
    """
    if not restoring and all(configuration.settings.get(name) == value for name, value in target.items()):
        return ()
    try:
        made = _edits(configuration, target, restoring)
    except TomlEditError as error:
        raise OwnedByAnother(
            "edit the configuration",
            object=configuration.documents[0].path,
            cause=str(error),
            hint="remove the block from the file, then run again"
            if isinstance(error, TomlBlockError)
            else "write it as a table with a header of its own, then run again",
        ) from error
    if made and not restoring:
        _refuse_operator(configuration, target)
        version = meaning.version_of(configuration.installation)
        if version:
            check.refuse_unreadable(configuration.parsed.sources, version)
    return made


def _edits(configuration: Configuration, target: Settings, restoring: bool) -> Tuple[Edit, ...]:
    installation, parsed = configuration.installation, configuration.parsed
    if places.is_template(installation):
        return _in_template(configuration, target)
    version = meaning.version_of(installation)
    if installation.drop_in and (version >= (2,) or (not version and parsed.merges)):
        return drop_in.edits(configuration, target, restoring=restoring)
    document = configuration.documents[0]
    text = _in_main(document.text, target)
    if not restoring:
        _refuse_shadow(parsed, document.path)
    return () if text == document.text else (Edit(document.path, document.text, text),)


# --- A setting as keys in the table of the CRI plugin


# --- Block in the main file


def _in_main(before: Optional[str], target: Settings) -> Optional[str]:
    """The text of a main file with the settings in it; None where nothing is left of one that was ours alone."""
    text = NEW_FILE if before is None else before
    if not parse(text).data:
        # 1.x takes it for version 1, whose names of plugins are not those of today.
        text = set_value(text, ("version",), 2)
    version = int(parse(text).data.get("version", 1))
    after = _with_block(text, target, version)
    if after == NEW_FILE:
        return None
    if MARKER not in after:
        # Made by us, and with something of others in it by now.
        after = after.replace(HEADER, "", 1)
    return before if after == text and not parse(before or "").data else after


def _with_block(text: str, target: Settings, version: int, brought: Optional[Brought] = None) -> str:
    prefix = ("plugins", PLUGINS[version])
    tree: Tree = get(parse(block_body(text, MARKER)).data, prefix) or {}
    text = remove_block(text, MARKER)
    _put_away_runc(tree)
    for setting, value in in_order(target):
        text = _bring(text, prefix, setting, value, tree, brought)
    if version < MERGES and (brought is None or not (brought.closed or brought.settings)):
        text = _keep_default(text, prefix, tree, target)
    return set_block(text, MARKER, dump({prefix[0]: {prefix[1]: tree}})) if tree else text


def _bring(text: str, prefix: Keys, setting: SettingName, value: Scalar, tree: Tree, brought: Optional[Brought]) -> str:
    """The text with a setting in its place, or the tree of the block with it."""
    for keys, leaf in leaves(setting, value):
        put(tree, keys, None)
        for way in spellings(parse(text).get(prefix) or {}, keys):
            if leaf is None:
                text = remove(text, (*prefix, *way))
            elif parse(text).get((*prefix, *way)) is not None or not _is_brought(setting, value, brought):
                text = _placed(text, prefix, way, leaf, tree)
    return text


def _placed(text: str, prefix: Keys, keys: Keys, leaf: Any, tree: Tree) -> str:
    """The text with a key in its place; one that has none there comes into the tree of the block."""
    path = (*prefix, *keys)
    document = parse(text)
    found = document.get(path)
    if found is not None and same(found, leaf):
        return text
    if found is not None or _is_open(document, path[:-1]):
        return set_value(text, path, leaf)
    put(tree, keys, leaf)
    return text


def _is_open(document: TomlDocument, path: Keys) -> bool:
    """Whether a table is written with a header, inline, or by the dotted keys of another, so that a key goes there."""
    if path in document.tables or any(path[:length] in document.places for length in range(1, len(path) + 1)):
        return True
    return any(
        at[: len(path)] == path and not any(at[:length] in document.tables for length in range(len(path) + 1, len(at)))
        for at in document.places
    )


def _put_away_runc(tree: Tree) -> None:
    """What ``_keep_default`` added comes anew where it is still needed."""
    keys = ("containerd", "runtimes", RUNC)
    if get(tree, keys) == {"runtime_type": RUNC_TYPES[0]}:
        put(tree, keys, None)


def _keep_default(text: str, prefix: Keys, tree: Tree, target: Settings) -> str:
    """1.x brings runc as a runtime only where the files name none: beside ours it has to be named, or no pod starts.

    Where others name one it is gone already, and comes only if it is the default beside ours.
    """
    names = ("containerd", "runtimes")
    cri = by_name(parse(text).get(prefix) or {}, newer=True)
    in_text, in_tree = get(cri, names) or {}, get(tree, names) or {}
    if RUNC in in_text or RUNC in in_tree or not (in_text or in_tree):
        return text
    ours = {setting.name for setting, value in target.items() if setting.kind == RUNTIME and value is not None}
    default = get(tree, ("containerd", "default_runtime_name")) or get(cri, ("containerd", "default_runtime_name"))
    if in_text.keys() - ours and not (ours and default in (None, "", RUNC)):
        return text
    return _placed(text, prefix, (*names, RUNC, "runtime_type"), RUNC_TYPES[0], tree)


def _refuse_shadow(parsed: ParsedContainerd, path: str) -> None:
    """Raises ``OwnedByAnother`` where 1.x takes the plugin from a file that is read after the main one."""
    for source in parsed.sources[1:]:
        if source.has_plugin:
            raise OwnedByAnother(
                "configure containerd",
                object=source.document.path,
                cause=f"this file has the table of the CRI plugin too, and containerd 1.x reads all of it from "
                f"there, and nothing from {path}",
                hint="move its plugin settings into the main file",
            )


def _refuse_operator(configuration: Configuration, target: Settings) -> None:
    """Raises ``OwnedByAnother`` where the toolkit container of the GPU Operator wrote the configuration."""
    for source in configuration.parsed.sources:
        for name, runtime in (get(source.cri, ("containerd", "runtimes")) or {}).items():
            program = str(get(runtime, ("options", "BinaryName")) or "")
            refuse(CONTAINERD, source.document.path, program, shown(target.get(SettingName(RUNTIME, name))))


# --- Templates of k3s and RKE2


@frozen
class Brought:
    """What actions of a template bring, and so nobody can add to: TOML lets nobody open a table a second time.

    ``closed`` is whether the tables around runtimes are among that, ``has_loop`` whether a loop of the template itself
    brings the runtimes. ``owner`` is who renders it.
    """

    settings: Settings
    closed: bool
    has_loop: bool
    owner: str
    path: str


def _in_template(configuration: Configuration, target: Settings) -> Tuple[Edit, ...]:
    (document,) = configuration.documents
    installation, facts = configuration.installation, configuration.parsed.base
    text = template.BASE if document.text is None else document.text
    masked, actions = template.mask(text)
    has_base = template.IS_BASE.search(text) is not None
    brought = Brought(
        template.brings(document.path, text, facts, installation),
        closed=has_base or template.is_one_action(masked),
        has_loop=not has_base,
        owner=installation.flavour,
        path=document.path,
    )
    version = configuration.parsed.sources[0].version
    after = template.unmask(_with_block(masked, target, version, brought), actions)
    if after == text:
        return ()
    # In all states, before it is believed.
    template.states(document.path, after, facts, installation)
    if document.text is None:
        template.refuse_without_base(installation, document.path)
    # The base alone is what they do without a template.
    return (Edit(document.path, document.text, None if after == template.BASE else after),)


def _is_brought(setting: SettingName, value: Scalar, brought: Optional[Brought]) -> bool:
    """Whether an action brings it so already. Raises ``OwnedByAnother`` where one brings the table for it, with another
    value."""
    if brought is None:
        return False
    in_runtime = setting not in (DEFAULT, CDI)
    if SettingName(RUNTIME, setting.name) not in brought.settings if in_runtime else not brought.closed:
        return False
    found = brought.settings.get(setting)
    if meaning.same(setting, found, value):
        return True
    where = "the loop over .ExtraRuntimes"
    if not in_runtime:
        hint = f"set default-runtime in config.yaml of {brought.owner}" if setting == DEFAULT else "leave it out"
    elif setting.kind == CGROUP and brought.has_loop:
        hint = f"write SystemdCgroup = {{{{ $.SystemdCgroup }}}} into {where}, or declare systemd_cgroup as it is there"
    elif brought.has_loop and setting.kind != RUNTIME:
        hint = f"write it into {where}, or give the runtime another name"
    else:
        hint = "give the runtime another name"
    raise OwnedByAnother(
        f"set {setting}",
        object=brought.path if brought.has_loop else 'template "base"',
        cause=f"{brought.owner} generates this table itself, and TOML does not allow it to be defined twice",
        found=shown(found),
        wanted=shown(value),
        hint=hint,
    )
