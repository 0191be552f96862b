# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else has a hand in what this collection sets: another owner undoes our values, or we undo his."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List, Optional

from ..._core.regex import regex
from ..._kinds.tunables import of_tmpfiles
from ..._linux.tuned import ENABLED, read_profiles
from ...concerns.hugepages import owners as memory
from ...concerns.nvme_scheduler.rules import read_texts
from ...concerns.nvme_scheduler.udev import parse_texts
from .fields import Facts, Fields
from .services import find_unit, runs

if TYPE_CHECKING:
    from ..._core.protocols import Files

OURS = "gpufleet"
TUNED_PROFILE = "/etc/tuned/active_profile"
# What of tuned's plugins means a setting of ours.
TUNED_PLUGINS = ("cpu", "disk", "irq", "irqbalance", "scheduler", "sysctl", "sysfs", "vm")
CMDLINE = "/proc/cmdline"
ARGUMENTS = regex(
    r"(?:default_hugepagesz|hugepagesz|hugepages|transparent_hugepage|isolcpus|nohz_full|rcu_nocbs|irqaffinity"
    r"|numa_balancing|mitigations|intel_idle\.max_cstate|processor\.max_cstate|cpufreq\.default_governor)="
)
# Programs that manage GPUs by themselves, and the traces that they leave.
MANAGERS = (
    ("gpu-operator", "driver and its settings", "/run/nvidia/driver"),
    ("gpu-operator", "driver and its settings", "/run/nvidia/validations"),
    ("gpu-operator", "container runtime", "/usr/local/nvidia/toolkit"),
    ("nvidia-mig-manager", "MIG layout", "/etc/nvidia-mig-manager"),
    ("nvidia-mig-manager", "MIG layout", "/etc/systemd/system/nvidia-mig-manager.service"),
    ("nvidia-mig-manager", "MIG layout", "/usr/lib/systemd/system/nvidia-mig-manager.service"),
)


def gather(files: Files) -> List[Facts]:
    """Every other owner: what it sets, where that is written, and the value where there is one."""
    found = [*_tuned(files), *_irqbalance(files), *_hugepages(files), *_udev(files), *_command_line(files)]
    found.extend(_owner(name, setting, path) for name, setting, path in MANAGERS if files.exists(path))
    return found


def _owner(owner: str, setting: str, path: str, line: Optional[int] = None, value: Optional[str] = None) -> Facts:
    fields = Fields(owner=owner, setting=setting, path=path)
    fields.add("line", line, "it is not a line of this file")
    fields.add("value", value, "it is not known")
    return fields.facts


def _tuned(files: Files) -> Iterator[Facts]:
    active = (files.read_optional(TUNED_PROFILE) or "").strip()
    if not active:
        return
    yield _owner("tuned", "profile", TUNED_PROFILE, 1, active)
    if not (files.exists(ENABLED) or runs(files, "tuned")[0]):
        return
    for option in read_profiles(files, active.split()):
        if option.plugin in TUNED_PLUGINS:
            yield _owner("tuned", f"{option.plugin} {option.key}", option.path, option.line, option.value)


def _irqbalance(files: Files) -> Iterator[Facts]:
    unit = find_unit(files, "irqbalance")
    if unit is not None:
        running, _reason = runs(files, "irqbalance")
        value = None if running is None else "running" if running else "installed"
        yield _owner("irqbalance", "interrupt affinity", unit, None, value)


def _hugepages(files: Files) -> Iterator[Facts]:
    lines = list(memory.read_sysctl(files))
    for path, text in memory.read_tmpfiles(files).items():
        lines.extend(map(of_tmpfiles, memory.parse_tmpfiles(path, text)))
    for line in lines:
        if OURS not in line.path:
            yield _owner(line.owner, line.tunable, line.path, line.line, line.value)


def _udev(files: Files) -> Iterator[Facts]:
    texts = [(path, text) for path, text in read_texts(files) if OURS not in path]
    if not texts:
        return
    for rule_file in parse_texts(texts):
        for rule in rule_file.rules:
            for assignment in rule.assignments:
                for setting in assignment.settings:
                    yield _owner("udev", setting, assignment.path, assignment.line, assignment.value)


def _command_line(files: Files) -> Iterator[Facts]:
    for word in (files.read_optional(CMDLINE) or "").split():
        if ARGUMENTS.match(word):
            name, _equals, value = word.partition("=")
            yield _owner("kernel command line", name, CMDLINE, 1, value)
