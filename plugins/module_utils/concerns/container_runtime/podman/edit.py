# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Podman as they have to be."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ...._core.setting import Scalar
from ..merged_toml import Layer, missing_dirs
from ..merged_toml_edit import Shape, bring, take_out
from ..model import CDI, DEFAULT_RUNTIME, SPEC_DIRS, Configuration, Edit, SettingName, Settings, WantedEngine
from . import meaning


def edit(configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
    """Raises ``OwnedByAnother`` where a later file has the last word, ``Refused`` where a text takes no edit."""
    layers, hooks = configuration.parsed
    ours = configuration.installation.drop_in
    if not wanted.present:
        return take_out(SHAPE, layers, ours, wanted.runtime_name)
    edits = bring(SHAPE, layers, ours, meaning.PLACES.wanted(wanted, layers, ours), tidy=False)
    return (*edits, *(Edit(hook.path, hook.text, None) for hook in hooks if wanted.cdi))


def restore(configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
    layers, _hooks = configuration.parsed
    return bring(SHAPE, layers, configuration.installation.drop_in, baseline, tidy=True)


def _written(setting: SettingName, value: Scalar, others: Sequence[Layer]) -> Any:
    if setting == CDI:
        dirs = meaning.string_list(others, meaning.PLACES.dirs, SPEC_DIRS)
        # Not added to what is there, for a reader of version 4 knows no attributes.
        return [*dirs, *missing_dirs(dirs)] if value else None
    return value if setting == DEFAULT_RUNTIME else str(value).split(", ")


SHAPE = Shape(meaning.PLACES, meaning.settings_of, _written)
