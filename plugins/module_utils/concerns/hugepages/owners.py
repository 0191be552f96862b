# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else gives kernel tunables a value at boot: tmpfiles.d, sysctl.d and the active profile of tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Sequence, Tuple

from ..._core.value import frozen
from ..._linux import sysctl_d, tmpfiles_d, tuned

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.sysctl_d import SysctlLine
    from ..._linux.tmpfiles_d import TmpfilesLine

# Two names of one number.
SYSCTL_KEYS = ("vm/nr_hugepages", "vm/nr_hugepages_mempolicy")
SYSCTL_TUNABLE = "/proc/sys/vm/nr_hugepages"
THP = "/sys/kernel/mm/transparent_hugepage"


@frozen
class BootAssignment:
    """A line somewhere that gives a tunable a value. ``tunable`` is a path below /sys or /proc, in tmpfiles.d maybe a
    glob.

    ``at_boot`` and ``later`` say when it is carried out: at boot, or again while the system runs (an installed package
    runs systemd-tmpfiles, somebody runs ``sysctl --system``).
    """

    owner: str
    path: str
    line: Optional[int]
    tunable: str
    value: str
    at_boot: bool = True
    later: bool = True


def read_tmpfiles(files: Files) -> Dict[str, str]:
    """The tmpfiles.d files about huge pages, path to text, in the order in which they are read."""
    return tmpfiles_d.read_texts(files, "hugepage")


def parse_tmpfiles(path: str, text: str) -> Tuple[TmpfilesLine, ...]:
    """The lines of a tmpfiles.d file that write a value into a tunable of huge pages."""
    return tuple(line for line in tmpfiles_d.parse(path, text, tmpfiles_d.WRITE) if "hugepage" in line.target)


def of_tmpfiles(line: TmpfilesLine) -> BootAssignment:
    value = (line.argument or "").strip()
    return BootAssignment("tmpfiles.d", line.path, line.number, line.target, value, later=not line.boot_only)


def read_sysctl(files: Files) -> Tuple[BootAssignment, ...]:
    """The assignments of vm.nr_hugepages that count: the last one in sysctl.d, and the one in /etc/sysctl.conf."""
    found = sysctl_d.read_files(files)
    counts = _of_sysctl("sysctl.d", found.boot, at_boot=True)
    return counts if found.conf_at_boot else counts + _of_sysctl("sysctl.conf", found.conf, at_boot=False)


def read_tuned(files: Files) -> Tuple[BootAssignment, ...]:
    """What the active profile of an enabled tuned sets, includes resolved: it does so whenever it starts."""
    if not files.exists("/etc/tuned/active_profile"):
        return ()  # Most nodes have no tuned; its files are parsed only where it has a profile.
    return read_active(files)


def _of_sysctl(owner: str, lines: Sequence[SysctlLine], *, at_boot: bool) -> Tuple[BootAssignment, ...]:
    last = sysctl_d.written(lines, SYSCTL_KEYS)[-1:]
    return tuple(
        BootAssignment(owner, line.path, line.number, SYSCTL_TUNABLE, line.value, at_boot)
        for line in last
        if line.value and line.value.isdigit()
    )


POLICY = ("transparent_hugepages", "transparent_hugepage")


def read_active(files: Files) -> Tuple[BootAssignment, ...]:
    """What the active profile of an enabled tuned sets: what comes later replaces what came before."""
    found: Dict[str, BootAssignment] = {}
    for option in tuned.read_active(files):
        tunable = _tunable(option.plugin, option.key)
        if tunable:
            found[tunable] = BootAssignment("tuned", option.path, option.line, tunable, option.value)
    return tuple(found.values())


def _tunable(plugin: str, key: str) -> str:
    if plugin == "vm":
        return f"{THP}/enabled" if key in POLICY else ""
    if plugin == "sysctl":
        return SYSCTL_TUNABLE if key == "vm.nr_hugepages" else ""
    return key if plugin == "sysfs" and "hugepage" in key else ""
