# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why this machine cannot have what is declared of interrupts, as errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Tuple

from ..._core.errors import DeclarationError, OwnedByAnother
from ..._linux import cpulist
from .model import Cpus, Processors

if TYPE_CHECKING:
    from ..._core.protocols import Files

NET = "/sys/class/net"


def virtual_interface(files: Files, where: str, name: str) -> DeclarationError:
    """For an interface that is there and that no PCI device has."""
    cause, lower = _what_it_is(files, name)
    hint = f"match {'its ports' if len(lower) > 1 else 'what it runs on'}: {', '.join(lower)}" if lower else ""
    return DeclarationError(
        "use {}", object=where, cause=f"{name} is {cause}, and has no interrupts of its own", hint=hint
    )


def no_gpu(where: str, name: str) -> DeclarationError:
    """For ``near: gpu``, of the device of that name."""
    return DeclarationError(
        "place interrupts near a GPU",
        object=where,
        cause=f"this machine has no NVIDIA GPU, but the entry matches {name}",
        hint="set cpus: local for this machine",
    )


def reserved_cpus(reserved: Cpus, processors: Processors) -> DeclarationError:
    """For reserved CPUs that do not exist, or are all that there are."""
    unknown = reserved - processors.possible
    cause = f"it leaves no online CPU ({cpulist.render(processors.online)})"
    if unknown:
        cause = _no_such(unknown, processors)
    return DeclarationError("use {}", object="reserved_cpus", cause=cause)


def named_cpus(where: str, cpus: Cpus, processors: Processors) -> DeclarationError:
    """For CPUs that do not exist, are offline or are all reserved."""
    unknown, offline = cpus - processors.possible, cpus - processors.online
    if unknown:
        return _impossible(where, _no_such(unknown, processors))
    if offline:
        them = "it" if len(offline) == 1 else "them"
        return _impossible(where, f"{_are(offline)} offline", f"bring {them} online, or leave {them} out")
    hint = "name others in cpus, or remove some of them from reserved_cpus"
    return _impossible(where, f"{_are(cpus)} reserved", hint)


def numa_node(where: str, number: int, processors: Processors) -> DeclarationError:
    """For a node that there is not, or that has no CPUs."""
    numbers = [node for node, _cpus in processors.nodes]
    if not numbers:
        return _impossible(where, f"there is no NUMA node {number}; this kernel has no NUMA nodes")
    if number not in numbers:
        return _impossible(where, f"there is no NUMA node {number}; there is {cpulist.render(numbers)}")
    others = cpulist.render(node for node, cpus in processors.nodes if cpus)
    return _impossible(where, f"NUMA node {number} has no online CPUs", f"those with CPUs: {others}")


def nothing_left(where: str, whose: str, cpus: Cpus, reserved: Cpus, isolated: Cpus) -> DeclarationError:
    """For CPUs that are all reserved or isolated; ``whose`` says of what they are."""
    causes = [word for word, them in (("reserved", reserved), ("isolated", isolated)) if cpus & them]
    return _impossible(
        where,
        f"all CPUs {whose} ({cpulist.render(cpus)}) are {' or '.join(causes)}",
        "leave some of them to interrupts, or name CPUs in cpus",
    )


def siblings_left(where: str, whose: str, left: Cpus) -> DeclarationError:
    """For CPUs of which only siblings of reserved ones are left."""
    are = "is left, which is a sibling of a reserved core"
    if len(left) > 1:
        are = "are left, which are siblings of reserved cores"
    return _impossible(
        where,
        f"of the CPUs {whose} only {cpulist.render(left)} {are}",
        "leave whole cores out of reserved_cpus, or name CPUs in cpus",
    )


def policy_script(unit: str, script: Optional[str]) -> OwnedByAnother:
    """For an irqbalance that asks this script of others and can ask no other, None where its command is not clear."""
    hint = "set irqbalance: disable or irqbalance: ignore"
    cause = "it has not exactly one ExecStart"
    if script is not None:
        cause = "its arguments already name a policy script, and it takes only one, or a folder"
        hint = f"put that script into a folder and name the folder, or {hint}"
    return OwnedByAnother("exclude devices from irqbalance", object=unit, cause=cause, found=script, hint=hint)


def _what_it_is(files: Files, name: str) -> Tuple[str, Tuple[str, ...]]:
    """What an interface is that is no PCI device, and the interfaces at the bottom of it."""
    folder = f"{NET}/{name}"
    lower = _ports(files, name)
    kind = (files.read_optional(f"{folder}/uevent") or "").partition("DEVTYPE=")[2].partition("\n")[0]
    if files.exists(f"{folder}/bonding"):
        return "a bond", lower
    if files.exists(f"{folder}/bridge"):
        return "a bridge", lower
    if kind == "vlan":
        return "a VLAN", lower
    if files.exists(f"{folder}/device"):
        return "no PCI device", lower
    return "a team or another virtual interface", lower


def _ports(files: Files, name: str, above: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    """The interfaces that it is made of, or those are: the ports of the bond below a VLAN."""
    prefix = "lower_"
    found: List[str] = []
    for lower in (entry[len(prefix) :] for entry in files.names(f"{NET}/{name}") if entry.startswith(prefix)):
        if lower not in above:
            found += _ports(files, lower, (*above, name)) or [lower]
    return tuple(dict.fromkeys(found))


def _no_such(cpus: Cpus, processors: Processors) -> str:
    return f"there is no CPU {cpulist.render(cpus)}; this machine has {cpulist.render(processors.possible)}"


def _are(cpus: Cpus) -> str:
    return f"CPU {cpulist.render(cpus)} is" if len(cpus) == 1 else f"CPUs {cpulist.render(cpus)} are"


def _impossible(where: str, cause: str, hint: str = "") -> DeclarationError:
    return DeclarationError("place interrupts", object=where, cause=cause, hint=hint)
