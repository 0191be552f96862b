# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the files of CRI-O mean together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Sequence, Tuple

from ..merged_toml import Layer, Places, entries, last, missing_dirs
from ..model import CDI, DEFAULT_RUNTIME, RUNTIME, SPEC_DIRS, SettingName, Settings

if TYPE_CHECKING:
    from ...._core.setting import Scalar

PLACES = Places(
    runtimes=("crio", "runtime", "runtimes"),
    default=("crio", "runtime", "default_runtime"),
    dirs=("crio", "runtime", "cdi_spec_dirs"),
)
# What it takes where no file names a default: crun, and runc in earlier releases.
BUILT_IN = ("crun", "runc")


def settings_of(layers: Sequence[Layer]) -> Settings:
    """What the files mean together."""
    runtimes = entries(layers, PLACES.runtimes)
    settings: Dict[SettingName, Any] = {SettingName(RUNTIME, name): _path(runtimes[name], name) for name in runtimes}
    # An empty name is none: CRI-O takes its own then.
    settings[DEFAULT_RUNTIME] = last(layers, PLACES.default, str) or None
    settings[CDI] = not missing_dirs(spec_dirs(layers))
    return settings


def spec_dirs(layers: Sequence[Layer]) -> Tuple[str, ...]:
    """Where the daemon looks for specifications; an empty list is its own two folders (``WithSpecDirs`` of CDI)."""
    said = [layer.texts(PLACES.dirs) for layer in layers]
    dirs = next((found for found in reversed(said) if found is not None), None)
    return tuple(str(found).rstrip("/") for found in dirs) if dirs else SPEC_DIRS


def same(setting: SettingName, has: Scalar, wanted: Scalar) -> bool:
    """Whether a daemon that says the one has the other."""
    return has == wanted or (setting == DEFAULT_RUNTIME and wanted is None and has in BUILT_IN)


def _path(layer: Layer, name: str) -> str:
    """What a runtime starts; what keeps it from being an ordinary one stands behind it."""
    keys = (*PLACES.runtimes, name)
    if layer.value((*keys, "inherit_default_runtime"), bool):
        return "as the default runtime"
    path: str = layer.value((*keys, "runtime_path"), str) or ""
    kind = layer.value((*keys, "runtime_type"), str) or "oci"
    return path if kind == "oci" else f"{path} ({kind})"


def table_of(layers: Sequence[Layer], name: str) -> Mapping[str, Any]:
    """All keys of a runtime, none where no file has it."""
    layer = entries(layers, PLACES.runtimes).get(name)
    found: Mapping[str, Any] = layer.value((*PLACES.runtimes, name), dict) if layer else {}
    return found
