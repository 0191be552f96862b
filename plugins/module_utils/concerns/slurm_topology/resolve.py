# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declaration means on this controller: the text of topology.conf, and the plugin in slurm.conf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Iterator, Tuple

from ..._core.baseline import damaged
from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError, OwnedByAnother
from ..._text.host_ranges import folded
from ..._text.slurm_conf import NODE, lines_of, refuse_another_folder, refuse_includes
from . import topology_conf, topology_yaml
from .spec import GOAL, NAME
from .state import HAS_YAML, PLUGIN, SLURMCTLD, TopologyDesired, in_effect
from .topology import BLOCK, FLAT, TREE, too_small

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from .spec import TopologyDeclaration
    from .state import TopologyState
    from .topology import Topologies, Topology

TOPOLOGY = "topology"
PARTITION = "partitionname"
LINEAR = "select/linear"
# When what came: BlockSizes, smaller blocks, and when slurmctld began to refuse select/linear.
HAS_BLOCKS, HAS_SMALLER_BLOCKS, TREE_NEEDS_CONS_TRES = (24, 5), (25, 5), (24, 11)
WIDEST = 200


def resolve(declaration: TopologyDeclaration, state: TopologyState) -> TopologyDesired:
    """Raises ``DeclarationError`` and ``OwnedByAnother`` on what slurmctld would refuse, or not read."""
    reason = _not_here(state)
    if reason:
        return TopologyDesired(unmanaged=(Unmanaged(state.path, TOPOLOGY, reason),))
    refuse_another_folder(state.folder, daemon="slurmctld", words=state.daemon.words)
    if declaration.topologies is not None:
        return _resolve_yaml(declaration.topologies, state)
    wanted = declaration.topology
    _refuse_files(state)
    _refuse_release(wanted, state)
    unmanaged = _against_nodes(wanted, state)
    plugin = wanted.plugin
    if state.elsewhere and state.plugin != plugin:
        raise OwnedByAnother(
            f"set {PLUGIN}",
            object=state.elsewhere,
            cause=f"{state.slurm_path} includes it, and it sets another plugin",
            found=state.plugin,
            wanted=plugin,
            hint="remove the line there, or set this value there",
        )
    text = topology_conf.text_with(state.text, wanted)
    # A topology.yaml of ours goes, or topology.conf would not be read.
    yaml = topology_conf.text_without(state.yaml)
    return TopologyDesired(wanted, text, plugin, sets_plugin=True, managed=True, unmanaged=unmanaged, yaml=yaml)


def _resolve_yaml(wanted: Topologies, state: TopologyState) -> TopologyDesired:
    """topology.conf and TopologyPlugin stay as they are, for slurmctld reads neither."""
    if state.version < HAS_YAML:
        raise DeclarationError(
            "use {}",
            object="topologies",
            cause="topology.yaml came with Slurm 25.05",
            found="{}.{:02}".format(*state.version),
            hint="declare switches or blocks, or update Slurm",
        )
    if state.lacks_yaml:
        raise DeclarationError(
            "use {}",
            object="topologies",
            cause="this Slurm was built without YAML (there is no serializer_yaml.so), and slurmctld would not start",
            hint="declare switches or blocks, or install Slurm with YAML",
        )
    for topology in wanted.by_name.values():
        _refuse_release(topology, state)
    _refuse_unknown(wanted, state)
    return TopologyDesired(
        topology=state.at_start,
        text=state.text,
        plugin=state.plugin,
        managed=True,
        unmanaged=_nowhere(wanted, state),
        yaml=topology_yaml.text_with(state.yaml, wanted),
        topologies=wanted,
    )


def _refuse_unknown(wanted: Topologies, state: TopologyState) -> None:
    """A partition, or a node, that names a topology which is not there: slurmctld would not start."""
    for what, name, path in _named(state):
        if name not in wanted.by_name:
            raise DeclarationError(
                "leave out topology {}",
                object=name,
                cause=f"{what} in {path} names it with Topology=, and slurmctld would not start without it",
                hint=f"declare it, or change Topology= there to one of: {', '.join(wanted.by_name)}",
            )


def _named(state: TopologyState) -> Iterator[Tuple[str, str, str]]:
    """Who names a topology: what it is, the topology, and the file."""
    for path, text in state.confs.items():
        for line in lines_of(text):
            told = line.pairs.get(TOPOLOGY, "")
            if told and PARTITION in line.pairs:
                yield f"partition {line.pairs[PARTITION]}", told, path
            elif told and NODE in line.pairs:
                for one in told.split(","):
                    yield line.pairs[NODE], one.partition(":")[0], path


def _nowhere(wanted: Topologies, state: TopologyState) -> Tuple[Unmanaged, ...]:
    """The nodes that are in no topology. One that is flat has all."""
    found = wanted.by_name.values()
    _refuse_nodes((node for one in found for node in one.nodes), state)
    if any(one.plugin == FLAT for one in found):
        return ()
    placed: Dict[str, None] = dict.fromkeys(node for one in found for node in one.nodes)
    return _without_place(placed, state, "topology")


def restore(baseline: Baseline, state: TopologyState) -> TopologyDesired:
    """The plugin of before, and no line of ours."""
    plugin, sets = state.plugin, False
    for (_identity, setting), value in baseline.values.items():
        if setting == PLUGIN:
            if not isinstance(value.boot, (str, type(None))):
                raise damaged(NAME, f"{value.boot!r} is not a value of {PLUGIN}")
            plugin, sets = value.boot, True
    text, yaml = (topology_conf.text_without(one) for one in (state.text, state.yaml))
    topologies = topology_yaml.parse(yaml) if state.ignores_conf(yaml) else None
    return TopologyDesired(in_effect(text, plugin), text, plugin, sets, managed=True, yaml=yaml, topologies=topologies)


def _not_here(state: TopologyState) -> str:
    if not state.daemon.installed:
        return f"there is no {SLURMCTLD}, so this host is not a controller of Slurm"
    return "" if state.slurm is not None else f"there is no {state.slurm_path}, so Slurm is not configured here"


def _refuse_files(state: TopologyState) -> None:
    if state.ignores_conf(topology_conf.text_without(state.yaml)):
        raise OwnedByAnother(
            GOAL,
            object=state.yaml_path,
            cause="it exists, and Slurm then ignores topology.conf",
            hint="declare what it has in topologies, or remove it",
        )
    refuse_includes(state.path, state.text, goal=GOAL, concern=NAME)


def _refuse_release(wanted: Topology, state: TopologyState) -> None:
    release = "{}.{:02}".format(*state.version)
    if wanted.plugin == BLOCK and state.version < HAS_BLOCKS:
        raise DeclarationError(
            "use {}",
            object="blocks",
            cause="topology/block with BlockSizes came with Slurm 24.05",
            found=release,
            hint="declare switches, or update Slurm",
        )
    small = too_small(wanted) if wanted.plugin == BLOCK and state.version < HAS_SMALLER_BLOCKS else None
    if small is not None:
        name, count, least = small
        raise DeclarationError(
            "use block {}",
            object=name,
            cause=f"it has fewer nodes than the smallest block, and slurmctld {release} would not start",
            found=count,
            wanted=least,
            hint="set block_sizes so that the first number is at most the size of the smallest block",
        )
    if wanted.plugin == TREE and state.value("SelectType") == LINEAR and state.version >= TREE_NEEDS_CONS_TRES:
        raise DeclarationError(
            "use {}",
            object="switches",
            cause=f"{state.slurm_path} has SelectType={LINEAR}, with which slurmctld {release} would not start",
            hint="set SelectType=select/cons_tres there",
        )


def _against_nodes(wanted: Topology, state: TopologyState) -> Tuple[Unmanaged, ...]:
    """Raises ``DeclarationError`` on nodes that Slurm does not have. Returns those that have no place."""
    _refuse_nodes(wanted.nodes, state)
    return _without_place(wanted.nodes, state, "block" if wanted.plugin == BLOCK else "switch")


def _refuse_nodes(nodes: Iterable[str], state: TopologyState) -> None:
    unknown = set() if state.known is None else set(nodes) - state.known
    if unknown:
        raise DeclarationError(
            "give {} a place in the topology of Slurm",
            object=folded(unknown, widest=WIDEST),
            cause=f"no NodeName in {state.slurm_path} has it",
            hint="add it there, or take it out of the declaration",
        )


def _without_place(nodes: Iterable[str], state: TopologyState, what: str) -> Tuple[Unmanaged, ...]:
    left = state.known.difference(nodes) if state.known is not None else ()
    if not left:
        return ()
    reason = f"{state.slurm_path} has it, and no {what} does, so it gets no jobs that need several nodes"
    hint = f"declare a {what} for it, or set strict: false"
    return (Unmanaged(folded(left, widest=WIDEST), what, reason, hint=hint),)
