# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the files of containers.conf(5) mean together."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from ..merged_toml import Keys, Layer, Places, entries, last, missing_dirs
from ..model import CDI, DEFAULT_RUNTIME, RUNTIME, SPEC_DIRS, SettingName, Settings

PLACES = Places(
    runtimes=("engine", "runtimes"),
    default=("engine", "runtime"),
    dirs=("engine", "cdi_spec_dirs"),
)


def settings_of(layers: Sequence[Layer]) -> Settings:
    """What the files mean together, without the hooks beside them."""
    runtimes = entries(layers, PLACES.runtimes)
    settings: Dict[SettingName, Any] = {
        SettingName(RUNTIME, name): ", ".join(map(str, runtimes[name].texts((*PLACES.runtimes, name)) or ()))
        for name in runtimes
    }
    settings[DEFAULT_RUNTIME] = last(layers, PLACES.default, str) or None
    settings[CDI] = not missing_dirs(string_list(layers, PLACES.dirs, SPEC_DIRS))
    return settings


def string_list(layers: Sequence[Layer], keys: Keys, default: Sequence[str]) -> Tuple[str, ...]:
    """A list that every file replaces, or adds to from an ``{append=true}`` on (containers.conf(5))."""
    found: List[str] = list(default)
    append = False
    for layer in layers:
        said = layer.texts(keys)
        if said is None:
            continue
        for item in said:
            if isinstance(item, dict):
                append = bool(item.get("append", append))
        texts = [item.rstrip("/") for item in said if isinstance(item, str)]
        found = [*found, *texts] if append else texts
    return tuple(found)
