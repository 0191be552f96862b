# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPUs are near: the NUMA node of a set of CPUs, and the one to take for a node that has none."""

from __future__ import annotations

from typing import AbstractSet, Mapping, Optional


def majority(cpus: AbstractSet[int], nodes: Mapping[int, AbstractSet[int]]) -> Optional[int]:
    """The node that more than half of the CPUs belong to, of ``nodes`` with their CPUs.

    The CPUs of all nodes together name none of them.
    """
    counts = {number: len(own & cpus) for number, own in nodes.items() if own & cpus}
    if len(counts) > 1 and all(own <= cpus for own in nodes.values()):
        return None
    return next((number for number, count in counts.items() if 2 * count > len(cpus)), None)


def nearest_with_cpus(
    number: int, nodes: Mapping[int, AbstractSet[int]], distances: Mapping[int, int]
) -> Optional[int]:
    """The node itself, or for one that has only memory the nearest that has CPUs; None where no distance is known.

    ``distances`` are those from the node, by the number of the other one.
    """
    if nodes[number]:
        return number
    candidates = [other for other, own in nodes.items() if own and other in distances]
    return min(candidates, key=lambda other: (distances[other], other), default=None)
