# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's command line as the kernel reads it: words, names, and what counts where a variable is set twice.

Rules from lib/cmdline.c, kernel/params.c, kernel/sched/isolation.c, init/main.c, mm/slab_common.c, drivers/pci/pci.c,
drivers/iommu/iommu.c, drivers/iommu/amd/init.c, arch/x86/kernel/pci-dma.c and
Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

from ..._core.setting import Scalar

PRESENT = "present"
"""The value of an argument that is there without one."""
# A second, other list is refused by the kernel and never merged.
FIRST_WINS = frozenset(("isolcpus", "nohz_full"))
_LISTS_OF_NAMES = frozenset(("modprobe.blacklist", "rd.driver.blacklist", "cgroup_disable", "cgroup_no_v1"))
# Every occurrence is read, item by item; of two that set the same variable the later one counts.
ADDS_UP = frozenset(("iommu", "intel_iommu", "amd_iommu", "pci")) | _LISTS_OF_NAMES
CPU_LISTS = frozenset(("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"))

# Variables of the kernel that arguments of several names set.
DOMAIN, LOG_LEVEL, SLAB_MERGE = "default IOMMU domain", "console log level", "merging of slabs"
_CHOICES: Mapping[str, Tuple[Tuple[str, ...], ...]] = {
    "pci": (("pcie_bus_tune_off", "pcie_bus_safe", "pcie_bus_perf", "pcie_bus_peer2peer"),),
    "amd_iommu": (("pgtbl_v1", "pgtbl_v2"), ("nohugepages", "v2_pgsizes_only")),
}
_IOMMU: Mapping[str, Mapping[str, str]] = {
    "pt": {DOMAIN: "1"},
    "nopt": {DOMAIN: "0"},
    "force": {"force": "1"},
    "noforce": {"force": "0", "merge": "0"},
    "merge": {"force": "1", "merge": "1"},
    "biomerge": {"force": "1", "merge": "1"},
    "nomerge": {"merge": "0"},
}
# What ``quiet`` and ``debug`` stand for depends on how the kernel was built.
_SHARED: Mapping[str, Mapping[str, str]] = {
    "quiet": {LOG_LEVEL: "quiet"},
    "debug": {LOG_LEVEL: "debug"},
    "slab_merge": {SLAB_MERGE: "1"},
    "slub_merge": {SLAB_MERGE: "1"},
    "slab_nomerge": {SLAB_MERGE: "0"},
    "slub_nomerge": {SLAB_MERGE: "0"},
}
# They are read by systemd, dracut and Plymouth too, so that they count wherever they are.
ONLY_PRESENCE = frozenset(("quiet", "debug"))
# As kstrtobool() reads it.
_TRUE = re.compile(r"[yYtT1]|[oO][nN]")


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
    return normal(word.lstrip('"').partition("=")[0])


def occurrences(line: str, name: str) -> Tuple[str, ...]:
    """The words of a line that have this name."""
    return tuple(word for word in words(line) if name_of(word) == name)


def value_of(line: str, name: str, wanted: Scalar = None) -> Scalar:
    """The effective value of an argument: None if it is absent, ``PRESENT`` if it has no value.

    Of an argument that is read item by item, it is ``wanted`` if all its items are in effect, whatever the other items
    are. If an argument of another name overrides ``wanted``, it is the whole of that argument, such as ``loglevel=7``.
    """
    if wanted is not None:
        other = overruled_by(line, name, wanted)
        if other and name_of(other) != name:
            return other
    found = occurrences(line, name)
    if not found:
        return None
    if name in ADDS_UP:
        counting = _counting(found, name)
        asked = _items(str(wanted)) if wanted is not None else []
        return wanted if asked and set(asked) <= set(counting) else ",".join(counting) or PRESENT
    _name, equals, value = found[0 if name in FIRST_WINS else -1].partition("=")
    return value if equals else PRESENT


def decider_of(line: str, name: str, wanted: Scalar) -> str:
    """The name of the argument on a line that keeps ``wanted`` from taking effect, or an empty text."""
    if wanted is not None:
        other = overruled_by(line, name, wanted)
        if other or name in ADDS_UP:
            return name_of(other)
    return name if value_of(line, name, wanted) not in (None, wanted) else ""


def overruled_by(line: str, name: str, wanted: Scalar) -> str:
    """The last argument that gives a variable of ``wanted`` another value, or an empty text."""
    asked = judged_by(name, wanted)
    last: Dict[str, Tuple[str, str]] = {}
    for word in words(line) if asked else ():
        _name, equals, value = word.partition("=")
        for variable, one in _variables(name_of(word), value if equals else PRESENT).items():
            if variable in asked:
                last[variable] = (one, word)
    return next((word for variable, (one, word) in last.items() if one != asked[variable]), "")


def _counting(found: Tuple[str, ...], name: str) -> List[str]:
    """The items of all these words of which no variable is set again."""
    items = list(dict.fromkeys(item for word in reversed(found) for item in reversed(_items(word.partition("=")[2]))))
    items.reverse()
    after: Dict[str, str] = {}
    for item in items:
        after.update(_of_item(name, item))
    return [item for item in items if all(after[key] == value for key, value in _of_item(name, item).items())]


def _items(value: str) -> List[str]:
    return [item for item in value.split(",") if item]


def replaced_items(name: str, value: str) -> List[str]:
    """The items of a value that a later item of the same value overrides."""
    if name not in ADDS_UP:
        return []
    counting = _counting((f"{name}={value}",), name)
    return [item for item in _items(value) if item not in counting]


def judged_by(name: str, wanted: Scalar) -> Dict[str, str]:
    """The variables that must have these values for an argument to be in effect."""
    return {} if name in ONLY_PRESENCE else _variables(name, wanted)


def _variables(name: str, value: Scalar) -> Dict[str, str]:
    """The variables of the kernel that an argument sets, by name, where several arguments can set the same."""
    if name in ADDS_UP:
        found: Dict[str, str] = {}
        for item in _items(str(value)):
            found.update(_of_item(name, item))
        return found
    if name == "loglevel":
        return {LOG_LEVEL: str(value)}
    if name == "iommu.passthrough":
        return {DOMAIN: "1" if _TRUE.match(str(value)) else "0"}
    return dict(_SHARED.get(name, {}))


def _of_item(name: str, item: str) -> Dict[str, str]:
    """The values that an item sets, by variable; most items have a variable of their own."""
    if name in _LISTS_OF_NAMES:
        return {f"{name}: {item}": ""}
    if name == "iommu" and item in _IOMMU:
        return dict(_IOMMU[item])
    key, equals, value = item.partition("=")
    if name == "pci" and (equals or item == "realloc"):
        keys = ("hpmmiosize", "hpmmioprefsize") if key == "hpmemsize" else (key,)
        return dict.fromkeys((f"{name}: {key}" for key in keys), value or "on")
    for choice in _CHOICES.get(name, ()):
        if item in choice:
            return {f"{name}: {choice[0]}": item}
    for start, end, said in (("no", "", "no"), ("", "off", "off"), ("", "on", "on")):
        if item.startswith(start) and item.endswith(end):
            return {f"{name}: {item[len(start) : len(item) - len(end)]}": said}
    return {f"{name}: {item}": ""}


def word_of(name: str, value: Scalar) -> str:
    """The argument as it is written: in quotes where a boot loader would take a part of it for a command."""
    word = name if value == PRESENT else f"{name}={value}"
    return f'"{word}"' if ";" in word else word
