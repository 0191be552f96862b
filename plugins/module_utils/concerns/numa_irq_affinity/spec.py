# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of interrupts, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import AbstractSet, Any, Mapping, Optional, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import field, frozen, replace
from ..._linux import cpulist
from ..._nvidia.gpus import pci_pattern
from .model import ONE_PER_IRQ, Cpus

NAME = "numa_irq_affinity"
INTERRUPTS = "interrupts"
CLASS, DRIVER, INTERFACE, ADDRESS = "class", "driver", "interface", "pci_address"
MATCH_KEYS = (CLASS, DRIVER, INTERFACE, ADDRESS)
CLASSES = ("gpu", "infiniband", "network", "nvme", "storage")
LOCAL, GPU = "local", "gpu"
COOPERATE, DISABLE, IGNORE = "cooperate", "disable", "ignore"
PLACES = ("cpus", "numa_node", "near")

# Five digits: more CPUs than any kernel is built for, and a bound for what a range expands to.
_RANGE = r"\d{1,5}(?:-\d{1,5})?"
CPU_LIST = regex(rf"{_RANGE}(?:,{_RANGE})*", re.ASCII)


@frozen
class InterruptEntry:
    """One entry of ``interrupts``: what it matches, and where its interrupts belong.

    ``cpus`` are those that it names, and ``isolated`` says that isolated ones are meant. Without them ``numa_node`` or
    ``near_gpu`` counts, and without all three the CPUs next to the device.
    """

    entry: match.MatchEntry
    cpus: Optional[Cpus] = None
    isolated: bool = False
    numa_node: Optional[int] = None
    near_gpu: bool = False
    spread: str = ONE_PER_IRQ
    rps: Optional[bool] = None
    xps: Optional[bool] = None

    @property
    def others(self) -> bool:
        """Whether it may win a device of no class: only one that names a driver, an interface or an address does."""
        return any(key in self.entry.match for key in (DRIVER, INTERFACE, ADDRESS))


@frozen
class IrqAffinityDeclaration:
    """What is declared of interrupts. ``reserved`` are CPUs that none is sent to, ``balancing`` is about irqbalance.

    ``changed`` is what was ever changed, for ``state: absent``: kinds of settings by PCI address.
    """

    entries: Tuple[InterruptEntry, ...] = ()
    reserved: Cpus = frozenset()
    balancing: str = COOPERATE
    changed: Mapping[str, AbstractSet[str]] = field(default_factory=dict)


def parse(params: Mapping[str, Any]) -> IrqAffinityDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    given = params[INTERRUPTS]
    return IrqAffinityDeclaration(
        entries=tuple(_entry(item, entry) for item, entry in zip(given, _matches(given))),
        reserved=_reserved(params["reserved_cpus"]),
        balancing=params["irqbalance"],
    )


def _matches(entries: Sequence[Mapping[str, Any]]) -> Tuple[match.MatchEntry, ...]:
    """The entries with PCI addresses as sysfs writes them."""
    parsed = []
    for entry in match.parse(INTERRUPTS, entries, MATCH_KEYS):
        for text in entry.match.get(CLASS, ()):
            if text not in CLASSES and not any(wildcard in text for wildcard in match.WILDCARDS):
                raise DeclarationError(
                    "use {}",
                    object=entry.where,
                    cause=f"there is no class {text}",
                    hint=f"the classes are {', '.join(CLASSES)}",
                )
        if ADDRESS in entry.match:
            addresses = tuple(pci_pattern(text) for text in entry.match[ADDRESS])
            entry = replace(entry, match={**entry.match, ADDRESS: addresses})
        parsed.append(entry)
    return tuple(parsed)


def _entry(given: Mapping[str, Any], entry: match.MatchEntry) -> InterruptEntry:
    places = [place for place in PLACES if given.get(place) is not None]
    if len(places) > 1:
        raise _wrong(
            entry,
            f"{' and '.join(places)} are mutually exclusive",
            "keep one of them; without any, interrupts go to the CPUs next to their device",
        )
    cpus, node = given.get("cpus"), given.get("numa_node")
    if cpus is not None and cpus.strip() != LOCAL and not _is_list(cpus):
        raise _wrong(entry, f"cpus is {cpus!r}, and must be {LOCAL} or a list of CPUs", "write it as 0-7,16")
    if node is not None and node < 0:
        raise _wrong(entry, f"numa_node is {node}, and nodes count from 0")
    if given.get("isolated") and (cpus is None or cpus.strip() == LOCAL):
        raise _wrong(entry, "isolated is about CPUs that cpus names, and it names none", "list them in cpus")
    try:
        named = None if cpus is None or cpus.strip() == LOCAL else _list(cpus)
    except ValueError as error:
        raise _wrong(entry, f"in cpus {error}") from error
    return InterruptEntry(
        entry=entry,
        cpus=named,
        isolated=bool(given.get("isolated")),
        numa_node=node,
        near_gpu=given.get("near") == GPU,
        spread=given.get("spread") or ONE_PER_IRQ,
        rps=given.get("rps"),
        xps=given.get("xps"),
    )


def _reserved(text: str) -> Cpus:
    cause = f"{text!r} is not a list of CPUs"
    if not text.strip():
        return frozenset()
    try:
        if _is_list(text):
            return _list(text)
    except ValueError as error:
        cause = str(error)
    raise DeclarationError("use {}", object="reserved_cpus", cause=cause, hint="write it as 0-7,16")


def _is_list(text: str) -> bool:
    return CPU_LIST.fullmatch(_tight(text)) is not None


def _list(text: str) -> Cpus:
    return cpulist.parse(_tight(text))


def _tight(text: str) -> str:
    """Without blanks, which a list in YAML may have behind its commas."""
    return re.sub(r"\s*,\s*", ",", text.strip())


def _wrong(entry: match.MatchEntry, cause: str, hint: str = "") -> DeclarationError:
    return DeclarationError("use {}", object=str(entry), cause=cause, hint=hint)
