# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was seen of the CPUs: the values of each that is online, and what the driver of their frequency takes.

The rules are those of the kernel's Documentation/admin-guide/pm (cpufreq, cpuidle, intel_pstate, amd-pstate) and
Documentation/ABI/testing/sysfs-devices-system-cpu. A value that differs between CPUs reads ``powersave on 0-3; ...``.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, AbstractSet, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux import cpulist
from ..._linux.boot_service import BootCarrier
from ..._linux.cpus import FOLDER
from ..._machine.numbers import number_of
from .spec import (
    EPB,
    EPP,
    GOVERNOR,
    HIGHEST,
    IDLE_STATE,
    LOWEST,
    MAX,
    MIN,
    OFF,
    ON,
    POLICY_BOOST,
    CpuPowerDeclaration,
)

if TYPE_CHECKING:
    from ..._core.change import Unmanaged
    from ..._core.protocols import Files
    from ..._kinds.hotplug import Hotplug
    from ..._kinds.tunables import BootAssignment

FILES = {
    GOVERNOR: "cpufreq/scaling_governor",
    EPP: "cpufreq/energy_performance_preference",
    EPB: "power/energy_perf_bias",
    MIN: "cpufreq/scaling_min_freq",
    MAX: "cpufreq/scaling_max_freq",
    POLICY_BOOST: "cpufreq/boost",
}
FREQUENCIES = "scaling_available_frequencies"
SMT_CONTROL = f"{FOLDER}/smt/control"
FORCED_OFF = "forceoff"
NO_SMT = ("notsupported", "notimplemented")
NO_TURBO = f"{FOLDER}/intel_pstate/no_turbo"
BOOST = f"{FOLDER}/cpufreq/boost"
# Of the machine as a whole, and only intel_pstate has them. Turning turbo off squeezes the lower one into what is left;
# the upper one is a limit beside scaling_max_freq, and the lower of the two counts.
MIN_PCT, MAX_PCT = "min_perf_pct", "max_perf_pct"
PCT_FILES = {name: f"{FOLDER}/intel_pstate/{name}" for name in (MIN_PCT, MAX_PCT)}
NO_LIMIT = "100"
# With recent kernels a policy may have turbo off by itself. The switch of the machine sets all when it is moved.
BOOSTS = "1"
# CPUs of two kinds, each with idle states of its own.
HYBRID = "/sys/devices/cpu_atom"
POLLING = "POLL"
ACTIVE = ("intel_pstate", "amd-pstate-epp")
# What a CPU answers that goes offline while it is asked, and a policy without one that is online.
GONE = (errno.EBUSY, errno.ENODEV, errno.ENXIO)

_PART = regex(r"(\S+) on ([0-9,-]+)")

Values = Mapping[int, str]
"""A value by CPU."""
Limits = Tuple[int, int, int]
"""The lowest and the highest frequency in kHz, and the highest without turbo: 0 where turbo is on, or nobody says."""


@frozen
class IdleState:
    """An idle state of a CPU: its number, name, the latency of leaving it in microseconds, and whether a boot has it
    on.
    """

    number: int
    name: str
    latency: int
    default: str

    @property
    def setting(self) -> str:
        return f"{IDLE_STATE}{self.name}"


@frozen
class Driver:
    """The driver of the frequency: its name, empty for none, the governors and the preferences that it offers, and its
    frequencies in kHz where it has a table of them.
    """

    name: str = ""
    governors: Tuple[str, ...] = ()
    preferences: Tuple[str, ...] = ()
    steps: Tuple[int, ...] = ()


@frozen
class CpuPowerState:
    """Everything a plan needs, read once. ``found`` has the values by setting and CPU, of settings that are there; what
    the machine has once is that of CPU 0.

    ``smt`` is what the kernel says of second threads. ``jobs`` are those in the way of threads that go, and ``owners``
    what others set.
    """

    driver: Driver
    smt: str
    found: Mapping[str, Values]
    limits: Mapping[int, Limits]
    idle: Mapping[int, Tuple[IdleState, ...]]
    carrier: BootCarrier
    later: Optional[Hotplug] = None
    owners: Tuple[BootAssignment, ...] = ()
    jobs: Tuple[str, ...] = ()
    declaration: CpuPowerDeclaration = CpuPowerDeclaration()
    kept_off: bool = False
    """Whether the declaration that lies on the node, and stays there, takes second threads off again."""

    @property
    def hands_over(self) -> bool:
        """Whether the driver lets the hardware choose: then under performance there is no preference but that."""
        return self.driver.name in ACTIVE


@frozen
class CpuPowerDesired:
    """What is wanted of this machine: texts that ``value_of`` reads for a CPU, in the order of setting.

    ``unit`` is the text of the unit for CPUs that come later, None for no such unit.
    """

    texts: Mapping[str, str]
    unmanaged: Tuple[Unmanaged, ...] = ()
    unit: Optional[str] = None


def described(values: Values) -> Optional[str]:
    """The values of CPUs in words: one where they are equal; None for no CPU."""
    if len(set(values.values())) < 2:
        return next(iter(values.values()), None)
    cpus: Dict[str, List[int]] = {}
    for cpu in sorted(values):
        cpus.setdefault(values[cpu], []).append(cpu)
    return "; ".join(f"{value} on {cpulist.render(numbers)}" for value, numbers in cpus.items())


def by_cpu(text: str) -> Optional[Values]:
    """What ``described`` said of CPUs that differ; None for one value. Raises ``ValueError`` on what it never says."""
    if " " not in text:
        return None
    found: Dict[int, str] = {}
    for part in text.split("; "):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r} are not values of CPUs")
        found.update(dict.fromkeys(cpulist.parse(match[2]), match[1]))
    return found


def value_of(text: str, cpu: int, limits: Optional[Limits] = None) -> Optional[str]:
    """What a text wants of one CPU; None where it does not speak of it. ``limits`` are those of its frequency."""
    if text in (LOWEST, HIGHEST):
        return str(limits[0] if text == LOWEST else limits[2] or limits[1]) if limits else None
    values = by_cpu(text)
    return text if values is None else values.get(cpu)


def is_for_all(text: str) -> bool:
    """Whether a text wants the same of every CPU, whatever its frequencies."""
    return " " not in text and text not in (LOWEST, HIGHEST)


def read_cpu(files: Files, cpu: int, name: str) -> Optional[str]:
    """A file of a CPU, None where it is not there, or the CPU goes offline meanwhile."""
    try:
        text = files.read_optional(f"{FOLDER}/cpu{cpu}/{name}")
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    return None if text is None else text.strip()


def _number(files: Files, cpu: int, name: str) -> Optional[int]:
    """A number that such a file has."""
    text = read_cpu(files, cpu, name)
    return None if text is None else number_of(text, f"{FOLDER}/cpu{cpu}/{name}")


def read_values(files: Files, setting: str, cpus: Iterable[int]) -> Dict[int, str]:
    """A setting of CPUs, without those that do not have it."""
    read = {cpu: read_cpu(files, cpu, FILES[setting]) for cpu in cpus}
    return {cpu: value for cpu, value in read.items() if value is not None}


def without_turbo(files: Files, boosts: Mapping[int, str]) -> Set[int]:
    """The CPUs whose policy has no turbo: its switch is there all the same, is off, and stays off."""
    off = [cpu for cpu, value in boosts.items() if value != BOOSTS]
    limits = {cpu: [read_cpu(files, cpu, f"acpi_cppc/{end}_perf") for end in ("highest", "nominal")] for cpu in off}
    return {cpu for cpu, (highest, nominal) in limits.items() if highest is not None and highest == nominal}


def read_driver(files: Files, cpu: int, asked: AbstractSet[str]) -> Driver:
    """The driver as a CPU tells it, with what it offers of the settings that are ``asked``."""
    name = read_cpu(files, cpu, "cpufreq/scaling_driver") or ""
    if not name:
        return Driver()

    def offered(setting: str, file: str) -> Tuple[str, ...]:
        return tuple((read_cpu(files, cpu, f"cpufreq/{file}") or "").split()) if setting in asked else ()

    return Driver(
        name,
        offered(GOVERNOR, "scaling_available_governors"),
        offered(EPP, "energy_performance_available_preferences"),
        tuple(number_of(word, f"{FOLDER}/cpu{cpu}/cpufreq/{FREQUENCIES}") for word in offered(MAX, FREQUENCIES)),
    )


def read_limits(files: Files, cpu: int, *, turbo: str) -> Optional[Limits]:
    """The limits of a CPU whose turbo is, or shall be, on or off."""
    low, high = (_number(files, cpu, f"cpufreq/cpuinfo_{end}_freq") for end in ("min", "max"))
    if low is None or high is None:
        return None
    base = _nominal(files, cpu) if turbo == OFF else 0
    return low, high, min(base, high)


def _nominal(files: Files, cpu: int) -> int:
    """The highest frequency of a CPU without turbo in kHz, 0 where its driver does not say."""
    base = _number(files, cpu, "cpufreq/base_frequency")
    if base is not None:
        return base
    megahertz = read_cpu(files, cpu, "acpi_cppc/nominal_freq")
    return int(megahertz) * 1000 if megahertz is not None and megahertz.isdecimal() else 0


def read_smt(files: Files) -> str:
    """What the kernel says of second threads; empty where it does not switch them."""
    return (files.read_optional(SMT_CONTROL) or "").strip()


def switch_of(smt: str) -> Dict[int, str]:
    """Whether second threads are on, of a machine that has some."""
    return {} if smt in ("", *NO_SMT) else {0: OFF if smt == FORCED_OFF else smt}


def read_turbo(files: Files) -> Tuple[str, str]:
    """Whether turbo is on, and the file that switches it; empty where nothing does."""
    text = files.read_optional(NO_TURBO)
    if text is not None:
        return (OFF if text.strip() == "1" else ON), NO_TURBO
    text = files.read_optional(BOOST)
    if text is not None:
        return (ON if text.strip() == "1" else OFF), BOOST
    return "", ""


def read_idle(files: Files, online: AbstractSet[int]) -> Dict[int, Tuple[IdleState, ...]]:
    """The idle states of each CPU but polling, which is none. CPUs of one kind have the same."""
    found: Dict[int, Tuple[IdleState, ...]] = {}
    hybrid = files.exists(HYBRID)
    states: Tuple[IdleState, ...] = ()
    for cpu in sorted(online):
        if hybrid or not found:
            states = _idle_states(files, cpu)
        if states:
            found[cpu] = states
    return found


def _idle_states(files: Files, cpu: int) -> Tuple[IdleState, ...]:
    folder = f"{FOLDER}/cpu{cpu}/cpuidle"
    states = []
    for name in files.names(folder):
        number = name[len("state") :]
        if name.startswith("state") and number.isdecimal():
            title, default = (read_cpu(files, cpu, f"cpuidle/{name}/{file}") for file in ("name", "default_status"))
            latency = _number(files, cpu, f"cpuidle/{name}/latency")
            if title and latency is not None and title != POLLING:
                on = OFF if default == "disabled" else ON
                states.append(IdleState(int(number), title, latency, on))
    return tuple(sorted(states, key=lambda state: state.number))


def read_disabled(
    files: Files, idle: Mapping[int, Tuple[IdleState, ...]], settings: Optional[AbstractSet[str]] = None
) -> Dict[str, Dict[int, str]]:
    """Which idle states of which CPUs are on, by their settings; ``settings`` leaves out all others."""
    found: Dict[str, Dict[int, str]] = {}
    for cpu, states in idle.items():
        for state in states:
            if settings is None or state.setting in settings:
                text = read_cpu(files, cpu, f"cpuidle/state{state.number}/disable")
                if text is not None:
                    found.setdefault(state.setting, {})[cpu] = ON if text == "0" else OFF
    return found


def wanted_idle(states: Iterable[IdleState], latency: int) -> Dict[str, str]:
    """Each state on or off, by its setting: those that take longer to leave than ``latency`` are off, the others as the
    boot had them.
    """
    return {state.setting: OFF if state.latency > latency else state.default for state in states}
