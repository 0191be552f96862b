# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The time slice of GPUs. No function of NVML has it: ``nvidia-smi compute-policy`` alone sets and lists it.

What it lists is meant for people, and NVIDIA promises nothing about its form. So a row is known by its words, and a GPU
of which none is understood has no time slice here: what cannot be read back is not set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Sequence, Tuple

from ..._core.regex import regex
from ..._core.value import replace
from .spec import DEFAULT, TIME_SLICE

if TYPE_CHECKING:
    from ..._core.protocols import Commands
    from .driver import GpuReading

PROGRAM = "nvidia-smi"
# By the numbers that it takes.
SLICES = (DEFAULT, "short", "medium", "long")
# The index of the GPU, the policy and its value, whatever frames them.
ROW = regex(r"\W*(\d+)\W+time[- ]?slice\W+(\w+)\W*", re.IGNORECASE)
SECONDS = 30.0
NOT_INSTALLED = f"{PROGRAM} is not installed, and nothing else sets or lists it"
NOT_LISTED = f"{PROGRAM} compute-policy --list lists no time slice for this GPU that this release understands"


def with_time_slices(readings: Sequence[GpuReading], commands: Commands) -> Tuple[GpuReading, ...]:
    """The readings with the time slice of each GPU, or why it is not known."""
    found, reason = _read(commands)
    made = []
    for reading in readings:
        value = found.get(reading.gpu.index)
        if reading.gpu.lost:
            made.append(reading)
        elif value is None:
            made.append(replace(reading, lacking={**reading.lacking, TIME_SLICE: reason}))
        else:
            values = {**reading.values, TIME_SLICE: value}
            made.append(replace(reading, values=values, defaults={**reading.defaults, TIME_SLICE: DEFAULT}))
    return tuple(made)


def set_time_slice(commands: Commands, uuid: str, value: str) -> str:
    """Empty when the program says that it is done, else why not. Whether it is in effect is for the next look."""
    command = (PROGRAM, "compute-policy", "-i", uuid, "--set-timeslice", str(SLICES.index(value)))
    try:
        completed = commands.run(command, timeout=SECONDS)
    except FileNotFoundError:
        return NOT_INSTALLED
    if completed.status == 0:
        return ""
    return f"{PROGRAM} ended with exit status {completed.status}: {_first(completed.output + completed.errors)}"


def _read(commands: Commands) -> Tuple[Dict[int, str], str]:
    """The time slices by index, and why another GPU has none."""
    if not commands.find(PROGRAM):
        return {}, NOT_INSTALLED
    completed = commands.run((PROGRAM, "compute-policy", "--list"), timeout=SECONDS)
    if completed.status:
        said = _first(completed.output + completed.errors)
        return {}, f"{PROGRAM} compute-policy --list ended with exit status {completed.status}: {said}"
    found = {}
    for line in completed.output.splitlines():
        row = ROW.fullmatch(line)
        if row and row[2].lower() in SLICES:
            found[int(row[1])] = row[2].lower()
    return found, NOT_LISTED


def _first(text: str) -> str:
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "it says nothing")
