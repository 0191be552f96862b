# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's command line as the kernel reads it: words, names, and what counts where a name is there twice.

Rules from lib/cmdline.c, kernel/params.c, kernel/sched/isolation.c and Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Tuple

from ..._core.setting import Scalar

PRESENT = "present"
"""The value of an argument that is there without one."""
# A second, other list is refused by the kernel and never merged.
FIRST_WINS = frozenset(("isolcpus", "nohz_full"))
# Every occurrence is read, item by item; of two that contradict each other the later one counts.
ADDS_UP = frozenset(("iommu", "intel_iommu", "amd_iommu", "pci", "modprobe.blacklist", "rd.driver.blacklist"))
CPU_LISTS = frozenset(("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"))


def normal(name: str) -> str:
    """A name as the kernel compares it: ``-`` and ``_`` are equal."""
    return name.replace("-", "_")


def words(line: str) -> Tuple[str, ...]:
    """The arguments of a line: blanks divide them outside of double quotes, and what follows ``--`` is for init."""
    found: List[str] = re.findall(r'(?:[^\s"]|"[^"]*"?)+', line)
    if "--" in found:
        found = found[: found.index("--")]
    return tuple(word.replace('"', "") for word in found)


def name_of(word: str) -> str:
    return normal(word.partition("=")[0])


def occurrences(line: str, name: str) -> Tuple[str, ...]:
    """The words of a line that have this name."""
    return tuple(word for word in words(line) if name_of(word) == name)


def value_of(line: str, name: str, wanted: Scalar = None) -> Scalar:
    """What counts of an argument: None where it is not there, ``PRESENT`` where it has no value.

    Of one that adds up it is ``wanted`` where that is among the items, whatever else is.
    """
    found = occurrences(line, name)
    if not found:
        return None
    if name in ADDS_UP:
        counting = _items(word.partition("=")[2] for word in found)
        asked = _items([str(wanted)]) if wanted is not None else {}
        return wanted if asked and asked.keys() <= counting.keys() else ",".join(counting) or PRESENT
    _name, equals, value = found[0 if name in FIRST_WINS else -1].partition("=")
    return value if equals else PRESENT


def _items(values: Iterable[str]) -> Dict[str, None]:
    """The items of lists, of two that contradict each other the later one."""
    counting: Dict[str, None] = {}
    for value in values:
        for item in value.split(","):
            for other in _opposites(item):
                counting.pop(other, None)
            if item:
                counting[item] = None
    return counting


def _opposites(item: str) -> Tuple[str, ...]:
    changed = [f"no{item}", item[2:] if item.startswith("no") else ""]
    changed += [item[:-2] + "off" if item.endswith("on") else "", item[:-3] + "on" if item.endswith("off") else ""]
    return tuple(word for word in changed if word)


def word_of(name: str, value: Scalar) -> str:
    """The argument as it is written."""
    return name if value == PRESENT else f"{name}={value}"
