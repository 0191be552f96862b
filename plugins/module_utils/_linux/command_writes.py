# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings that programs write into files of the kernel, by their arguments."""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from .sysctl_d import normal

SWAP = "swap"
"""Stands for a target where a script brings swap."""
RELOAD = "sysctl file"
"""Stands for a target where a script has sysctl(8) read files: the value is the file, empty for ``--system``."""
THP, HUGEPAGES = "/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/hugepages"
_OF_HUGEADM = {
    "--thp-khugepaged-pages": f"{THP}/khugepaged/pages_to_scan",
    "--thp-khugepaged-scan-sleep": f"{THP}/khugepaged/scan_sleep_millisecs",
    "--thp-khugepaged-alloc-sleep": f"{THP}/khugepaged/alloc_sleep_millisecs",
    "--set-shm-group": "/proc/sys/vm/hugetlb_shm_group",
    "--set-recommended-min_free_kbytes": "/proc/sys/vm/min_free_kbytes",
    "--set-recommended-shmmax": "/proc/sys/kernel/shmmax",
}
CPUFREQ = "/sys/devices/system/cpu/cpu*/cpufreq"

_Said = Iterator[Tuple[str, Optional[str]]]
# With these swapon(8) changes nothing.
_SHOWN = frozenset(("-s", "--summary", "--show", "-h", "--help", "-V", "--version"))


def _sysctl(arguments: Sequence[str]) -> _Said:
    """sysctl(8)."""
    loads = False
    for word in arguments:
        if word == "--system":
            yield RELOAD, ""
        elif word.startswith("--load") or re.fullmatch(r"-[a-zA-Z]*[pf][a-zA-Z]*", word):
            loads = True
            inline = word.partition("=")[2]
            if inline:
                yield RELOAD, inline
        elif word[:1] != "-" and "=" in word:
            key, _equals, value = word.partition("=")
            yield f"/proc/sys/{normal(key.strip())}", value.strip()
        elif word[:1] != "-" and loads:
            yield RELOAD, word
    if loads and not any(word[:1] != "-" or "=" in word for word in arguments):
        yield RELOAD, "/etc/sysctl.conf"


def _cpupower(arguments: Sequence[str]) -> _Said:
    """cpupower-frequency-set(1) and cpupower-set(1); frequencies have units of their own."""
    options = _options(arguments)
    if "frequency-set" in arguments:
        governors = (options[name] for name in ("-g", "--governor") if name in options)
        yield from ((f"{CPUFREQ}/scaling_governor", governor) for governor in governors)
        for names, file in ((("-d", "--min"), "scaling_min_freq"), (("-u", "--max"), "scaling_max_freq")):
            yield from ((f"{CPUFREQ}/{file}", None) for name in names if name in options)
    elif "set" in arguments:
        biases = (options[name] for name in ("-b", "--perf-bias") if name in options)
        yield from (("/sys/devices/system/cpu/cpu*/power/energy_perf_bias", bias) for bias in biases)


def _cpufreq_set(arguments: Sequence[str]) -> _Said:
    yield from _cpupower(["frequency-set", *arguments])


def _options(arguments: Sequence[str]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, equals, value = word.partition("=")
        if equals and word.startswith("--"):
            found[name] = value
        elif word[:2] != "--" and word[:1] == "-" and len(word) > 2:
            found[word[:2]] = word[2:]
        elif word[:1] == "-":
            found[word] = following
    return found


def _blockdev(arguments: Sequence[str]) -> _Said:
    """blockdev(8): ``--setra`` and ``--setfra`` count sectors of 512 bytes."""
    sectors = ""
    words = iter(arguments)
    for word in words:
        if word in ("--setra", "--setfra"):
            sectors = next(words, "")
        elif word.startswith("/dev/") and sectors:
            value = str(int(sectors) // 2) if sectors.isdecimal() else None
            yield f"/sys/class/block/{word[len('/dev/') :]}/queue/read_ahead_kb", value


def _swapon(arguments: Sequence[str]) -> _Said:
    """swapon(8). Without a device or file it shows what there is, or with ``--all`` takes the lines of fstab, as a boot
    does.
    """
    words = iter(arguments)
    specs = []
    for word in words:
        if word in ("-L", "-U"):
            specs.append(next(words, ""))
        elif word in ("-p", "--priority", "-o", "--options"):
            next(words, "")
        elif word[:1] != "-":
            specs.append(word)
    if any(specs) and not _SHOWN.intersection(arguments):
        yield SWAP, " ".join(arguments)


def _hugeadm(arguments: Sequence[str]) -> _Said:
    """hugeadm(8) of libhugetlbfs: pool_adjust and value_adjust of its hugeadm.c (2.24). Its option -d only tries."""
    options = _options(arguments)
    if "-d" in options or "--dry-run" in options:
        return
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, equals, value = word.partition("=")
        value = value if equals else following
        if name in ("--pool-pages-min", "--pool-pages-max"):
            size, _colon, count = value.partition(":")
            size_kb = _kilobytes(size)
            file = "nr_hugepages" if name.endswith("min") else "nr_overcommit_hugepages"
            folder = "/proc/sys/vm" if size == "DEFAULT" else f"{HUGEPAGES}/hugepages-{size_kb or '*'}kB"
            # That of the most is what is left of it beside the least, which is not known from here.
            yield f"{folder}/{file}", _pages(count, size_kb) if file == "nr_hugepages" else None
        elif name.startswith("--thp-") and name[6:] in ("always", "madvise", "never"):
            yield f"{THP}/enabled", name[6:]
        elif name in _OF_HUGEADM:
            yield _OF_HUGEADM[name], value if value.isdecimal() and "recommended" not in name else None


def _kilobytes(size: str) -> Optional[int]:
    match = re.fullmatch(r"([1-9][0-9]*)([KMGkmg]?)", size)
    return int(match[1]) * 1024 ** " kmg".index(match[2].lower() or " ") // 1024 if match else None


def _pages(count: str, size_kb: Optional[int]) -> Optional[str]:
    """The number of pages; None for a change of what there is, and for memory where the size of a page is not known."""
    if count.isdecimal() and not count.startswith("0"):
        return count
    memory_kb = _kilobytes(count)
    return "0" if count == "0" else str(memory_kb // size_kb) if memory_kb and size_kb else None


PROGRAMS: Mapping[str, Callable[[Sequence[str]], _Said]] = {
    "sysctl": _sysctl,
    "cpupower": _cpupower,
    "cpufreq-set": _cpufreq_set,
    "blockdev": _blockdev,
    "swapon": _swapon,
    "hugeadm": _hugeadm,
}
"""A reader by the name of its program: from arguments to targets, each with its value, None where it is not known."""
