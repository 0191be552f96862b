# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of CRI-O as they have to be."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ...._core.setting import Scalar
from ..gpu_operator import refuse
from ..merged_toml import Layer, entries, missing_dirs
from ..merged_toml_edit import Shape, bring, take_out
from ..model import CDI, CRIO, DEFAULT_RUNTIME, RUNTIME, Configuration, Edit, SettingName, Settings, WantedEngine
from . import meaning

# Of the runtime that ours starts in the end, these would make CRI-O start that one and not ours.
NOT_COPIED = ("inherit_default_runtime", "platform_runtime_paths", "runtime_config_path")


def edit(configuration: Configuration, wanted: WantedEngine) -> Tuple[Edit, ...]:
    """Raises ``OwnedByAnother`` where a later file or the GPU Operator has the last word, and ``Refused``."""
    layers, ours = configuration.parsed, configuration.installation.drop_in
    if not wanted.present:
        return take_out(SHAPE, layers, ours, wanted.runtime_name)
    settings = meaning.PLACES.wanted(wanted, layers, ours)
    for name, layer in entries(layers, meaning.PLACES.runtimes).items():
        program = layer.value((*meaning.PLACES.runtimes, name, "runtime_path"), str) or ""
        refuse(CRIO, layer.document.path, program, settings.get(SettingName(RUNTIME, name)))
    return bring(SHAPE, layers, ours, settings, tidy=False)


def restore(configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
    return bring(SHAPE, configuration.parsed, configuration.installation.drop_in, baseline, tidy=True)


def _written(setting: SettingName, value: Scalar, others: Sequence[Layer]) -> Any:
    if setting == CDI:
        dirs = meaning.spec_dirs(others)
        return [*dirs, *missing_dirs(dirs)] if value else None
    if setting == DEFAULT_RUNTIME:
        return value
    return _runtime(setting.name, str(value), others)


def _runtime(name: str, path: str, others: Sequence[Layer]) -> Any:
    """The table of a runtime: as others have it, else with the options of the one that it starts in the end.

    Packages of CRI-O bring a conmon that is on no path and is named in the table of their runtime alone
    (``monitor_path``): without it the daemon would leave ours out, or not start where it is the default.
    """
    low_level = meaning.PLACES.others_default(others, name)
    for candidate in (name, low_level or "", *meaning.BUILT_IN):
        table = meaning.table_of(others, candidate)
        if table:
            break
    kept = {key: value for key, value in table.items() if key not in NOT_COPIED}
    return {**kept, "runtime_path": path, "runtime_type": "oci"}


SHAPE = Shape(meaning.PLACES, meaning.settings_of, _written)
