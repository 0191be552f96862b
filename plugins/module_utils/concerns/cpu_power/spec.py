# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the frequency, the idle states and the threads of CPUs, and what is wrong whatever the
machine.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..._core.errors import DeclarationError
from ..._core.nearest import did_you_mean
from ..._core.regex import regex
from ..._core.value import field, frozen

NAME = "cpu_power"
CPUS = "CPUs"
SMT = "smt"
TURBO = "turbo"
POLICY_BOOST = "boost"
GOVERNOR = "governor"
EPP = "energy_performance_preference"
EPB = "energy_performance_bias"
MIN = "min_frequency"
MAX = "max_frequency"
# In the order of setting: CPUs come online before they are set, turbo moves the frequencies, and a governor the EPP.
SETTINGS = (SMT, TURBO, GOVERNOR, EPP, EPB, MIN, MAX)
SWITCHES = (SMT, TURBO)
FREQUENCIES = (MIN, MAX)
IDLE = "max_idle_latency_us"
# Of each idle state a setting of its own, by the name that the kernel has for it.
IDLE_STATE = "idle state "
ON, OFF = "on", "off"
LOWEST, HIGHEST = "lowest", "highest"
PERFORMANCE = "performance"
FAIL, WAIT, SKIP = "fail", "wait", "skip"

# Documentation/admin-guide/pm/intel_pstate.rst. The preference has underscores, the bias hyphens; it reads as a number.
PREFERENCES = (PERFORMANCE, "balance_performance", "balance_power", "power")
# drivers/cpufreq/intel_pstate.c and amd-pstate.c: the ends of the scale have the same name on every server. What reads
# as one of the names between them goes by the model, the firmware and the release.
NAMED_PREFERENCES = {"0": PERFORMANCE, "255": "power"}
BIASES = {PERFORMANCE: "0", "balance-performance": "4", "normal": "6", "balance-power": "8", "power": "15"}

_WORD = regex(r"[A-Za-z0-9_-]+")
_FREQUENCY = regex(r"([0-9]{1,7})(?:\.([0-9]{1,6}))? ?([kMG])Hz")
_DIGITS = {"k": 0, "M": 3, "G": 6}


@frozen
class CpuPowerDeclaration:
    """What is declared: ``values`` by setting, frequencies in kHz or a word, and the longest latency of an idle state.

    For ``state: absent`` the values are those from before us, idle states by their names among them.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    idle_latency: Optional[int] = None
    when_busy: str = FAIL
    busy_timeout: int = 0


def parse(params: Mapping[str, Any]) -> CpuPowerDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    values: Dict[str, str] = {}
    for setting in SETTINGS:
        given = params[setting]
        if given is None:
            continue
        if setting in SWITCHES:
            values[setting] = ON if given else OFF
        elif setting in FREQUENCIES:
            values[setting] = _frequency(setting, given)
        elif setting == EPP:
            values[setting] = _preference(given)
        elif setting == EPB:
            values[setting] = _bias(given)
        else:
            values[setting] = _governor(given)
    if not values and params[IDLE] is None:
        raise DeclarationError(
            "read the declaration",
            cause="nothing is declared",
            hint="set one of the options, such as governor: performance, or state: absent",
        )
    if params[IDLE] is not None and params[IDLE] < 0:
        raise _wrong(IDLE, "a latency is not negative", params[IDLE])
    low, high = values.get(MIN, LOWEST), values.get(MAX, HIGHEST)
    if low.isdecimal() and high.isdecimal() and int(low) > int(high):
        raise _wrong(MIN, f"it is above {MAX}, which is {high} kHz", f"{low} kHz")
    if (low, high) == (HIGHEST, LOWEST):
        raise _wrong(MIN, f"it is above {MAX}", low)
    return CpuPowerDeclaration(values, params[IDLE], params["when_busy"], params["busy_timeout"])


def _frequency(setting: str, text: str) -> str:
    if text in (LOWEST, HIGHEST):
        return text
    found = _FREQUENCY.fullmatch(text)
    if found is None:
        raise _wrong(setting, "it is neither a number with its unit nor lowest nor highest", text, hint="write 2400MHz")
    fraction, digits = found[2] or "", _DIGITS[found[3]]
    if len(fraction.rstrip("0")) > digits:
        raise _wrong(setting, "the kernel counts in whole kHz", text)
    return str(int(found[1] + fraction.rstrip("0").ljust(digits, "0")))


def _governor(text: str) -> str:
    # Which there are is for the driver to say.
    if _WORD.fullmatch(text):
        return text
    raise _wrong(GOVERNOR, "it is not the name of a governor", text, hint="set such as performance or schedutil")


def _preference(text: str) -> str:
    if text in PREFERENCES:
        return text
    if text.isascii() and text.isdigit() and int(text) <= 255:
        number = str(int(text))
        return NAMED_PREFERENCES.get(number, number)
    hint = did_you_mean(text.replace("-", "_"), PREFERENCES, otherwise=f"use one of {', '.join(PREFERENCES)}")
    raise _wrong(EPP, "it is neither a preference nor a number from 0 to 255", text, hint=hint)


def _bias(text: str) -> str:
    if text in BIASES:
        return BIASES[text]
    if text.isascii() and text.isdigit() and int(text) <= 15:
        return str(int(text))
    hint = did_you_mean(text.replace("_", "-"), BIASES, otherwise=f"use one of {', '.join(BIASES)}")
    raise _wrong(EPB, "it is neither a bias nor a number from 0 to 15", text, hint=hint)


def _wrong(setting: str, cause: str, wanted: Any, hint: str = "") -> DeclarationError:
    return DeclarationError(f"set {setting}", object=CPUS, cause=cause, wanted=wanted, hint=hint)
