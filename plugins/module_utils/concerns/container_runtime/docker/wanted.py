# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A declaration of Docker in the names of its settings."""

from __future__ import annotations

import shlex
from typing import Any, Dict, Mapping

from ...._core.errors import DeclarationError
from ...._core.setting import Scalar
from ..model import (
    CDI,
    DEFAULT_RUNTIME,
    DEFAULT_ULIMITS,
    DOCKER,
    LIVE_RESTORE,
    RUNTIME,
    Configuration,
    SettingName,
    Settings,
    WantedEngine,
)
from .meaning import DATA_ROOT, EXEC_OPTS, SHM_SIZE, bytes_of, size_text


def settings(wanted: WantedEngine, configuration: Configuration) -> Settings:
    """The settings that are declared; None is one that must not be in the file. ``spec`` has looked at the values.

    Raises ``DeclarationError`` for what dockerd alone would refuse.
    """
    name, found = wanted.runtime_name, configuration.settings
    runtime, default = SettingName(RUNTIME, name), found.get(DEFAULT_RUNTIME)
    if not wanted.present:
        gone: Dict[SettingName, Scalar] = {runtime: None}
        return {**gone, DEFAULT_RUNTIME: None} if default == name else gone
    made: Dict[SettingName, Scalar] = {runtime: _with_arguments(wanted, found.get(runtime))}
    if wanted.default is not None:
        made[DEFAULT_RUNTIME] = name if wanted.default else (None if default == name else default)
    if wanted.cdi is not None:
        made[CDI] = wanted.cdi
    made.update(_options(wanted.options))
    return made


def _with_arguments(wanted: WantedEngine, found: Scalar) -> str:
    """The path; arguments that others gave the runtime are none of ours and stay."""
    words = shlex.split(str(found or ""))
    return shlex.join([wanted.runtime_path, *words[1:]])


def _options(options: Mapping[str, Any]) -> Dict[SettingName, Scalar]:
    made: Dict[SettingName, Scalar] = {}
    for setting in (LIVE_RESTORE, DATA_ROOT):
        if setting.kind in options:
            made[setting] = options[setting.kind]
    if "exec_opts" in options:
        made[EXEC_OPTS] = " ".join(_exec_option(option) for option in options["exec_opts"]) or None
    if "default_shm_size" in options:
        made[SHM_SIZE] = size_text(bytes_of(options["default_shm_size"]) or 0)
    for name, limit in options.get("default_ulimits", {}).items():
        made[SettingName(DEFAULT_ULIMITS, name)] = f"{limit['soft']}:{limit['hard']}"
    return made


def _exec_option(option: str) -> str:
    # validatePlatformExecOpt and verifyCgroupDriver of moby know no other.
    if option in ("native.cgroupdriver=systemd", "native.cgroupdriver=cgroupfs"):
        return option
    raise DeclarationError(
        "set exec_opts",
        object=DOCKER,
        cause="dockerd knows native.cgroupdriver=systemd and native.cgroupdriver=cgroupfs",
        found=option,
    )
