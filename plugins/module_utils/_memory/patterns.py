# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines that are about several knobs: by a glob, or by a total over all nodes. Imported only where there are some."""

from __future__ import annotations

import fnmatch
from typing import Dict, List, Optional, Sequence

from .._topology.numa import Node, spread
from .owners import SYSCTL_KNOB, Assignment
from .state import Pool, State, Values, assign, pool_folder


def assign_all(values: Values, line: Assignment, state: State) -> None:
    """Let a line give all that it is about their values."""
    for path in state.knobs:
        if touches(line, path, state):
            assign(values, path, line, state)
    if not line.value.isdigit():
        return
    number = int(line.value)
    for size_kb in state.sizes:
        pools = state.of_size(size_kb)
        if any(is_total(line, pool, state) for pool in pools):
            # A total that is there already leaves the distribution alone; another one is spread evenly.
            if sum(int(values[pool.knob][0] or 0) for pool in pools) != number:
                shares = spread_total(number, state.nodes)
                values.update((pool.knob, (shares[pool.node.number], line)) for pool in pools)
        else:
            values.update((pool.knob, (number, line)) for pool in pools if touches(line, pool.knob, state))


def spread_total(total: int, nodes: Sequence[Node]) -> Dict[Optional[int], int]:
    """What the kernel makes of a total over all nodes: it takes turns among those with memory.

    The one rule for sysctl, the number for all nodes and ``hugepages=`` on the command line alike.
    """
    numbers = [node.number or 0 for node in nodes if node.total_kb]
    shares = spread(total, numbers) if numbers else {}
    return {node.number: shares.get(node.number or 0, 0) for node in nodes}


def touches(line: Assignment, knob: str, state: State) -> bool:
    """Whether an assignment has a say in a knob, also by the total over all nodes."""
    pool = state.pools.get(knob)
    return any(_names(line, name) for name in ([knob] if pool is None else [knob, *_global_knobs(pool.size_kb, state)]))


def is_total(line: Assignment, pool: Pool, state: State) -> bool:
    """Whether an assignment is about the pages of all nodes together."""
    return (
        pool.node.number is not None
        and not _names(line, pool.knob)
        and any(_names(line, name) for name in _global_knobs(pool.size_kb, state))
    )


def _names(line: Assignment, knob: str) -> bool:
    return line.knob == knob or (("*" in line.knob or "?" in line.knob) and fnmatch.fnmatch(knob, line.knob))


def _global_knobs(size_kb: int, state: State) -> List[str]:
    folder = pool_folder(None, size_kb)
    knobs = [f"{folder}/nr_hugepages", f"{folder}/nr_hugepages_mempolicy"]
    return [*knobs, SYSCTL_KNOB] if size_kb == state.default_kb else knobs
