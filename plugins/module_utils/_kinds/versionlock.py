# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages dnf keeps in their versions: by lines of the plugin of dnf 4, or by the file of dnf 5. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .._core.errors import not_understood

LIST = "/etc/dnf/plugins/versionlock.list"
TOML = "/etc/dnf/versionlock.toml"
# dnf passes over a file of another version, or of none, and over entries and conditions that it does not know
# (libdnf5/rpm/versionlock_config.cpp; load_versionlock_excludes of package_sack.cpp).
VERSION = "1.0"
# What keeps a newer version out (dnf5-versionlock(8)).
BOUNDS = ("=", "==", "<", "<=")


def lines_of(text: str) -> Dict[str, str]:
    """The lines of ``LIST`` by the package that each locks."""
    return {name_of(line): line for line in text.splitlines() if name_of(line)}


def name_of(line: str) -> str:
    """The package that a line locks (``name-epoch:version-release.arch``); with ``!`` it excludes a version."""
    if line.startswith(("#", "!")) or ":" not in line:
        return ""
    name, _hyphen, epoch = line.partition(":")[0].strip().rpartition("-")
    return name if epoch.isdecimal() else ""


def names_of(text: str) -> List[str]:
    """The packages, also as shell globs, that ``TOML`` lets nobody upgrade beyond a version.

    Of its entries for a package one has to be met, and of one all conditions. So no entry may leave the version open,
    as one with ``!=`` does. Raises ``CannotLook`` on what dnf would not read either.
    """
    # For the few nodes that have dnf 5.
    from .._text.toml_text import TomlError, parse

    try:
        data = parse(text).data
        bound: Dict[str, bool] = {}
        for entry in data.get("packages", []):
            name, conditions = str(entry["name"]), entry.get("conditions", [])
            # One without conditions locks nothing, and opens nothing that another one locks.
            if conditions:
                bound[name] = bound.get(name, True) and any(map(_is_bound, conditions))
    except (TomlError, AttributeError, KeyError, TypeError) as error:
        raise not_understood(TOML, str(error)) from error
    return [name for name, whole in bound.items() if whole] if data.get("version") == VERSION else []


def _is_bound(condition: Mapping[str, Any]) -> bool:
    """Whether a condition keeps newer versions out. One that dnf does not understand keeps nothing out."""
    return condition.get("key") == "evr" and condition.get("comparator") in BOUNDS and bool(condition.get("value"))
