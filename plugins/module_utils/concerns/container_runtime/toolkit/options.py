# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of the toolkit, and what is wrong with them whatever the machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Dict, Iterator, Tuple

from ...._core.errors import DeclarationError
from ...._core.nearest import QUESTION, nearest

if TYPE_CHECKING:
    from ...._core.setting import Scalar

BOOL, TEXT, TEXTS = "true or false", "a string", "a list of strings"
MODES = ("auto", "legacy", "csv", "cdi", "jit-cdi")
LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "fatal", "panic")
LDCONFIG, FROM_CONTAINER = "nvidia-container-cli.ldconfig", "features.allow-ldconfig-from-container"
# Version 1.20, and what earlier ones had (api/config/v1 of the toolkit).
KEYS: Mapping[str, str] = {
    "disable-require": BOOL,
    "swarm-resource": TEXT,
    "accept-nvidia-visible-devices-envvar-when-unprivileged": BOOL,
    "accept-nvidia-visible-devices-as-volume-mounts": BOOL,
    "supported-driver-capabilities": TEXT,
    "nvidia-container-cli.debug": TEXT,
    "nvidia-container-cli.environment": TEXTS,
    "nvidia-container-cli.ldcache": TEXT,
    LDCONFIG: TEXT,
    "nvidia-container-cli.load-kmods": BOOL,
    "nvidia-container-cli.no-cgroups": BOOL,
    "nvidia-container-cli.no-pivot": BOOL,
    "nvidia-container-cli.path": TEXT,
    "nvidia-container-cli.root": TEXT,
    "nvidia-container-cli.user": TEXT,
    "nvidia-container-runtime.debug": TEXT,
    "nvidia-container-runtime.log-level": TEXT,
    "nvidia-container-runtime.mode": TEXT,
    "nvidia-container-runtime.runtimes": TEXTS,
    "nvidia-container-runtime.modes.cdi.annotation-prefixes": TEXTS,
    "nvidia-container-runtime.modes.cdi.default-kind": TEXT,
    "nvidia-container-runtime.modes.cdi.spec-dirs": TEXTS,
    "nvidia-container-runtime.modes.csv.compat-container-root": TEXT,
    "nvidia-container-runtime.modes.csv.mount-spec-path": TEXT,
    "nvidia-container-runtime.modes.jit-cdi.disable-hooks": TEXTS,
    "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks": TEXTS,
    "nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags": TEXTS,
    "nvidia-container-runtime.modes.legacy.cuda-compat-mode": TEXT,
    "nvidia-container-runtime-hook.path": TEXT,
    "nvidia-container-runtime-hook.skip-mode-detection": BOOL,
    "nvidia-ctk.path": TEXT,
    "features.allow-cuda-compat-libs-from-container": BOOL,
    FROM_CONTAINER: BOOL,
    "features.allow-unknown-oci-spec-fields": BOOL,
    "features.disable-cuda-compat-lib-hook": BOOL,
    "features.disable-imex-channel-creation": BOOL,
    "features.ignore-imex-channel-requests": BOOL,
    "features.no-additional-gids-for-device-nodes": BOOL,
}
# What is no sign that a key stands in the wrong table.
IN_MANY_TABLES = ("path", "debug", "root", "user", "mode")
CHOICES: Mapping[str, Tuple[str, ...]] = {
    "nvidia-container-runtime.mode": MODES,
    "nvidia-container-runtime.log-level": LEVELS,
    "nvidia-container-runtime.modes.legacy.cuda-compat-mode": ("ldconfig", "disabled", "hook", "mount"),
}


def declared(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The option ``toolkit`` with dotted names alone, each with a value of its kind; None for a key that shall go.

    Keys may be nested, dotted, or both. Raises ``DeclarationError``.
    """
    found: Dict[str, Any] = {}
    for name, value in flat(given):
        if name in found:
            raise wrong(name, "it is declared twice, as a nested and as a dotted key", "leave one out")
        found[name] = _value(name, value)
    return found


def as_scalar(value: Any) -> Scalar:
    """A value as that of a setting: a list as its text."""
    return value if value is None or isinstance(value, (str, bool, int)) else json.dumps(value, default=str)


def flat(table: Mapping[str, Any], before: str = "") -> Iterator[Tuple[str, Any]]:
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        else:
            yield name, value


def _value(name: str, value: Any) -> Any:
    kind = KEYS.get(name)
    if kind is None:
        return _unknown(name, value)
    if value is None:
        return None
    if kind == BOOL and isinstance(value, str):
        # A template makes a text of it.
        value = {"true": True, "false": False}.get(value.lower(), value)
    if not _is_a(kind, value):
        raise wrong(name, f"it is {value!r}, and must be {kind}")
    if name in CHOICES and value not in CHOICES[name]:
        raise wrong(name, f"it is {value!r}, and must be one of {', '.join(CHOICES[name])}")
    return value


def _is_a(kind: str, value: Any) -> bool:
    if kind == TEXTS:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, bool if kind == BOOL else str)


def _unknown(name: str, value: Any) -> Any:
    """A key that a later release may have; one that looks like a slip of the pen is none."""
    if not all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in name.split(".")):
        raise wrong(name, "it is not the name of a key", "write it as nvidia-container-runtime.mode")
    near = _near(name)
    if near:
        raise wrong(name, "the toolkit has no such key", f"{QUESTION} {near}")
    if isinstance(value, str) and value.startswith("["):
        raise wrong(name, f"it is the string {value!r}, which could also be a list", "write it as a list")
    if not any(_is_a(kind, value) for kind in (BOOL, TEXT, TEXTS)) and not isinstance(value, (int, type(None))):
        raise wrong(name, f"it is {value!r}, and must be true or false, a number, a string, or a list of strings")
    return value


def _near(name: str) -> str:
    """The known key that this one was meant to be, empty where none is near."""
    table, dot, last = name.rpartition(".")
    within = [key for key in KEYS if key.startswith(f"{name}.") or name.startswith(f"{key}.")]
    elsewhere = [key for key in KEYS if key.rpartition(".")[2] == last and last not in IN_MANY_TABLES]
    beside = [key for key in KEYS if key.rpartition(".")[0] == table]
    return next(iter([*within, *elsewhere]), "") or nearest(name, beside, cutoff=0.9 if dot else 0.6)


def wrong(name: str, cause: str, hint: str = "") -> DeclarationError:
    return DeclarationError("use {} in the option toolkit", object=name, cause=cause, hint=hint)
