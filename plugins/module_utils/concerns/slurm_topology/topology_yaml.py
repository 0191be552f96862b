# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""topology.yaml, which Slurm 25.05 and newer read in place of topology.conf where it is there. Pure.

The keys are those of topology.yaml(5) and of the parsers of ``TOPOLOGY_CONF`` (src/plugins/data_parser). slurmctld
tells what it has in the same form: ``scontrol show topoconf``. All scalars are texts to it, in quotes or not.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Tuple

from ..._core.regex import regex
from ..._text import yaml_subset
from ..._text.whole_lines import whole_lines
from .topology import BLOCK, FLAT, NODES, SWITCHES, TREE, Topologies, Topology, canonical
from .topology_conf import LINES, OTHER_KEYS, text_without

# libyaml writes it in front of a document, and so scontrol. The line stays, for numbers in messages.
VERSION = regex(r"\A((?:[ \t]*(?:#.*)?\r?\n)*)%YAML 1\.[12][ \t]*(?=\r?\n---)")
NAME, DEFAULT = "topology", "cluster_default"
# How tells slurmctld that something is not there.
NOTHING: Tuple[Any, ...] = (None, "", "null", "~", "false", False, (), [], {})
YES = ("true", "yes", "on", "1", "t", "y")


def text_of(topologies: Topologies) -> str:
    """The list of these topologies."""
    lines: List[str] = []
    for name, topology in topologies.by_name.items():
        lines += [f"- {NAME}: {_quoted(name)}", f"  {DEFAULT}: {'true' if name == topologies.default else 'false'}"]
        if topology.plugin == FLAT:
            lines.append("  flat: true")
        elif topology.plugin == BLOCK:
            lines.append("  block:")
            if topology.sizes:
                lines += ["    block_sizes:", *(f"      - {size}" for size in topology.sizes)]
            lines.append("    blocks:")
            for block in topology.order:
                nodes = topology.members.get((block, NODES), "")
                lines += [f"      - block: {_quoted(block)}", f"        nodes: {_quoted(nodes)}"]
        else:
            lines += ["  tree:", "    switches:"]
            for (switch, kind), names in topology.members.items():
                key = "children" if kind == SWITCHES else "nodes"
                lines += [f"      - switch: {_quoted(switch)}", f"        {key}: {_quoted(names)}"]
    return "".join(f"{line}\n" for line in lines)


def text_with(text: Optional[str], topologies: Topologies) -> str:
    """The file with these topologies. It stays as it is, or is again as it was, where it means the same."""
    theirs = text_without(text)
    for same in (text, theirs):
        if same is not None and parse(same) == topologies:
            return same
    if theirs is not None:
        numbers = {number for number, raw in enumerate(whole_lines(theirs), 1) if _counts(raw)}
        theirs = LINES.muted(theirs, numbers)
    return LINES.with_lines(theirs, text_of(topologies), first=False)


def theirs_in(text: Optional[str]) -> Tuple[Tuple[int, str], ...]:
    """The topologies of others, by the lines that begin them."""
    start, stop = LINES.numbers(text or "")
    return tuple(
        (number, raw.strip())
        for number, raw in enumerate(whole_lines(text or ""), 1)
        if _counts(raw) and not start <= number < stop and f"{NAME}:" in raw
    )


def parse(text: Optional[str]) -> Topologies:
    """What the file says, or slurmctld. Raises ``yaml_subset.YamlError`` on YAML that is not read here."""
    document = yaml_subset.parse(VERSION.sub(r"\1", text or ""))
    found: Dict[str, Topology] = {}
    default: Optional[str] = None
    for number, entry in enumerate(_list(document), 1):
        topology = _topology(entry)
        # slurmctld has one without a kind where it has read topology.conf.
        if topology is None:
            continue
        name = _value(entry.get(NAME)) or f"topology {number}"
        found[name if name not in found else f"{name} (defined again)"] = topology
        if default is None and str(entry.get(DEFAULT)).lower() in YES:
            default = name
    return Topologies(found, default or next(iter(found), None))


def _topology(entry: Any) -> Optional[Topology]:
    if not isinstance(entry, dict):
        return None
    kinds = {key: value for key, value in entry.items() if key not in (NAME, DEFAULT) and not _is_nothing(value)}
    if len(kinds) != 1:
        return _other("/".join(kinds), kinds) if kinds else None
    ((kind, value),) = kinds.items()
    if kind == "flat" and str(value).lower() in YES:
        return Topology(FLAT)
    if kind == "tree" and isinstance(value, dict) and set(value) == {"switches"}:
        return _tree(_list(value["switches"]))
    if kind == "block" and isinstance(value, dict) and set(value) <= {"block_sizes", "blocks"}:
        return _blocks(_list(value.get("blocks")), _list(value.get("block_sizes")))
    return _other(kind, value)


def _other(kind: str, value: Any) -> Topology:
    """A kind that is not declared here, such as a ring, or keys that are not known."""
    return Topology(f"topology/{kind}", {(kind, OTHER_KEYS): json.dumps(value, sort_keys=True)})


def _tree(switches: List[Any]) -> Topology:
    members: Dict[Tuple[str, str], str] = {}
    for number, entry in enumerate(switches, 1):
        name, pairs = _named(entry, "switch", number)
        for key, kind in (("children", SWITCHES), ("nodes", NODES)):
            if key in pairs:
                _add(members, (name, kind), canonical(pairs[key]))
        if not {"children", "nodes"} & set(pairs):
            _add(members, (name, NODES), "")
    return Topology(TREE, members)


def _blocks(blocks: List[Any], sizes: List[Any]) -> Topology:
    members: Dict[Tuple[str, str], str] = {}
    order: List[str] = []
    for number, entry in enumerate(blocks, 1):
        name, pairs = _named(entry, "block", number)
        order.append(name)
        _add(members, (name, NODES), canonical(pairs["nodes"]) if "nodes" in pairs else "")
    numbers = tuple(int(size) if str(size).isdecimal() else 0 for size in sizes)
    return Topology(BLOCK, members, tuple(order), numbers)


def _add(members: Dict[Tuple[str, str], str], key: Tuple[str, str], names: str) -> None:
    """What is said twice shows as such."""
    members[key] = f"{members[key]} and {names}" if key in members else names


def _named(entry: Any, key: str, number: int) -> Tuple[str, Dict[str, str]]:
    pairs = {name: _value(value) for name, value in entry.items()} if isinstance(entry, dict) else {}
    said = {name: value for name, value in pairs.items() if value is not None}
    return said.pop(key, f"{key} {number}"), said


def _list(value: Any) -> List[Any]:
    """Slurm takes one for a list of one."""
    if _is_nothing(value):
        return []
    return value if isinstance(value, list) else [value]


def _value(value: Any) -> Optional[str]:
    return None if _is_nothing(value) else str(value)


def _is_nothing(value: Any) -> bool:
    return any(value is one or value == one for one in NOTHING)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _counts(raw: str) -> bool:
    return bool(raw.strip()) and not raw.lstrip().startswith("#")
