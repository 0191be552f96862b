# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of a block queue, and what is wrong whatever the machine.

The settings are files of /sys/block/<disk>/queue: Documentation/ABI/stable/sysfs-block and
Documentation/block/queue-sysfs.rst of the kernel.
"""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import frozen

NAME = "nvme_scheduler"
MATCH_KEYS = ("name", "serial", "model", "pci_address")
SCHEDULER = "scheduler"
NR_REQUESTS = "nr_requests"
WBT = "wbt_lat_usec"
READ_AHEAD = "read_ahead_kb"
# What one list takes in a line of ours, of which no rule has more than four: udev reads 16 KiB. And lines of one entry.
LIST_BYTES = 2000
ENTRY_LINES = 1000
# The upper bound of nr_requests with a scheduler: MAX_SCHED_RQ of block/blk-mq.h. Without one it is the hardware's.
MAX_SCHED_RQ = 2048


@frozen
class QueueTunable:
    """A setting: its file in ``queue/``, its range, and what its values must be a multiple of, with the reason."""

    file: str
    low: int = 0
    high: int = 0
    multiple: int = 1
    reason: str = ""
    bio: bool = False
    """Whether a device without a request queue of its own (md, most dm, a multipath head) has it."""


# In the order of writing: a new scheduler resets nr_requests and, from and to bfq, wbt_lat_usec.
TUNABLES: Mapping[str, QueueTunable] = {
    SCHEDULER: QueueTunable("scheduler"),
    # The kernel raises less than 4 to 4 without a word (BLKDEV_MIN_RQ); 10240 is BLK_MQ_MAX_DEPTH.
    NR_REQUESTS: QueueTunable("nr_requests", 4, 10240),
    WBT: QueueTunable("wbt_lat_usec", 0, 10_000_000),
    "max_sectors_kb": QueueTunable("max_sectors_kb", 4, 2**31 - 1, bio=True),
    READ_AHEAD: QueueTunable(
        "read_ahead_kb", 0, 2**31 - 4, 4, "the kernel keeps whole pages of at least 4 KiB", bio=True
    ),
    "rq_affinity": QueueTunable("rq_affinity", 0, 2),
    "nomerges": QueueTunable("nomerges", 0, 2),
    # A tick is 1, 3 1/3, 4 or 10 ms: only multiples of 20 come back unchanged on every kernel.
    "io_timeout_ms": QueueTunable("io_timeout", 20, 2**31 - 8, 20, "the kernel keeps whole ticks"),
}

# How the path of a setting ends, wherever its device is.
QUEUE_FILES = tuple(f"/{tunable.file}" for tunable in TUNABLES.values())


@frozen
class QueueEntry:
    """One entry of ``queues``: what it matches, and the declared settings in the order of writing."""

    entry: match.MatchEntry
    settings: Mapping[str, Scalar]


@frozen
class NvmeSchedulerDeclaration:
    """What is declared, and the settings that it is about; ``stacked``: also those of md and device mapper."""

    entries: Tuple[QueueEntry, ...]
    settings: FrozenSet[str]
    stacked: bool = False


def parse(queues: Sequence[Mapping[str, Any]]) -> Tuple[QueueEntry, ...]:
    """The entries, with names of hidden path devices (nvme0c1n1) taken as those of their disk (nvme0n1).

    Raises ``DeclarationError`` on what no machine could have.
    """
    parsed = []
    for item, entry in zip(queues, match.parse("queues", queues, MATCH_KEYS)):
        for key, texts in entry.match.items():
            _check_texts(entry.where, key, texts)
        _check_lines(entry)
        alternatives = dict(entry.match)
        if "name" in alternatives:
            alternatives["name"] = tuple(_disk_name(text) for text in alternatives["name"])
        settings: Dict[str, Scalar] = {}
        for setting, tunable in TUNABLES.items():
            value = item.get(setting)
            if value is not None:
                _check_value(entry.where, setting, tunable, value)
                settings[setting] = value
        parsed.append(QueueEntry(match.MatchEntry(entry.where, alternatives, entry.optional), settings))
    return tuple(parsed)


def _disk_name(text: str) -> str:
    """The name of the disk that a pattern of a path device belongs to; others as they are."""
    return re.sub(r"^(nvme[^c]*)c[^n]*n", r"\1n", text)


def in_lines(texts: Sequence[str]) -> List[Tuple[str, ...]]:
    """The alternatives of a key in parts, each short enough for one line of a rule."""
    parts: List[List[str]] = []
    left = 0
    for text in texts:
        # As they stand in a rule at the longest: |*text*
        size = _bytes(text) + 3
        if size > left or not parts:
            parts.append([])
            left = LIST_BYTES
        parts[-1].append(text)
        left -= size
    return [tuple(part) for part in parts]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _check_lines(entry: match.MatchEntry) -> None:
    counts = {key: len(in_lines(texts)) for key, texts in entry.match.items()}
    lines = 1
    for count in counts.values():
        lines *= count
    if lines > ENTRY_LINES:
        keys = " and ".join(key for key, count in counts.items() if count > 1)
        together = " together" if sum(count > 1 for count in counts.values()) > 1 else ""
        raise DeclarationError(
            "use {}",
            object=entry.where,
            cause=f"{keys}{together} would take {lines} udev rules, and an entry may have {ENTRY_LINES}",
            hint="use wildcards instead of long lists, or several entries",
        )


def _check_texts(where: str, key: str, texts: Sequence[str]) -> None:
    # udev(7) knows no way to write these: | parts alternatives, and a backslash quotes in fnmatch(3) only.
    for text in texts:
        if _bytes(text) + 3 > LIST_BYTES:
            raise DeclarationError(
                "use {}",
                object=where,
                cause=f"{key} has a string of {_bytes(text)} bytes, and a udev rule has room for {LIST_BYTES - 3}",
                hint="write a * for a part of it",
            )
        found = re.search(r'["|\\\x00-\x1f\x7f]|\[\^', text)
        if found:
            raise DeclarationError(
                "use {}",
                object=where,
                cause=f"{key} {text!r} holds {found.group()!r}, which a udev rule cannot express",
                hint="write [! instead of [^" if found.group() == "[^" else "put a ? in its place",
            )


def _check_value(where: str, setting: str, tunable: QueueTunable, value: Any) -> None:
    if setting == SCHEDULER:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", value):
            raise DeclarationError("set scheduler", object=where, cause=f"{value!r} is not the name of a scheduler")
        return
    if isinstance(value, bool):
        raise DeclarationError(f"set {setting}", object=where, cause="it is a number", wanted=str(value))
    if not tunable.low <= value <= tunable.high:
        raise DeclarationError(
            f"set {setting}", object=where, cause=f"it must be from {tunable.low} to {tunable.high}", wanted=value
        )
    if value % tunable.multiple:
        raise DeclarationError(
            f"set {setting}",
            object=where,
            cause=f"it must be a multiple of {tunable.multiple}: {tunable.reason}",
            wanted=value,
            hint=f"take {value // tunable.multiple * tunable.multiple or tunable.multiple}",
        )
