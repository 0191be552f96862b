# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locked clocks, which NVML sets and cannot read back: what we set is kept in a record, and believed with care.

A lock ends when the driver lets go of its GPU: at a reset, when the module is loaded again, and without persistence
when the last client goes. So the record says during what it was made: which load of the module, which
nvidia-persistenced held the GPU, how often we made the driver let go of it, and how much energy the GPU had used, a
count that begins anew with the driver.
A lock is in effect while all that still holds and the clock of this moment is one that it allows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, AbstractSet, Any, Dict, Mapping, Tuple

from ..._core.record import read_note
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._machine import processes
from .spec import DEFAULT, LOCKS, range_of

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .driver import GpuReading

# Gone with the next boot, as the locks are.
RECORD = "/run/gpufleet/gpu_settings.json"
SCHEMA = 1
# nvidia-persistenced writes it (NVPD_PID_FILE of its source).
DAEMON = "/run/nvidia-persistenced/nvidia-persistenced.pid"
# We set one, and cannot say that it is in effect.
UNKNOWN = "unknown"
# The driver takes the nearest clock of its table, whose steps are 15 MHz at most.
STEP_MHZ = 15
# nvmlClocksEventReasonApplicationsClocksSetting: what somebody asked for is no excuse.
AS_ASKED = 2

# What a lock is kept as, beside ``DEFAULT``: MHz, or the lowest and the highest.
RANGE = regex(r"[0-9]{1,6}(-[0-9]{1,6})?")

# By UUID and lock: the value and what it was made during.
Record = Dict[str, Dict[str, Any]]


def read_record(files: Files) -> Record:
    """What we set since the last boot. A damaged record is none: the locks are set again."""
    return read_note(files, RECORD, _locks) or {}


def _locks(document: Any) -> Record:
    return {uuid: dict(locks) for uuid, locks in document["gpus"].items()} if document["schema"] == SCHEMA else {}


def in_effect(record: Record, reading: GpuReading, lock: str, holder: str, released: int = 0) -> Scalar:
    """The lock in effect, None where we set none, and ``UNKNOWN`` where ours cannot be believed."""
    entry = record.get(reading.gpu.uuid, {}).get(lock)
    if not isinstance(entry, dict):
        return None if entry is None else UNKNOWN
    value = entry.get("value")
    if not RANGE.fullmatch(str(value)) and value != DEFAULT:
        return UNKNOWN
    if value == DEFAULT:
        # Whatever the driver went through since, this is what it came back with.
        return DEFAULT
    same = {**entry, "millijoules": None} == {**entry_of(reading, value, holder, released), "millijoules": None}
    used, now = entry.get("millijoules"), reading.millijoules
    began_anew = isinstance(used, int) and now is not None and now < used
    if not same or began_anew or reading.persistence is False or not _allows(value, reading, lock):
        return UNKNOWN
    return str(value)


def doubted(record: Record, touched: AbstractSet[Tuple[str, str]]) -> Record:
    """The record while these locks, by UUID and lock, are being set: nobody knows how they are."""
    doubts = {uuid: dict(locks) for uuid, locks in record.items()}
    for uuid, lock in touched:
        doubts.setdefault(uuid, {})[lock] = {}
    return doubts


def entry_of(reading: GpuReading, value: Scalar, holder: str, released: int = 0) -> Mapping[str, Scalar]:
    """What the record keeps of a lock."""
    return {
        "value": value,
        "load": reading.load,
        "holder": holder,
        "released": released,
        "millijoules": reading.millijoules,
    }


def holder_of(files: Files) -> str:
    """Which nvidia-persistenced runs now: its process and when that was started. Empty for none."""
    pid = (files.read_optional(DAEMON) or "").strip()
    process = processes.read(files, int(pid)) if pid.isdecimal() else None
    return process.identity if process else ""


def _allows(value: Scalar, reading: GpuReading, lock: str) -> bool:
    """Whether the clock of this moment is one that the lock allows: below it for a reason, such as heat or idleness."""
    clock = reading.clocks.get(lock)
    if clock is None:
        return True
    low, high = range_of(value)
    if clock < low - STEP_MHZ:
        return reading.reasons is None or reading.reasons & ~AS_ASKED != 0
    return clock <= high + STEP_MHZ


def keep(files: Files, record: Record) -> None:
    """Write the record, or remove it where it says nothing."""
    left = {uuid: locks for uuid, locks in record.items() if any(lock in locks for lock in LOCKS)}
    if left:
        files.replace(RECORD, json.dumps({"schema": SCHEMA, "gpus": left}, indent=1, sort_keys=True) + "\n")
    else:
        files.remove(RECORD)
