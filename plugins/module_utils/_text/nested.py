# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nested tables as dictionaries, by the keys from the top down."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

Tree = Dict[str, Any]


def get(tree: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """What is at these keys, None where nothing is."""
    found: Any = tree
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def put(tree: Tree, keys: Sequence[str], value: Any) -> None:
    """None takes away, with the tables that nothing is left in."""
    if value is None:
        inner = tree.get(keys[0])
        if len(keys) > 1 and isinstance(inner, dict):
            put(inner, keys[1:], None)
        if len(keys) == 1 or inner == {}:
            tree.pop(keys[0], None)
        return
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = value


def merged(one: Mapping[str, Any], other: Mapping[str, Any], *, joins_lists: bool = False) -> Tree:
    """Tables by their keys, all else replaced by what the other has; lists are joined where that is said."""
    made = dict(one)
    for key, value in other.items():
        present = made.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            made[key] = merged(present, value, joins_lists=joins_lists)
        elif joins_lists and isinstance(present, list) and isinstance(value, list):
            made[key] = [*present, *value]
        else:
            made[key] = value
    return made
