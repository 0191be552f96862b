# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else sets the CPUs: tuned, the daemons that manage power, and services and scripts.

An assignment without a value is one of a daemon that decides by itself. Those that are carried out only at boot come
before the boot service, which waits for them; the others write when they like, and so have the last word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from ..._core.errors import OwnedByAnother
from ..._core.value import replace
from ..._kinds import tunables
from ..._kinds.tunables import BootAssignment
from ..._linux import systemd
from ..._linux.cpus import FOLDER
from .spec import BIASES, CPUS, EPB, EPP, FREQUENCIES, GOVERNOR, MAX, MIN, NAMED_PREFERENCES, OFF, ON, SMT, TURBO
from .state import described, value_of

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .state import CpuPowerState

# What these set goes by a profile, the load or the temperature.
DAEMONS: Mapping[str, Tuple[str, ...]] = {
    "auto-cpufreq": (GOVERNOR, EPP, TURBO, *FREQUENCIES),
    "intel_lpmd": (EPP, EPB),
    "power-profiles-daemon": (GOVERNOR, EPP, TURBO),
    "thermald": (MAX, TURBO),
}
# What they do keeps the machine from harm, or ends with its cause: they are named, and nothing is refused for them.
# Each of these is read by its own file.
KNOWN = ("cpufrequtils", "cpupower.", "ondemand.", "tlp.", *(f"{name}." for name in DAEMONS))
TOLERATED = ("intel_lpmd", "thermald")
# Ubuntu before 22.04 starts it after everything else; it takes what there is of these.
ONDEMAND = "ondemand"

# tuned, plugin cpu: key to setting. What it writes into /sys by itself is told by the name of the file.
TUNED = {
    "governor": GOVERNOR,
    "energy_performance_preference": EPP,
    "energy_perf_bias": EPB,
    "no_turbo": TURBO,
    "boost": TURBO,
}
SYSFS = {
    "scaling_governor": GOVERNOR,
    "energy_performance_preference": EPP,
    "energy_perf_bias": EPB,
    "scaling_min_freq": MIN,
    "scaling_max_freq": MAX,
    "no_turbo": TURBO,
    "boost": TURBO,
}
TLP = {
    "CPU_SCALING_GOVERNOR_ON_AC": GOVERNOR,
    "CPU_ENERGY_PERF_POLICY_ON_AC": EPP,
    "CPU_BOOST_ON_AC": TURBO,
    "CPU_SCALING_MIN_FREQ_ON_AC": MIN,
    "CPU_SCALING_MAX_FREQ_ON_AC": MAX,
}
CPUPOWER_FILES = ("/etc/sysconfig/cpupower", "/etc/default/cpupower", "/etc/cpupower-service.conf")
CPUFREQUTILS, CPUFREQUTILS_FILE = "/etc/init.d/cpufrequtils", "/etc/default/cpufrequtils"
# tuned's names for a bias, beside those of the kernel.
TUNED_BIASES = {**BIASES, "powersave": BIASES["power"]}


def find(files: Files) -> Tuple[BootAssignment, ...]:
    """Everything that somebody else sets of the CPUs."""
    units = systemd.unit_files(files)
    found: List[BootAssignment] = list(_of_tuned(files))
    for name, settings in DAEMONS.items():
        unit = f"{name}.service"
        if units.status(unit) == systemd.ENABLED:
            found += [BootAssignment(name, units.paths(unit)[0], None, setting, "") for setting in settings]
    if units.status("tlp.service") == systemd.ENABLED:
        found += _of_tlp(files)
    if units.status("ondemand.service") == systemd.ENABLED:
        found.append(BootAssignment(ONDEMAND, units.paths("ondemand.service")[0], None, GOVERNOR, ""))
    if units.status("cpupower.service") == systemd.ENABLED:
        found += _of_cpupower(files)
    if files.exists(CPUFREQUTILS):
        found += _of_cpufrequtils(files)
    return tuple(found)


def of_writers(files: Files) -> Tuple[BootAssignment, ...]:
    """The writes of services and scripts, those excepted that ``find`` knows by name."""
    found = []
    for one in tunables.read_writers(files, _settings_of_path):
        setting, _blank, key = one.tunable.partition(" ")
        if not one.owner.startswith(KNOWN):
            value = _tuned_value(setting, key, one.value) if one.value else ""
            found.append(replace(one, tunable=setting, value=value))
    return tuple(found)


def _settings_of_path(target: str) -> Tuple[str, ...]:
    if not target.startswith("/sys/devices/system/cpu/"):
        return ()
    setting = _tuned_setting("sysfs", target)
    return (setting,) if setting else ()


def conflicts(state: CpuPowerState, texts: Mapping[str, str], *, permanent: bool) -> Tuple[Conflict, ...]:
    """Who sets another value than is declared. Raises ``OwnedByAnother`` where that would stay, and ours is to stay."""
    found: List[Conflict] = []
    for one in state.owners:
        setting = one.tunable
        if setting not in texts:
            continue
        values = {cpu: value_of(texts[setting], cpu, state.limits.get(cpu)) for cpu in state.found[setting]}
        wanted = described({cpu: value for cpu, value in values.items() if value is not None})
        if _takes(one, state) == wanted:
            continue
        if one.in_doubt:
            found.append(Conflict(one.owner, one.path, one.line, CPUS, setting, one.value, WINNER_UNKNOWN))
            continue
        if one.later and permanent and one.owner not in TOLERATED:
            raise _owned(one, wanted)
        found.append(Conflict(one.owner, one.path, one.line, CPUS, setting, one.value, THEM if one.later else US))
    return tuple(found)


def _takes(one: BootAssignment, state: CpuPowerState) -> str:
    """The value that comes of an assignment: of several governors or preferences the first that the driver has."""
    offered = state.driver.governors if one.tunable == GOVERNOR else state.driver.preferences
    words = one.value.split("|")
    taken = next((word for word in words if word in offered), words[0])
    return NAMED_PREFERENCES.get(taken, taken) if one.tunable == EPP else taken


def _owned(one: BootAssignment, wanted: Optional[str]) -> OwnedByAnother:
    when = "whenever it starts" if one.value else "as it sees fit"
    return OwnedByAnother(
        f"set {one.tunable}",
        object=CPUS,
        cause=f"{one.owner} sets it {when}, at {one.place}",
        found=one.value or None,
        wanted=wanted,
        hint=f"disable {one.owner}{', or let it set the same' if one.value else ''}, or set permanent: false",
    )


def _of_tuned(files: Files) -> Tuple[BootAssignment, ...]:
    found = []
    for one in tunables.read_tuned(files, _tuned_setting):
        setting, _blank, key = one.tunable.partition(" ")
        value = _tuned_value(setting, key, one.value)
        found.append(BootAssignment(one.owner, one.path, one.line, setting, value))
    return tuple(found)


def _tuned_setting(plugin: str, key: str) -> str:
    if plugin == "cpu" and key in TUNED:
        return f"{TUNED[key]} {key}"
    if plugin == "sysfs" and key.startswith(f"{FOLDER}/"):
        name = key.rpartition("/")[2]
        if key.endswith("/smt/control"):
            return f"{SMT} {key}"
        return f"{SYSFS[name]} {name}" if name in SYSFS else ""
    return ""


def _tuned_value(setting: str, key: str, value: str) -> str:
    if setting == TURBO:
        return _switch(value, on="0" if key == "no_turbo" else "1")
    if setting == EPB:
        return TUNED_BIASES.get(value.split("|")[0], value)
    return value


def _switch(value: str, *, on: str) -> str:
    return ON if value == on else OFF


def _of_tlp(files: Files) -> Iterator[BootAssignment]:
    """What /etc/tlp.conf and the files beside it set on mains power; the last one counts."""
    folder = "/etc/tlp.d"
    names = (f"{folder}/{name}" for name in files.names(folder) if name.endswith(".conf"))
    last: Dict[str, BootAssignment] = {}
    for path in (*names, "/etc/tlp.conf"):
        for number, key, value in _assignments(files, path):
            if key in TLP and value:
                setting = TLP[key]
                text = _switch(value, on="1") if setting == TURBO else value
                last[setting] = BootAssignment("tlp", path, number, setting, text)
    yield from last.values()


def _of_cpupower(files: Files) -> Iterator[BootAssignment]:
    """The service of linux-tools: options of ``cpupower frequency-set``, or since 6.16 a key for each."""
    for path in CPUPOWER_FILES:
        for number, key, value in _assignments(files, path):
            option = re.search(r"(?:^|\s)(?:-g|--governor)[\s=]*(\w+)", value)
            if key in ("CPUPOWER_START_OPTS", "START_OPTS") and option:
                yield BootAssignment("cpupower", path, number, GOVERNOR, option[1], later=False)
            elif key == "GOVERNOR" and value:
                yield BootAssignment("cpupower", path, number, GOVERNOR, value, later=False)


def _of_cpufrequtils(files: Files) -> Iterator[BootAssignment]:
    """The boot script of Debian's cpufrequtils, which sets ondemand unless its file says otherwise."""
    said = {key: (number, value) for number, key, value in _assignments(files, CPUFREQUTILS_FILE)}
    if said.get("ENABLE", (0, "true"))[1] != "true":
        return
    if "GOVERNOR" in said:
        number, value = said["GOVERNOR"]
        yield BootAssignment("cpufrequtils", CPUFREQUTILS_FILE, number, GOVERNOR, value, later=False)
    else:
        yield BootAssignment("cpufrequtils", CPUFREQUTILS, None, GOVERNOR, "ondemand", later=False)


def _assignments(files: Files, path: str) -> Iterator[Tuple[int, str, str]]:
    """The assignments of a file that a shell reads, by line."""
    for number, line in enumerate((files.read_optional(path) or "").splitlines(), 1):
        match = re.match(r"\s*(\w+)=[\"']?([^\"'#]*)", line)
        if match:
            yield number, match[1], match[2].strip()
