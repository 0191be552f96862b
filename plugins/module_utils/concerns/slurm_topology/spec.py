# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of a topology, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, NoReturn, Optional, Set, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import frozen
from ..._text.host_ranges import expand, folded
from ..._text.slurm_conf import folder_of
from .topology import (
    BLOCK,
    FLAT,
    NODES,
    SWITCHES,
    TREE,
    Topologies,
    Topology,
    fault_of_sizes,
    fault_of_tree,
    node_twice,
)

NAME = "slurm_topology"
FOLDER = "/etc/slurm"
GOAL = "set the topology of Slurm"

# Slurm takes 64 characters (HOST_NAME_MAX), and would read a bracket or a comma as more than one name.
SWITCH = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# What in topology.yaml is no name, in quotes or not.
NO_NAMES = ("null", "false")


@frozen
class TopologyDeclaration:
    """What is declared: one ``topology``, for topology.conf, or ``topologies``, for topology.yaml.

    For ``state: absent`` it is neither.
    """

    topology: Topology = Topology()
    folder: str = FOLDER
    topologies: Optional[Topologies] = None


def parse(params: Mapping[str, Any]) -> TopologyDeclaration:
    """Raises ``DeclarationError`` on what no slurmctld would take, or nobody can mean."""
    if not params["permanent"]:
        cause = "slurmctld reads it from a file, which its next start reads too"
        raise DeclarationError(GOAL, cause=cause, hint="set permanent: true")
    switches, blocks, sizes = params["switches"] or (), params["blocks"] or (), params["block_sizes"] or ()
    folder = folder_of(params["folder"])
    if params["topologies"]:
        if switches or blocks or sizes:
            _refuse("topologies", "switches or blocks are set too", hint="declare them as one of the topologies")
        return TopologyDeclaration(folder=folder, topologies=_topologies(params["topologies"]))
    if not switches and not blocks:
        several = "topologies for several (Slurm 25.05 and newer)"
        hint = f"declare switches for topology/tree, blocks for topology/block, or {several}"
        cause = "neither switches, blocks nor topologies are set"
        raise DeclarationError("read the declaration", cause=cause, hint=hint)
    if switches and blocks:
        hint = "leave one of the two out, or declare both in topologies (Slurm 25.05 and newer)"
        _refuse("blocks", "switches are set too, and topology.conf holds one topology", hint=hint)
    if sizes and not blocks:
        _refuse("block_sizes", "no blocks are set, and a tree has none", hint="leave it out")
    return TopologyDeclaration(_one(switches, blocks, sizes), folder)


def _topologies(entries: Any) -> Topologies:
    found: Dict[str, Topology] = {}
    known: Set[str] = set()
    for index, entry in enumerate(entries):
        where = f"topologies[{index}]"
        name = _name(entry["name"], f"{where}.name", known)
        switches, blocks, sizes = (entry[key] or () for key in ("switches", "blocks", "block_sizes"))
        given = [key for key in ("switches", "blocks", "flat") if entry[key]]
        if len(given) != 1:
            what = " and ".join(given) or "neither switches nor blocks nor flat: true"
            _refuse(where, f"it has {what}, and a topology is of one kind", hint="set one of them")
        if sizes and not blocks:
            _refuse(f"{where}.block_sizes", "it has no blocks", hint="leave it out")
        found[name] = Topology(FLAT) if entry["flat"] else _one(switches, blocks, sizes)
        _refuse_no_names(
            where, (name, *(word for key, names in found[name].members.items() for word in (key[0], names)))
        )
    defaults = [entry["name"] for entry in entries if entry["cluster_default"]]
    if len(defaults) > 1 or (not defaults and len(found) > 1):
        cause = f"{' and '.join(defaults) or 'no topology'} would be that of partitions that name none"
        _refuse("cluster_default", cause, hint="set cluster_default: true in exactly one of the topologies")
    return Topologies(found, (defaults or list(found))[0])


def _refuse_no_names(where: str, names: Iterable[str]) -> None:
    for name in names:
        if name.lower() in NO_NAMES:
            _refuse(where, "slurmctld reads this name in topology.yaml as no value", found=name, hint="rename it")


def _one(switches: Any, blocks: Any, sizes: Any) -> Topology:
    topology = _blocks(blocks, sizes) if blocks else _tree(switches)
    twice = node_twice(topology)
    if twice is not None:
        node, first, second = twice
        _refuse(
            node,
            f"it is in both {first} and {second}, and a node must be in one place only",
            found=f"{first} and {second}",
        )
    return topology


def _tree(switches: Any) -> Topology:
    members: Dict[Tuple[str, str], str] = {}
    known: Set[str] = set()
    for index, entry in enumerate(switches):
        where = f"switches[{index}]"
        name = _name(entry["name"], f"{where}.name", known)
        given = [kind for kind in (NODES, SWITCHES) if entry[kind] is not None]
        if len(given) != 1:
            cause = "it has both nodes and switches" if given else "it has neither nodes nor switches below it"
            _refuse(name, f"{cause}, and slurmctld takes one of the two", hint=f"set one of them in {where}")
        members[(name, given[0])] = _names(entry[given[0]], f"{where}.{given[0]}")
    topology = Topology(TREE, members)
    fault = fault_of_tree(topology)
    if fault is not None:
        _refuse(*fault)
    return topology


def _blocks(blocks: Any, sizes: Any) -> Topology:
    members: Dict[Tuple[str, str], str] = {}
    known: Set[str] = set()
    for index, entry in enumerate(blocks):
        name = _name(entry["name"], f"blocks[{index}].name", known)
        members[(name, NODES)] = _names(entry["nodes"], f"blocks[{index}].nodes")
    fault = fault_of_sizes(sizes)
    if fault:
        _refuse("block_sizes", fault, found=",".join(map(str, sizes)))
    return Topology(BLOCK, members, tuple(name for name, _kind in members), tuple(sizes))


def _name(name: str, where: str, known: Set[str]) -> str:
    if not SWITCH.fullmatch(name):
        cause = (
            "a name must be up to 64 letters, digits, dots, hyphens and underscores, and begin with a letter or digit"
        )
        _refuse(where, cause, found=repr(name))
    if name in known:
        _refuse(where, "the name is used twice", found=name)
    known.add(name)
    return name


def _names(names: str, where: str) -> str:
    try:
        return folded(expand(names))
    except ValueError as error:
        _refuse(where, str(error), found=repr(names), hint="write a list such as h[001-016],h031")


def _refuse(object: str, cause: str, *, found: Any = None, hint: str = "") -> NoReturn:
    raise DeclarationError("use {} in the topology of Slurm", object=object, cause=cause, found=found, hint=hint)
