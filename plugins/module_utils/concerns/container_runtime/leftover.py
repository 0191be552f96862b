# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What files of others still say of settings that ours leave, by file and line, and whose it is as far as is known.

What we wrote goes, also where somebody else wrote over it in the same file. A file that is theirs stays as it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

from ..._core.change import THEM, Conflict, Unmanaged
from ..._core.errors import OwnedByAnother
from ..._core.value import frozen
from ..._text.nested import get
from ..._text.toml_text import parse
from . import gpu_operator
from .candidate import CandidateFiles
from .containerd.meaning import PLUGINS, leaves
from .docker.meaning import KEYS
from .merged_toml import MergedToml
from .model import CONTAINERD, DOCKER, Configuration, shown

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .model import Edit, Installation, Kind, SettingName, Settings

NOBODY = "unknown"
# Where ``nvidia-ctk runtime configure`` writes unless it is told otherwise; so does the toolkit of the GPU Operator.
CTK, CTK_FILES = "nvidia-ctk", ("99-nvidia.toml", "99-nvidia.conf")
OPERATOR = "the GPU Operator"

Keys = Tuple[str, ...]


@frozen
class Leftover:
    """``left`` are the settings that are not as wanted once the edits are made, as they will be."""

    edits: Tuple[Edit, ...]
    left: Settings
    conflicts: Tuple[Conflict, ...]

    def unmanaged(self, engine: str) -> List[Unmanaged]:
        """What stays of them, in words."""
        named = [Unmanaged(engine, one.setting, f"{_said(one)}: remove it there") for one in self.conflicts]
        silent = {str(name) for name in self.left} - {one.setting for one in self.conflicts}
        return [*named, *(Unmanaged(engine, name, "the file that had it is gone") for name in sorted(silent))]

    def error(self, engine: str) -> Optional[OwnedByAnother]:
        """Why what shall go is not gone when all of ours is."""
        for one in self.conflicts:
            return OwnedByAnother(
                f"remove {one.setting}",
                object=engine,
                cause=_said(one),
                found=one.value,
                hint="remove it there, then run again",
            )
        return None


def find(host: Host, kind: Kind, installation: Installation, wanted: Settings, edits: Tuple[Edit, ...]) -> Leftover:
    """What is left of the settings that are wanted, once these edits are made."""
    after = kind.read(CandidateFiles(host.files, edits), installation)
    left = {name: after.settings.get(name) for name, value in wanted.items() if after.settings.get(name) != value}
    conflicts = tuple(
        Conflict(owner, path, line, kind.engine, str(name), str(shown(value)), THEM)
        for name, value in left.items()
        for owner, path, line in _places(kind, after, name, str(value))
    )
    return Leftover(edits, left, conflicts)


def _said(conflict: Conflict) -> str:
    place = "" if conflict.line is None else f" in line {conflict.line}"
    owner = "is not ours" if conflict.owner == NOBODY else f"belongs to {conflict.owner}"
    return f"{conflict.path} sets it{place}, and that file {owner}"


def _places(
    kind: Kind, after: Configuration, setting: SettingName, value: str
) -> Iterator[Tuple[str, str, Optional[int]]]:
    """Whose and where it is, in files but ours."""
    engine = after.installation.engine
    found: Iterable[Tuple[str, str, Keys]] = ()
    if engine == CONTAINERD:
        found = _in_containerd(after, setting)
    elif isinstance(kind, MergedToml):
        found = _in_layers(after, kind.places.keys(setting))
    for path, text, keys in found:
        yield _owner(path, value), path, _line(text, keys)
    if engine == DOCKER:
        option = after.parsed.options.get(KEYS[setting.kind][0])
        if option:
            yield "the command line of dockerd", option[1], None


def _in_containerd(after: Configuration, setting: SettingName) -> Iterator[Tuple[str, str, Keys]]:
    for source in after.parsed.sources:
        keys = leaves(setting, None)[0][0]
        # Whoever has a runtime says about its cgroups, also by silence.
        while get(source.cri, keys) is None and len(keys) > 3:
            keys = keys[:-1]
        if source.name != after.installation.drop_in and get(source.cri, keys) is not None:
            yield source.document.path, source.document.text or "", ("plugins", PLUGINS[source.version], *keys)


def _in_layers(after: Configuration, keys: Keys) -> Iterator[Tuple[str, str, Keys]]:
    for layer in after.parsed:
        if layer.name != after.installation.drop_in and layer.value(keys, object) is not None:
            yield layer.document.path, layer.document.text or "", keys


def _owner(path: str, value: str) -> str:
    if value.startswith(gpu_operator.PROGRAMS):
        return OPERATOR
    return CTK if os.path.basename(path) in CTK_FILES else NOBODY


def _line(text: str, keys: Keys) -> Optional[int]:
    document = parse(text)
    starts: Dict[Any, int] = {at: span.start for at, span in document.tables.items()}
    starts.update({at: place.key for at, place in document.places.items()})
    below = [start for at, start in starts.items() if at[: len(keys)] == keys]
    return text.count("\n", 0, starts.get(keys, min(below))) + 1 if below else None
