# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The switches of Slurm, or its blocks, as variables of hosts tell where these stand."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence

from ..module_utils._text.host_ranges import folded, natural

# The variables that have the name of a host in Slurm where it is not the first part of its name in the inventory.
NODE_NAMES = ("drain_slurm_node", "slurm_gpus_node_name")


class NoPlace(Exception):
    """A host, or a switch, has no place, or more than one."""


def switches_of(
    hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], levels: Sequence[str], root: str
) -> List[Dict[str, str]]:
    """``name`` with ``nodes`` or ``switches`` for each, the leaves first.

    ``levels`` are the variables that name the switches above a host, from the leaf up; ``root`` is one above all, empty
    for none. Raises ``NoPlace``.
    """
    if isinstance(levels, str):
        levels = [levels]
    if not levels:
        raise NoPlace("no variables are given that name the switches of a host")
    # What is below each switch, and above it, by the level and the name.
    below: List[Dict[str, Dict[str, None]]] = [{} for _level in levels]
    for host in hosts:
        variables = hostvars[host]
        names = [_value(host, variables, level) for level in levels]
        node = next((str(variables[name]) for name in NODE_NAMES if variables.get(name)), host.partition(".")[0])
        for at, name in enumerate(names):
            below[at].setdefault(name, {})[names[at - 1] if at else node] = None
    if not below[0]:
        raise NoPlace("there are no hosts")
    _refuse_ambiguous(below, levels)
    found = []
    for at, places in enumerate(below):
        for name in sorted(places, key=natural):
            found.append({"name": name, "switches" if at else "nodes": folded(places[name])})
    if root:
        if any(root in places for places in below):
            raise NoPlace(f"{root} is already a switch of a host, so it cannot be the root")
        found.append({"name": root, "switches": folded(below[-1])})
    return found


def _value(host: str, variables: Mapping[str, Any], level: str) -> str:
    value = variables.get(level)
    if value is None or value == "" or isinstance(value, (bool, float, list, dict)):
        raise NoPlace(f"{host} has {'no' if value in (None, '') else 'not a name in its'} variable {level}")
    return str(value)


def _refuse_ambiguous(below: Sequence[Mapping[str, Mapping[str, None]]], levels: Sequence[str]) -> None:
    seen: Dict[str, str] = {}
    for level, places in zip(levels, below):
        for name in places:
            if name in seen:
                raise NoPlace(f"{name} is a {seen[name]} and a {level}, and the name of a switch must be unique")
            seen[name] = level
    for at in range(1, len(levels)):
        above: Dict[str, str] = {}
        for name, children in below[at].items():
            for child in children:
                if above.setdefault(child, name) != name:
                    raise NoPlace(f"{levels[at - 1]} {child} is in {levels[at]} {above[child]} and {name}")
