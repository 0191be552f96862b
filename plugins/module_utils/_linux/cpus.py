# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs: lists of them as the kernel writes them, and cores with their threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, AbstractSet, Dict, FrozenSet, Iterable, List, Sequence, Tuple

from .._core.errors import CannotLook
from . import cpulist
from .numa import FOLDER as NODES
from .numa import node_numbers

if TYPE_CHECKING:
    from .._core.protocols import Files

FOLDER = "/sys/devices/system/cpu"
GOAL = "read the CPUs of this machine"
Cores = Tuple[Tuple[int, ...], ...]


def read_cpus(files: Files, path: str) -> FrozenSet[int]:
    """A list of the kernel, none where it is not there. Without ``nohz_full=`` it writes ``(null)`` for those CPUs.

    Raises ``CannotLook`` on what is not a list of CPUs.
    """
    text = (files.read_optional(path) or "").strip()
    return parse_cpus("" if text == "(null)" else text, path)


def read_online(files: Files) -> FrozenSet[int]:
    """The CPUs that are online. Raises ``OSError`` where the kernel does not say."""
    return parse_cpus(files.read(f"{FOLDER}/online"), f"{FOLDER}/online")


def parse_cpus(text: str, path: str) -> FrozenSet[int]:
    """What was read of ``path``. Raises ``CannotLook`` where it is not a list of CPUs."""
    try:
        return cpulist.parse(text)
    except ValueError as error:
        raise CannotLook(GOAL, object=path, cause=f"{text[:80].strip()!r} is not a list of CPUs") from error


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


def online_by_node(files: Files) -> Dict[str, FrozenSet[int]]:
    """The online CPUs of each NUMA node (``node0``) that has some; none where the kernel knows no NUMA."""
    online = read_cpus(files, f"{FOLDER}/online")
    found = {
        f"node{number}": read_cpus(files, f"{NODES}/node{number}/cpulist") & online for number in node_numbers(files)
    }
    return {name: cpus for name, cpus in found.items() if cpus}
