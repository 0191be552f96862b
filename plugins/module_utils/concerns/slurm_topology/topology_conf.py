# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""topology.conf: our lines in a block, and those of others commented out; and what ``scontrol`` shows. Pure.

slurmctld adds all lines up. Without our block and our comments the file is again as it was, byte for byte.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from ..._core.regex import regex
from ..._text.block import Block
from ..._text.slurm_conf import lines_of
from ..._text.whole_lines import whole_lines
from .spec import NAME
from .topology import BLOCK, NODES, SWITCHES, TREE, Topology, canonical

LINES = Block(NAME)
# Keys of both plugins: a line for the other one is a mistake that ends slurmctld.
SWITCH_NAME, BLOCK_NAME, BLOCK_SIZES = "switchname", "blockname", "blocksizes"
KEYS = {NODES: "Nodes", SWITCHES: "Switches"}
# What a line says that is of no use to the plugin.
OTHER_KEYS = "keys"
MADE = regex(r"BlockName=(\S+)|AggregatedBlock=\S+")
SIZE = regex(r" BlockSize=([0-9]+)")


def text_of(topology: Topology) -> str:
    """Its lines."""
    if topology.plugin == BLOCK:
        lines = [f"BlockName={name} Nodes={topology.members.get((name, NODES), '')}" for name in topology.order]
        lines += [f"BlockSizes={','.join(map(str, topology.sizes))}"] if topology.sizes else []
    else:
        lines = [
            f"SwitchName={name} {KEYS[kind]}={names}"
            for (name, kind), names in topology.members.items()
            if kind in KEYS
        ]
    return "".join(f"{line}\n" for line in lines)


def text_with(text: Optional[str], topology: Topology) -> Optional[str]:
    """The file with this topology. It stays as it is, or is again as it was, where it means the same."""
    theirs = text_without(text)
    for same in (text, theirs):
        if same is not None and parse(same, topology.plugin) == topology:
            return same
    if theirs is not None:
        numbers = {number for line in lines_of(theirs) for number in range(line.first, line.last + 1)}
        theirs = LINES.muted(theirs, numbers)
    return LINES.with_lines(theirs, text_of(topology), first=False)


def text_without(text: Optional[str]) -> Optional[str]:
    """The file as it was before us."""
    theirs = LINES.without_lines(text)
    return None if theirs is None else LINES.unmuted(theirs)


def theirs_in(text: Optional[str]) -> Tuple[Tuple[int, str], ...]:
    """The lines of others that count, with their numbers."""
    start, stop = LINES.numbers(text or "")
    raw = whole_lines(text or "")
    return tuple(
        (line.first, raw[line.first - 1].strip()) for line in lines_of(text or "") if not start <= line.first < stop
    )


def parse(text: Optional[str], plugin: Optional[str]) -> Topology:
    """What the file says to a plugin. What is said twice, and keys that are not of this plugin, show in it as such."""
    members: Dict[Tuple[str, str], str] = {}
    order: List[str] = []
    sizes: Tuple[int, ...] = ()
    for line in lines_of(text or ""):
        name = line.pairs.get(BLOCK_NAME if plugin == BLOCK else SWITCH_NAME)
        if name is not None:
            if plugin == BLOCK:
                order.append(name)
            for kind in (NODES, SWITCHES):
                if kind in line.pairs:
                    known = members.get((name, kind))
                    found = canonical(line.pairs[kind])
                    members[(name, kind)] = found if known is None else f"{known} and {found}"
        elif plugin == BLOCK and BLOCK_SIZES in line.pairs:
            sizes = tuple(int(one) if one.isdecimal() else 0 for one in line.pairs[BLOCK_SIZES].split(","))
        else:
            members[(f"line {line.first}", OTHER_KEYS)] = " ".join(line.pairs)
    return Topology(plugin, members, tuple(order), sizes)


def parse_shown(text: str, plugin: str) -> Topology:
    """What ``scontrol show topology`` says, a line for each switch or block.

    Of a switch above others it has all nodes too, and of blocks the larger ones that slurmctld makes of them.
    """
    members: Dict[Tuple[str, str], str] = {}
    order: List[str] = []
    sizes: List[int] = []
    for raw in text.splitlines():
        pairs = {key.lower(): value for key, _equals, value in (word.partition("=") for word in raw.split())}
        if plugin == TREE and SWITCH_NAME in pairs:
            kind = SWITCHES if SWITCHES in pairs else NODES
            members[(pairs[SWITCH_NAME], kind)] = canonical(pairs.get(kind, ""))
        made = MADE.match(raw) if plugin == BLOCK else None
        if made is None:
            continue
        if made[1]:
            order.append(made[1])
            members[(made[1], NODES)] = canonical(pairs.get(NODES, ""))
        size = SIZE.search(raw)
        if size is not None:
            sizes.append(int(size[1]))
    return Topology(plugin, members, tuple(order), tuple(sorted(set(sizes))))
