# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declaration means on this controller: the text of topology.conf, and the plugin in slurm.conf."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Tuple

from ..._core.baseline import damaged
from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError, OwnedByAnother
from ..._text.host_ranges import folded
from . import topology_conf
from .spec import GOAL, NAME
from .state import PLUGIN, SLURMCTLD, TopologyDesired, in_effect
from .topology import BLOCK, TREE, too_small

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from .spec import TopologyDeclaration
    from .state import TopologyState
    from .topology import Topology

TOPOLOGY = "topology"
# The option of slurmctld with a configuration of its own.
CONFIG_OPTION = "-f"
LINEAR = "select/linear"
# When what came: BlockSizes, smaller blocks, and when slurmctld began to refuse select/linear.
HAS_BLOCKS, HAS_SMALLER_BLOCKS, TREE_NEEDS_CONS_TRES = (24, 5), (25, 5), (24, 11)
WIDEST = 200


def resolve(declaration: TopologyDeclaration, state: TopologyState) -> TopologyDesired:
    """Raises ``DeclarationError`` and ``OwnedByAnother`` on what slurmctld would refuse, or not read."""
    reason = _not_here(state)
    if reason:
        return TopologyDesired(unmanaged=(Unmanaged(state.path, TOPOLOGY, reason),))
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
    return TopologyDesired(wanted, text, plugin, sets_plugin=True, managed=True, unmanaged=unmanaged)


def restore(baseline: Baseline, state: TopologyState) -> TopologyDesired:
    """The plugin of before, and no line of ours."""
    plugin, sets = state.plugin, False
    for (_identity, setting), value in baseline.values.items():
        if setting == PLUGIN:
            if not isinstance(value.boot, (str, type(None))):
                raise damaged(NAME, f"{value.boot!r} is not a value of {PLUGIN}")
            plugin, sets = value.boot, True
    text = topology_conf.text_without(state.text)
    return TopologyDesired(in_effect(text, plugin), text, plugin, sets, managed=True)


def _not_here(state: TopologyState) -> str:
    if not state.daemon.installed:
        return f"there is no {SLURMCTLD}, so this host is not a controller of Slurm"
    return "" if state.slurm is not None else f"there is no {state.slurm_path}, so Slurm is not configured here"


def _refuse_files(state: TopologyState) -> None:
    words = state.daemon.words
    told = next((after for word, after in zip(words, words[1:]) if word == CONFIG_OPTION), "")
    if told and os.path.dirname(told) != state.folder:
        raise DeclarationError(
            "use {}",
            object="folder",
            cause=f"slurmctld reads {told}",
            found=state.folder,
            hint=f"set folder: {os.path.dirname(told)}",
        )
    if state.ignores_conf:
        raise OwnedByAnother(
            GOAL,
            object=state.yaml_path,
            cause="it exists, and Slurm then ignores topology.conf",
            hint="remove it, or leave slurm_topology out of the declaration",
        )
    number = topology_conf.includes(state.text)
    if number is not None:
        raise OwnedByAnother(
            GOAL,
            object=state.path,
            cause=f"its line {number} includes another file, whose lines would count as well",
            hint="move those lines into it, or leave slurm_topology out of the declaration",
        )


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
    if state.known is None:
        return ()
    unknown = set(wanted.nodes) - state.known
    if unknown:
        raise DeclarationError(
            "give {} a place in the topology of Slurm",
            object=folded(unknown, widest=WIDEST),
            cause=f"no NodeName in {state.slurm_path} has it",
            hint="add it there, or take it out of the declaration",
        )
    left = state.known.difference(wanted.nodes)
    if not left:
        return ()
    what = "block" if wanted.plugin == BLOCK else "switch"
    reason = f"{state.slurm_path} has it, and no {what} does, so it gets no jobs that need several nodes"
    hint = f"declare a {what} for it, or set strict: false"
    return (Unmanaged(folded(left, widest=WIDEST), what, reason, hint=hint),)
