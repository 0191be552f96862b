# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A declaration of Docker in the names of its settings."""

from __future__ import annotations

import shlex
from typing import Any, Dict, Mapping

from .._core.errors import DeclarationError, Scalar
from .docker import bytes_of, size_text
from .model import DOCKER, Configuration, Settings, WantedEngine


def settings(wanted: WantedEngine, configuration: Configuration) -> Settings:
    """The settings that are declared; None is one that must not be in the file. ``spec`` has looked at the values.

    Raises ``DeclarationError`` for what dockerd alone would refuse.
    """
    name, found = wanted.runtime_name, configuration.settings
    default = found.get("default_runtime")
    if not wanted.present:
        gone: Dict[str, Scalar] = {f"runtime {name}": None}
        return {**gone, "default_runtime": None} if default == name else gone
    made: Dict[str, Scalar] = {f"runtime {name}": _with_arguments(wanted, found)}
    if wanted.default is not None:
        made["default_runtime"] = name if wanted.default else (None if default == name else default)
    if wanted.cdi is not None:
        made["cdi"] = wanted.cdi
    made.update(_options(wanted.options))
    return made


def _with_arguments(wanted: WantedEngine, found: Settings) -> str:
    """The path; arguments that others gave the runtime are none of ours and stay."""
    words = shlex.split(str(found.get(f"runtime {wanted.runtime_name}") or ""))
    return shlex.join([wanted.runtime_path, *words[1:]])


def _options(options: Mapping[str, Any]) -> Dict[str, Scalar]:
    made: Dict[str, Scalar] = {}
    for name in ("live_restore", "data_root"):
        if name in options:
            made[name] = options[name]
    if "exec_opts" in options:
        made["exec_opts"] = " ".join(_exec_option(option) for option in options["exec_opts"]) or None
    if "default_shm_size" in options:
        made["default_shm_size"] = size_text(bytes_of(options["default_shm_size"]) or 0)
    for name, limit in options.get("default_ulimits", {}).items():
        made[f"default_ulimits {name}"] = f"{limit['soft']}:{limit['hard']}"
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
