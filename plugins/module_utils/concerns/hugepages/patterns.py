# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines that are about several tunables: by a glob, or by a total over all nodes."""

from __future__ import annotations

import fnmatch
from typing import Dict, List, Optional, Sequence

from ..._kinds.tunables import BootAssignment
from ..._linux.numa import NumaNode, spread
from .owners import SYSCTL_TUNABLE
from .state import HugepagesState, Pool, Values, assign, pool_folder


def assign_all(values: Values, line: BootAssignment, state: HugepagesState) -> None:
    """Let a line give all that it is about their values."""
    for path in state.tunables:
        if touches(line, path, state):
            assign(values, path, line, state)
    if not line.value.isdecimal():
        return
    number = int(line.value)
    for size_kb in state.sizes:
        pools = state.of_size(size_kb)
        if any(is_total(line, pool, state) for pool in pools):
            # A total that is there already leaves the distribution alone; another one is spread evenly.
            if sum(int(values[pool.tunable][0] or 0) for pool in pools) != number:
                shares = spread_total(number, state.nodes)
                values.update((pool.tunable, (shares[pool.node.number], line)) for pool in pools)
        else:
            values.update((pool.tunable, (number, line)) for pool in pools if touches(line, pool.tunable, state))


def spread_total(total: int, nodes: Sequence[NumaNode]) -> Dict[Optional[int], int]:
    """What the kernel makes of a total over all nodes: it takes turns among those with memory.

    The one rule for sysctl, the number for all nodes and ``hugepages=`` on the command line alike.
    """
    numbers = [node.number or 0 for node in nodes if node.total_kb]
    shares = spread(total, numbers) if numbers else {}
    return {node.number: shares.get(node.number or 0, 0) for node in nodes}


def touches(line: BootAssignment, tunable: str, state: HugepagesState) -> bool:
    """Whether an assignment has a say in a tunable, also by the total over all nodes."""
    pool = state.pools.get(tunable)
    return any(
        _names(line, name)
        for name in ([tunable] if pool is None else [tunable, *_global_tunables(pool.size_kb, state)])
    )


def is_total(line: BootAssignment, pool: Pool, state: HugepagesState) -> bool:
    """Whether an assignment is about the pages of all nodes together."""
    return (
        pool.node.number is not None
        and not _names(line, pool.tunable)
        and any(_names(line, name) for name in _global_tunables(pool.size_kb, state))
    )


def _names(line: BootAssignment, tunable: str) -> bool:
    return line.tunable == tunable or (
        ("*" in line.tunable or "?" in line.tunable) and fnmatch.fnmatch(tunable, line.tunable)
    )


def _global_tunables(size_kb: int, state: HugepagesState) -> List[str]:
    folder = pool_folder(None, size_kb)
    tunables = [f"{folder}/nr_hugepages", f"{folder}/nr_hugepages_mempolicy"]
    return [*tunables, SYSCTL_TUNABLE] if size_kb == state.boot_default_kb else tunables
