# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of slices: what they are called, what we write into them, and what systemd makes of them.

Slices cannot be templates, and a dash in the name is a place in the tree: ``gpu-0.slice`` is below ``gpu.slice``
(systemd.slice(5)). A line that systemd cannot read does not keep the slice from being loaded, without a limit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._kinds.own_files import header_of
from ..._linux import cpulist, systemd, systemd_numbers
from ..._linux.systemd_numbers import INFINITY, MAX
from .spec import HIGHEST_WEIGHT, LIMITS, NAME
from .state import CPUS, MEMORY, PARENT, SWAP, WEIGHT

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .state import WantedSlice

CGROUP = "/sys/fs/cgroup"
SLICE = regex(r"gpu-(?:node)?[0-9]+\.slice", re.ASCII)
DIRECTIVES = {CPUS: "AllowedCPUs", MEMORY: "AllowedMemoryNodes", SWAP: "MemorySwapMax", WEIGHT: "IOWeight"}
ABOUT = regex(r"^Description=(.+)$", re.MULTILINE)


def of_gpu(index: int) -> str:
    return f"gpu-{index}.slice"


def of_node(number: int) -> str:
    return f"gpu-node{number}.slice"


def path_of(name: str) -> str:
    return f"{systemd.ETC}/{name}"


def cgroup_of(name: str) -> str:
    return f"{CGROUP}/{PARENT}" if name == PARENT else f"{CGROUP}/{PARENT}/{name}"


def limit_of(limit: str, device: str) -> str:
    """The name of the setting that is a limit of I/O."""
    return f"{LIMITS[limit][0]} of {device}"


def is_ours(text: Optional[str]) -> bool:
    return text is not None and text.startswith(header_of(NAME))


def about_gpu(index: int, uuid: str) -> str:
    """What the slice of a GPU is for: whoever starts something in it makes sure of that."""
    return f"GPU {index} ({uuid})"


def about(text: str) -> str:
    found = ABOUT.search(text)
    return found[1] if found else ""


def render(wanted: WantedSlice) -> str:
    lines = []
    for setting, value in wanted.values.items():
        limit, _of, device = setting.partition(" of ")
        directive = DIRECTIVES.get(setting) or next(key for word, key in LIMITS.values() if word == limit)
        lines.append(f"{directive}={device} {value}\n" if device else f"{directive}={value}\n")
    return "".join((header_of(NAME), f"[Unit]\nDescription={wanted.about}\n\n[Slice]\n", *lines))


def values_of(texts: Iterable[str]) -> Dict[str, str]:
    """What systemd makes of the texts of a unit and its drop-ins, by setting; what it ignores is nothing."""
    merged: Dict[str, List[str]] = {}
    for text in texts:
        for key, value in systemd.assignments(text):
            if key.startswith("Slice."):
                values = merged.setdefault(key[len("Slice.") :], [])
                values.append(value) if value else values.clear()
    return of_properties(merged)


def of_properties(merged: Mapping[str, List[str]]) -> Dict[str, str]:
    """The same of the values of each directive, in the order of the lines. ``systemctl show`` has them too."""
    found = {}
    for setting in (CPUS, MEMORY):
        numbers: FrozenSet[int] = frozenset().union(*map(_numbers, merged.get(DIRECTIVES[setting], ())))
        if numbers:
            found[setting] = cpulist.render(numbers)
    for setting, read in ((SWAP, _size), (WEIGHT, _weight)):
        values = [value for value in map(read, merged.get(DIRECTIVES[setting], ())) if value]
        if values:
            found[setting] = values[-1]
    for limit, (_word, directive) in LIMITS.items():
        for line in merged.get(directive, ()):
            device, _blank, rate = line.partition(" ")
            number = _rate(rate.strip())
            if number == INFINITY:
                found.pop(limit_of(limit, device), None)
            elif number:
                found[limit_of(limit, device)] = number
    return found


def of_cgroup(files: Files, name: str, numbers: Mapping[str, str]) -> Dict[str, str]:
    """What the kernel has of a slice that is loaded. ``numbers`` are those of the devices (``259:0``) by path."""
    folder = cgroup_of(name)

    def read(file: str) -> str:
        return (files.read_optional(f"{folder}/{file}") or "").strip()

    swap = read("memory.swap.max")
    found = {
        CPUS: read("cpuset.cpus.effective"),
        MEMORY: read("cpuset.mems.effective"),
        SWAP: "" if swap == "max" else swap,
        WEIGHT: next((line[8:] for line in read("io.weight").splitlines() if line.startswith("default ")), ""),
    }
    limits = dict(line.split(" ", 1) for line in read("io.max").splitlines() if " " in line)
    for device, number in numbers.items():
        rates = dict(word.partition("=")[::2] for word in limits.get(number, "").split())
        for limit, key in (("read_bandwidth", "rbps"), ("write_bandwidth", "wbps")):
            found[limit_of(limit, device)] = rates.get(key, "max")
        for limit, key in (("read_iops", "riops"), ("write_iops", "wiops")):
            found[limit_of(limit, device)] = rates.get(key, "max")
    return {setting: value for setting, value in found.items() if value not in ("", "max")}


def devices_in(values: Iterable[str]) -> Tuple[str, ...]:
    """The devices that settings of these names are about."""
    return tuple(dict.fromkeys(device for device in (name.partition(" of ")[2] for name in values) if device))


def _numbers(text: str) -> FrozenSet[int]:
    try:
        return cpulist.parse(",".join(text.replace(",", " ").split()))
    except ValueError:
        return frozenset()


def _size(text: str, base: int = systemd_numbers.BINARY) -> str:
    value = MAX if text == INFINITY else systemd_numbers.size(text, base)
    return "" if value is None else INFINITY if value == MAX else str(value)


def _weight(text: str) -> str:
    value = systemd_numbers.number(text)
    return str(value) if value is not None and 1 <= value <= HIGHEST_WEIGHT else ""


def _rate(text: str) -> str:
    return _size(text, systemd_numbers.DECIMAL)
