# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines with each driver of CPU frequencies, whose files follow the rules of the kernel.

The files and their form come from the kernel's documentation (admin-guide/pm: cpufreq, cpuidle, intel_pstate,
amd-pstate; ABI/testing/sysfs-devices-system-cpu), and what a write does from drivers/cpufreq (cpufreq.c,
intel_pstate.c, amd-pstate.c), drivers/cpuidle/sysfs.c, arch/x86/kernel/cpu/intel_epb.c and kernel/cpu.c. They are not
recorded from hardware. Numbers are of the size that such CPUs show: a Xeon of the fourth generation, an EPYC of the
fourth, Grace. A virtual machine has an empty folder cpufreq, as one that was looked at.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_power.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    BOOT_SERVICE,
    ENABLED,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, build

CPU = "/sys/devices/system/cpu"
KERNEL_GOVERNORS = "conservative ondemand userspace powersave performance schedutil"
PREFERENCES = "default performance balance_performance balance_power power"
ACTIVE = ("intel_pstate", "amd-pstate-epp")
RELEASE = "6.12.0-1-amd64"
MODULES = f"/lib/modules/{RELEASE}/modules.dep"
INTEL_IDLE = (("POLL", 0), ("C1", 1), ("C1E", 2), ("C6", 290))
AMD_IDLE = (("POLL", 0), ("C1", 1), ("C2", 100))
GRACE_IDLE = (("WFI", 1), ("LPI-1", 120))
# The preference that the firmware has, which the driver goes back to.
FIRMWARE_PREFERENCE = "balance_performance"


def intel_active() -> Dict[str, str]:
    """A Xeon under ``intel_pstate``: base 2.0 GHz, turbo 3.8 GHz."""
    files = {f"{CPU}/intel_pstate/{name}": f"{value}\n" for name, value in _INTEL.items()}
    for cpu in range(4):
        files.update(_frequencies(cpu, "intel_pstate", "performance powersave", "powersave", 800000, 3800000))
        files.update(_preference(cpu))
        files[f"{CPU}/cpu{cpu}/cpufreq/base_frequency"] = "2000000\n"
        files[f"{CPU}/cpu{cpu}/power/energy_perf_bias"] = "6\n"
    return {**files, **_idle(INTEL_IDLE, "intel_idle"), **_smt("on")}


def intel_passive() -> Dict[str, str]:
    """The same with ``intel_pstate=passive``, where the governors are those of the kernel."""
    files = intel_active()
    files[f"{CPU}/intel_pstate/status"] = "passive\n"
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_driver"] = "intel_cpufreq\n"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_governor"] = "schedutil\n"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_available_governors"] = f"{KERNEL_GOVERNORS}\n"
    return files


def amd_active() -> Dict[str, str]:
    """An EPYC under ``amd-pstate-epp``, with a kernel that has no turbo switch for it."""
    files = {f"{CPU}/amd_pstate/status": "active\n"}
    for cpu in range(4):
        files.update(_frequencies(cpu, "amd-pstate-epp", "performance powersave", "powersave", 400000, 3700000))
        files.update(_preference(cpu))
    return {**files, **_idle(AMD_IDLE, "acpi_idle"), **_smt("on")}


def amd_other(mode: str) -> Dict[str, str]:
    """The same in passive or guided mode, with the switches of kernel 6.11: of the machine and of each policy."""
    files = {f"{CPU}/amd_pstate/status": f"{mode}\n", f"{CPU}/cpufreq/boost": "1\n"}
    for cpu in range(4):
        files.update(_frequencies(cpu, "amd-pstate", KERNEL_GOVERNORS, "schedutil", 400000, 3700000))
        files[f"{CPU}/cpu{cpu}/acpi_cppc/nominal_freq"] = "2400\n"
        files[f"{CPU}/cpu{cpu}/cpufreq/boost"] = "1\n"
    return {**files, **_idle(AMD_IDLE, "acpi_idle"), **_smt("on")}


def amd_passive() -> Dict[str, str]:
    return amd_other("passive")


def amd_guided() -> Dict[str, str]:
    return amd_other("guided")


def acpi() -> Dict[str, str]:
    """An older EPYC under ``acpi-cpufreq``: three frequencies in a table, and a boost that is in none."""
    files = {f"{CPU}/cpufreq/boost": "1\n"}
    for cpu in range(4):
        files.update(_frequencies(cpu, "acpi-cpufreq", KERNEL_GOVERNORS, "ondemand", 1500000, 2450000))
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_available_frequencies"] = "2450000 2000000 1500000\n"
    return {**files, **_idle(AMD_IDLE, "acpi_idle"), **_smt("on")}


def grace() -> Dict[str, str]:
    """NVIDIA Grace under ``cppc_cpufreq``: no second threads, no energy preference, no turbo switch."""
    files: Dict[str, str] = {}
    for cpu in range(4):
        files.update(_frequencies(cpu, "cppc_cpufreq", KERNEL_GOVERNORS, "schedutil", 81000, 3501000))
    return {**files, **_idle(GRACE_IDLE, "acpi_idle"), **_smt("notimplemented")}


def virtual() -> Dict[str, str]:
    """A virtual machine: no driver, and an empty folder."""
    return {f"{CPU}/cpufreq/.keep": "", **_smt("notsupported")}


DRIVERS = {
    "intel_pstate": intel_active,
    "intel_cpufreq": intel_passive,
    "amd-pstate-epp": amd_active,
    "amd-pstate passive": amd_passive,
    "amd-pstate guided": amd_guided,
    "acpi-cpufreq": acpi,
    "cppc_cpufreq": grace,
}
_INTEL = {"no_turbo": "0", "status": "active", "min_perf_pct": "21", "max_perf_pct": "100"}


def _frequencies(cpu: int, driver: str, governors: str, governor: str, low: int, high: int) -> Dict[str, str]:
    values = {
        "scaling_driver": driver,
        "scaling_available_governors": governors,
        "scaling_governor": governor,
        "scaling_min_freq": low,
        "scaling_max_freq": high,
        "cpuinfo_min_freq": low,
        "cpuinfo_max_freq": high,
    }
    return {f"{CPU}/cpu{cpu}/cpufreq/{name}": f"{value}\n" for name, value in values.items()}


def _preference(cpu: int) -> Dict[str, str]:
    folder = f"{CPU}/cpu{cpu}/cpufreq"
    return {
        f"{folder}/energy_performance_preference": f"{FIRMWARE_PREFERENCE}\n",
        f"{folder}/energy_performance_available_preferences": f"{PREFERENCES}\n",
    }


def _idle(states: Sequence[Tuple[str, int]], driver: str) -> Dict[str, str]:
    files = {f"{CPU}/cpuidle/current_driver": f"{driver}\n"}
    for cpu in range(4):
        for number, (name, latency) in enumerate(states):
            folder = f"{CPU}/cpu{cpu}/cpuidle/state{number}"
            files.update({f"{folder}/name": f"{name}\n", f"{folder}/latency": f"{latency}\n"})
            files.update({f"{folder}/disable": "0\n", f"{folder}/default_status": "enabled\n"})
    return files


def _smt(control: str) -> Dict[str, str]:
    active = "1" if control == "on" else "0"
    return {f"{CPU}/smt/control": f"{control}\n", f"{CPU}/smt/active": f"{active}\n"}


# intel_pstate.c since 5.9 (epp_values), on a CPU without values of its own.
SHOWN_AS = {"0": "performance", "128": "balance_performance", "192": "balance_power", "255": "power"}


class CpuMachine:
    """Four CPUs, of which 2 and 3 are the second threads of 0 and 1.

    ``refuses`` are errors by the path of what is written, and ``offline_on_write`` is a CPU that goes when it is set.
    """

    def __init__(
        self,
        root: Path,
        files: Mapping[str, str],
        more: Optional[Mapping[str, str]] = None,
        links: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.root = root
        self.refuses: Dict[str, int] = {}
        # amd-pstate.c of Linux 6.3 to 6.14 knows names only.
        self.takes_numbers = True
        common = {
            f"{CPU}/online": "0-3\n",
            f"{CPU}/possible": "0-3\n",
            "/etc/udev/rules.d/README": "",
            "/run/udev/control": "",
            "/proc/2/comm": "kthreadd\n",
            "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
            **BOOT_SERVICE,
        }
        self.host: FakeHost = build(root, {**common, **files, **(more or {})}, {**ENABLED, **(links or {})})
        self.host.files.rules.extend(
            [
                (rf"{CPU}/cpu(\d+)/cpufreq/scaling_governor", self._governor),
                (rf"{CPU}/cpu(\d+)/cpufreq/energy_performance_preference", self._preference),
                (rf"{CPU}/cpu(\d+)/cpufreq/scaling_(min|max)_freq", self._frequency),
                (rf"{CPU}/cpu(\d+)/power/energy_perf_bias", self._bias),
                (rf"{CPU}/cpu(\d+)/cpuidle/state(\d+)/disable", self._disable),
                (rf"{CPU}/(intel_pstate)/no_turbo", self._turbo),
                (rf"{CPU}/(cpufreq)/boost", self._turbo),
                (rf"{CPU}/cpu(\d+)/cpufreq/boost", self._policy_boost),
                (rf"{CPU}/(smt)/control", self._smt),
            ]
        )
        self.host.commands.programs["udevadm"] = self._udevadm
        # What a CPU that is offline had, for it has it again.
        self.away: Dict[str, str] = {}

    # what the machine says

    def text(self, cpu: int, file: str) -> str:
        return self.host.files.read(f"{CPU}/cpu{cpu}/{file}").strip()

    def each(self, file: str) -> List[str]:
        """A file of all CPUs that are online."""
        return [self.text(cpu, file) for cpu in self.online]

    @property
    def online(self) -> List[int]:
        return sorted(cpulist.parse(self.host.files.read(f"{CPU}/online").strip()))

    def put(self, path: str, text: str) -> None:
        """Somebody else, or the firmware, gives a file of the kernel this value."""
        self.host.files.store(path, text)

    def writes(self) -> List[Tuple[str, str]]:
        """The writes into /sys since the last call, in order, by what is behind the folder of CPUs."""
        made = [(path[len(CPU) + 1 :], text) for kind, path, text in self.host.files.log if kind == "set"]
        self.host.files.log.clear()
        return made

    def take_offline(self, *cpus: int) -> None:
        """They keep what they had, and nobody sees it."""
        for cpu in cpus:
            folder = self.root / f"{CPU.lstrip('/')}/cpu{cpu}"
            for name in ("cpufreq", "cpuidle", "power"):
                for path in sorted((folder / name).rglob("*"), reverse=True):
                    if path.is_file():
                        self.away[str(path)] = path.read_text()
                        path.unlink()
                    else:
                        path.rmdir()
        self._set_online(set(self.online) - set(cpus))

    def bring_online(self, *cpus: int) -> None:
        for path, text in list(self.away.items()):
            if any(f"/cpu{cpu}/" in path for cpu in cpus):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(text)
                del self.away[path]
        self._set_online({*self.online, *cpus})

    def _set_online(self, cpus: set[int]) -> None:
        self.host.files.store(f"{CPU}/online", cpulist.render(cpus))

    # the kernel

    def _refuse(self, path: str) -> None:
        if path in self.refuses:
            raise refusal(self.refuses[path], path)

    def _driver(self, cpu: str) -> str:
        return self.host.files.read(f"{CPU}/cpu{cpu}/cpufreq/scaling_driver").strip()

    def _governor(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        self._refuse(path[0])
        folder = os.path.dirname(path[0])
        offered = f"{folder}/scaling_available_governors"
        if value not in files.read(offered).split():
            # request_module("cpufreq_<name>"), where the governors are those of the kernel.
            if self._driver(path[1]) in ACTIVE or f"cpufreq_{value}.ko" not in (files.read_optional(MODULES) or ""):
                raise refusal(errno.EINVAL, path[0])
            files.store(offered, f"{files.read(offered).strip()} {value}")
        before = files.read(path[0]).strip()
        files.store(path[0], value)
        if self._driver(path[1]) in ACTIVE and value != before:
            preference = "performance" if value == "performance" else FIRMWARE_PREFERENCE
            files.store(f"{folder}/energy_performance_preference", preference)

    def _preference(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        self._refuse(path[0])
        governor = files.read(f"{os.path.dirname(path[0])}/scaling_governor").strip()
        if value not in PREFERENCES.split() and not (value.isdecimal() and self.takes_numbers):
            raise refusal(errno.EINVAL, path[0])
        if self._driver(path[1]) in ACTIVE and governor == "performance" and value not in ("performance", "0"):
            raise refusal(errno.EBUSY, path[0])
        files.store(path[0], SHOWN_AS.get(value, value))

    def _frequency(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        """Out of range, or beyond the other one, a value is clamped without a word."""
        self._refuse(path[0])
        folder = os.path.dirname(path[0])
        limits = {end: int(files.read(f"{folder}/cpuinfo_{end}_freq")) for end in ("min", "max")}
        other = int(files.read(f"{folder}/scaling_{'max' if path[2] == 'min' else 'min'}_freq"))
        clamped = max(limits["min"], min(limits["max"], int(value)))
        clamped = min(clamped, other) if path[2] == "min" else max(clamped, other)
        if files.exists(f"{folder}/base_frequency") and files.read(f"{CPU}/intel_pstate/no_turbo").strip() == "1":
            clamped = min(clamped, int(files.read(f"{folder}/base_frequency")))
        files.store(path[0], str(clamped))

    def _bias(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        self._refuse(path[0])
        files.store(path[0], value)

    def _disable(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        self._refuse(path[0])
        files.store(path[0], value)

    def _turbo(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        """Without turbo, frequencies are squeezed below the nominal one; with it they are not what they were."""
        self._refuse(path[0])
        files.store(path[0], value)
        for cpu in self.online:
            folder = f"{CPU}/cpu{cpu}"
            if path[1] == "intel_pstate":
                base = int(files.read(f"{folder}/cpufreq/base_frequency"))
                off = value == "1"
            else:
                off = value == "0"
                nominal = files.read_optional(f"{folder}/acpi_cppc/nominal_freq")
                base = int(nominal) * 1000 if nominal else 0
            if path[1] == "cpufreq" and files.exists(f"{folder}/cpufreq/boost"):
                files.store(f"{folder}/cpufreq/boost", value)
            if off and base:
                for end in ("min", "max"):
                    file = f"{folder}/cpufreq/scaling_{end}_freq"
                    files.store(file, str(min(base, int(files.read(file)))))
        percent = f"{CPU}/intel_pstate/min_perf_pct"
        if path[1] == "intel_pstate" and value == "1" and int(files.read(percent)) > 52:
            files.store(percent, "52")

    def _policy_boost(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        """store_local_boost() of drivers/cpufreq/cpufreq.c: not while the switch of the machine is off."""
        self._refuse(path[0])
        if files.read(f"{CPU}/cpufreq/boost").strip() == "0":
            raise refusal(errno.EINVAL, path[0])
        files.store(path[0], value)

    def _smt(self, files: KernelFiles, path: re.Match[str], value: str) -> None:
        self._refuse(path[0])
        now = files.read(path[0]).strip()
        if now in ("notsupported", "notimplemented"):
            raise refusal(errno.ENODEV, path[0])
        if now == "forceoff":
            raise refusal(errno.EPERM, path[0])
        files.store(path[0], value)
        files.store(f"{CPU}/smt/active", "1" if value == "on" else "0")
        if value == "on":
            self.bring_online(2, 3)
        elif now == "on":
            self.take_offline(2, 3)

    def _udevadm(self, argv: Sequence[str]) -> Any:
        from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed

        return Completed(0, "", "")


def refusal(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def params(**declaration: Any) -> Dict[str, Any]:
    return validated(CONCERN, declaration)


def run(machine: CpuMachine, check_mode: bool = False, **declaration: Any) -> Outcome:
    """One run of the module; its error is raised."""
    outcome = converge(CONCERN, params(**declaration), machine.host, check_mode=check_mode)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def changes_of(outcome: Outcome, scope: str = "effective") -> Dict[str, Tuple[Any, Any]]:
    """The changes of CPUs by setting."""
    return {
        change.setting: (change.before, change.after)
        for change in outcome.changes
        if change.scope == scope and change.object == "CPUs"
    }
