# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of CPUs on the kernel's command line, and whether a machine can live with them.

Rules from lib/bitmap.c, kernel/sched/isolation.c and kernel/rcu/tree_nocb.h.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, FrozenSet, Mapping, Set, Tuple

from ..._core.errors import CannotLook, DeclarationError
from ..._core.value import frozen
from ..._linux import cpulist
from ..._linux.numa import FOLDER as NODES

if TYPE_CHECKING:
    from ..._core.protocols import Files

CPUS = "/sys/devices/system/cpu"
PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
FLAGS = ("domain", "nohz", "managed_irq")
ISOLATING = ("isolcpus", "nohz_full")
_ITEM = r"(?:(?:[0-9]{1,5}|N)(?:-(?:[0-9]{1,5}|N))?|all)(?::[0-9]{1,5}/[0-9]{1,5})?"


@frozen
class Topology:
    """The CPUs of a machine: ``nodes`` and ``gpus`` (PCI addresses) with theirs, ``siblings`` the threads of cores."""

    possible: FrozenSet[int]
    online: FrozenSet[int]
    nodes: Mapping[str, FrozenSet[int]]
    siblings: FrozenSet[FrozenSet[int]]
    gpus: Mapping[str, FrozenSet[int]]


def split_flags(value: str) -> Tuple[Tuple[str, ...], str]:
    """The flags of ``isolcpus`` and its list. The kernel takes every leading item that begins with a letter as one."""
    flags = []
    items = value.split(",")
    while items and re.match(r"[A-Za-z]", items[0]):
        flags.append(items.pop(0))
    return tuple(flags), ",".join(items)


def check_syntax(name: str, value: str) -> None:
    """Raises ``DeclarationError`` on what the kernel would not read as a list."""
    text = value
    if name == "isolcpus":
        flags, text = split_flags(value)
        unknown = [flag for flag in flags if flag not in FLAGS]
        if unknown:
            raise _wrong(
                name,
                f"the kernel would take {unknown[0]} as a flag and skip it",
                value,
                f"write CPUs as numbers; flags are {', '.join(FLAGS)}",
            )
    items = [item for item in text.split(",") if item]
    if not items:
        raise _wrong(name, "the list names no CPU", value, "list CPUs, such as 2-31")
    for item in items:
        if not re.fullmatch(_ITEM, item):
            raise _wrong(name, f"{item} is not a CPU or a range of CPUs", value, "list CPUs, such as 2-31,34")
        numbers = re.fullmatch(r"([0-9]+)-([0-9]+)(:.*)?", item)
        if numbers and int(numbers[1]) > int(numbers[2]):
            raise _wrong(name, f"{item} is a range that goes backwards, and the kernel drops the whole list", value)
        stride = re.search(r":([0-9]+)/([0-9]+)$", item)
        if stride and not 0 < int(stride[1]) <= int(stride[2]):
            raise _wrong(name, f"{item} takes {stride[1]} of every {stride[2]} CPUs", value)


def expand(text: str, last: int) -> FrozenSet[int]:
    """The CPUs of a list whose syntax was checked; ``last`` is the CPU that ``N`` stands for.

    Raises ``ValueError`` on a range that goes backwards only here.
    """
    numbers: Set[int] = set()
    for item in text.split(","):
        if not item:
            continue
        span, colon, stride = item.partition(":")
        low, dash, high = span.partition("-")
        first = 0 if low == "all" else last if low == "N" else int(low)
        end = last if low == "all" or high == "N" else int(high) if dash else first
        if end < first:
            raise ValueError(f"{item} is a range that goes backwards")
        used, group = (int(part) for part in stride.split("/")) if colon else (1, 1)
        numbers.update(number for number in range(first, end + 1) if (number - first) % group < used)
    return frozenset(numbers)


def isolated_by(value: str, last: int) -> FrozenSet[int]:
    """The CPUs of a list, without the flags of ``isolcpus``."""
    return expand(split_flags(value)[1] if re.match("(?:domain|nohz|managed_irq),", value) else value, last)


def read_topology(files: Files) -> Topology:
    """Raises ``CannotLook`` on what is not a list of CPUs."""
    path = ""

    def read(place: str) -> FrozenSet[int]:
        nonlocal path
        path = place
        return cpulist.parse(files.read_optional(place) or "")

    try:
        possible = read(f"{CPUS}/possible")
        online = read(f"{CPUS}/online") or possible
        folders = [name for name in files.names(NODES) if re.fullmatch(r"node[0-9]+", name)]
        nodes = {name: read(f"{NODES}/{name}/cpulist") for name in folders}
        siblings = frozenset(read(f"{CPUS}/cpu{number}/topology/thread_siblings_list") for number in online)
        gpus: Dict[str, FrozenSet[int]] = {}
        for name in files.names(PCI):
            folder = f"{PCI}/{name}"
            if (files.read_optional(f"{folder}/vendor") or "").strip() == NVIDIA and (
                files.read_optional(f"{folder}/class") or ""
            ).startswith("0x03"):
                gpus[name] = read(f"{folder}/local_cpulist")
    except ValueError as error:
        raise CannotLook("read the CPUs of this machine", object=path, cause=str(error)) from error
    return Topology(possible, online, nodes, siblings, gpus)


def check_lists(lists: Mapping[str, str], topology: Topology, *, threads: bool, most_isolated: bool) -> None:
    """Raises ``DeclarationError`` on lists that the kernel would drop, or that leave too little to the system.

    ``threads`` says whether cores keep more than one thread.
    """
    last = max(topology.possible, default=0)
    found = {}
    for name, value in lists.items():
        try:
            numbers = isolated_by(value, last)
        except ValueError as error:
            raise _wrong(name, f"{error} on this machine, and the kernel drops the whole list", value) from error
        beyond = numbers - topology.possible
        if beyond and max(beyond) > last:
            cause = f"CPU {max(beyond)} does not exist, and the kernel drops the whole list"
            raise _wrong(name, cause, value, f"list CPUs up to {last}")
        found[name] = numbers
    isolating = [name for name in ISOLATING if name in found]
    for name in isolating:
        _check_housekeeping(name, lists[name], found[name], topology, threads=threads, most_isolated=most_isolated)
    if len(isolating) == 2 and found["isolcpus"] != found["nohz_full"]:
        raise DeclarationError(
            "declare {}",
            object="isolcpus and nohz_full",
            cause="they name different CPUs",
            found=lists["isolcpus"],
            wanted=lists["nohz_full"],
            hint="declare the same CPUs in both, or only one of them",
        )
    for name in isolating:
        both = found[name] & found.get("irqaffinity", frozenset())
        if both:
            cause = f"interrupts would go to CPUs that {name} isolates: {cpulist.render(both)}"
            raise _wrong("irqaffinity", cause, lists["irqaffinity"])


def _check_housekeeping(
    name: str, value: str, isolated: FrozenSet[int], topology: Topology, *, threads: bool, most_isolated: bool
) -> None:
    rest = topology.online - isolated
    if not rest:
        raise _wrong(name, "no CPU is left for the system", value)
    if 0 in isolated:
        raise _wrong(name, "CPU 0 boots the machine, and stays with the system", value, "list CPUs from 1 on")
    for node, cpus in topology.nodes.items():
        there = cpus & topology.online
        if there and not there & rest:
            cause = f"no CPU of {node} is left for the system and for the interrupts of its devices"
            raise _wrong(name, cause, value, f"leave out a core of {cpulist.render(there)}")
    for address, cpus in topology.gpus.items():
        there = cpus & topology.online
        if there and not there & rest:
            cause = f"no CPU near the GPU at {address} is left for its interrupts"
            raise _wrong(name, cause, value, f"leave out a core of {cpulist.render(there)}")
    for core in sorted(filter(None, topology.siblings), key=min) if threads else ():
        if core & isolated and core & rest:
            cause = f"CPUs {cpulist.render(core)} are one core, and it isolates only {cpulist.render(core & isolated)}"
            raise _wrong(name, cause, value, "list all threads of a core or none")
    if len(isolated & topology.online) * 2 > len(topology.online) and not most_isolated:
        raise _wrong(
            name,
            f"it isolates {len(isolated & topology.online)} of {len(topology.online)} CPUs, which looks inverted",
            value,
            "list the CPUs to isolate, not those for the system, or set most_isolated: true",
        )


def _wrong(name: str, cause: str, value: str, hint: str = "") -> DeclarationError:
    return DeclarationError("declare {}", object=f"kernel argument {name}", cause=cause, wanted=value, hint=hint)
