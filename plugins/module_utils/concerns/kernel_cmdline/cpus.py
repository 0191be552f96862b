# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of CPUs on the kernel's command line, and whether a machine can live with them.

Rules from lib/bitmap.c, kernel/sched/isolation.c and kernel/rcu/tree_nocb.h.
"""

from __future__ import annotations

import re
from typing import FrozenSet, Mapping

from ..._core.errors import DeclarationError
from ..._linux import cpulist
from ..._linux.cpu_topology import CpuTopology, isolated_by, split_flags

FLAGS = ("domain", "nohz", "managed_irq")
ISOLATING = ("isolcpus", "nohz_full")
_ITEM = r"(?:(?:[0-9]{1,5}|N)(?:-(?:[0-9]{1,5}|N))?|all)(?::[0-9]{1,5}/[0-9]{1,5})?"


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


def check_lists(lists: Mapping[str, str], topology: CpuTopology, *, threads: bool, most_isolated: bool) -> None:
    """Raises ``DeclarationError`` on lists that the kernel would drop, or that leave too little to the system.

    ``threads`` says whether cores keep more than one thread.
    """
    last = topology.last
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
    name: str, value: str, isolated: FrozenSet[int], topology: CpuTopology, *, threads: bool, most_isolated: bool
) -> None:
    rest = topology.online - isolated
    if not rest:
        raise _wrong(name, "no CPU is left for the system", value)
    if 0 in isolated:
        raise _wrong(name, "CPU 0 boots the machine, and stays with the system", value, "list CPUs from 1 on")
    bare = topology.node_without(rest)
    if bare is not None:
        cause = f"no CPU of {bare[0]} is left for the system and for the interrupts of its devices"
        raise _wrong(name, cause, value, f"leave out a core of {cpulist.render(bare[1])}")
    bare = topology.gpu_without(rest)
    if bare is not None:
        cause = f"no CPU near the GPU at {bare[0]} is left for its interrupts"
        raise _wrong(name, cause, value, f"leave out a core of {cpulist.render(bare[1])}")
    core = topology.split_core(isolated) if threads else frozenset()
    if core:
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
