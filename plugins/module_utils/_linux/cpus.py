# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs as cores with their threads."""

from __future__ import annotations

from typing import AbstractSet, Iterable, List, Sequence, Tuple

Cores = Tuple[Tuple[int, ...], ...]


def cores(numbers: AbstractSet[int], siblings: Iterable[AbstractSet[int]]) -> Cores:
    """The cores that have some of the CPUs: of each the threads that are among them, all in the order of the numbers.

    ``siblings`` are the sets of threads of the machine's cores. A CPU that is in none of them is a core of its own.
    """
    found = [tuple(sorted(threads & numbers)) for threads in siblings]
    known = {number for threads in found for number in threads}
    return tuple(sorted([threads for threads in found if threads] + [(number,) for number in numbers - known]))


def interleave_threads(every_core: Sequence[Sequence[int]]) -> Tuple[int, ...]:
    """The CPUs of cores with one thread of every core first, then the second threads, and so on."""
    most = max((len(threads) for threads in every_core), default=0)
    ordered: List[int] = []
    for turn in range(most):
        ordered.extend(threads[turn] for threads in every_core if turn < len(threads))
    return tuple(ordered)
