# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of a GPU's clocks, power limit, ECC, compute mode and time slice, whatever the machine."""

from __future__ import annotations

import re
from typing import Any, FrozenSet, Mapping, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen
from ..._nvidia import gpus

NAME = "gpu_settings"
DEFAULT = "default"
COMPUTE_MODE = "compute_mode"
TIME_SLICE = "time_slice"
POWER = "power_limit_watts"
MEMORY_CLOCKS = "locked_memory_clocks"
GRAPHICS_CLOCKS = "locked_graphics_clocks"
ECC = "ecc"
LOCKS = (MEMORY_CLOCKS, GRAPHICS_CLOCKS)
# In the order of setting.
SETTINGS = (COMPUTE_MODE, TIME_SLICE, POWER, *LOCKS, ECC)
# ECC is kept in the GPU itself; all else is the driver's, and goes with it.
VOLATILE = (COMPUTE_MODE, TIME_SLICE, POWER, *LOCKS)
ENABLED = "enabled"
DISABLED = "disabled"

CLOCKS = regex(r"(\d{1,5})(?: ?- ?(\d{1,5}))?", re.ASCII)
WATTS = regex(r"\d{1,5}", re.ASCII)


@frozen
class SettingsEntry:
    """One entry of ``gpus``: what it matches, and the declared settings in the order of setting.

    Clocks are a text ``MIN-MAX``, or one number where both are the same, in MHz; a power limit is a number of watts.
    """

    entry: match.MatchEntry
    settings: Mapping[str, Scalar]


@frozen
class GpuSettingsDeclaration:
    """What is declared, and the settings that it is about."""

    entries: Tuple[SettingsEntry, ...]
    settings: FrozenSet[str]


def parse(entries: Sequence[Mapping[str, Any]]) -> Tuple[SettingsEntry, ...]:
    """Raises ``DeclarationError`` on what no machine could have."""
    return tuple(
        SettingsEntry(
            entry,
            {
                setting: _value(entry.where, setting, item[setting])
                for setting in SETTINGS
                if item.get(setting) is not None
            },
        )
        for item, entry in zip(entries, gpus.parse("gpus", entries))
    )


def range_of(clocks: Scalar) -> Tuple[int, int]:
    """The lowest and the highest clock of a value that ``parse`` made."""
    low, _dash, high = str(clocks).partition("-")
    return int(low), int(high or low)


def _value(where: str, setting: str, text: str) -> Scalar:
    if text == DEFAULT or setting in (ECC, COMPUTE_MODE, TIME_SLICE):
        return text
    if setting == POWER:
        if not WATTS.fullmatch(text):
            raise _wrong(where, setting, f"{text!r} is neither a whole number of watts nor {DEFAULT}")
        return int(text)
    clocks = CLOCKS.fullmatch(text)
    if not clocks:
        raise _wrong(where, setting, f"{text!r} is neither MIN-MAX in MHz, nor one number, nor {DEFAULT}")
    low, high = int(clocks[1]), int(clocks[2] or clocks[1])
    if low > high:
        raise _wrong(where, setting, f"in {text!r} the first clock is above the second")
    return f"{low}-{high}" if low < high else str(low)


def _wrong(where: str, setting: str, cause: str) -> DeclarationError:
    return DeclarationError(f"set {setting}", object=where, cause=cause)
