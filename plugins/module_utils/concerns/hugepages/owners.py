# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else gives huge pages their values: the names by which each of them knows the tunables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Tuple

from ..._kinds import tunables
from ..._kinds.tunables import PROC_SYS
from ..._linux import tmpfiles_d

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._kinds.tunables import BootAssignment
    from ..._linux.tmpfiles_d import TmpfilesLine

SYSCTL_TUNABLE = "/proc/sys/vm/nr_hugepages"
# vm.nr_hugepages_mempolicy writes the same number, by the memory policy of who writes it.
SYSCTL_KEYS = {"vm/nr_hugepages": SYSCTL_TUNABLE, "vm/nr_hugepages_mempolicy": SYSCTL_TUNABLE}
THP = "/sys/kernel/mm/transparent_hugepage"
POLICY = ("transparent_hugepages", "transparent_hugepage")


def read_tmpfiles(files: Files) -> Dict[str, str]:
    """The tmpfiles.d files about huge pages, path to text, in the order in which they are read."""
    return tmpfiles_d.read_texts(files, "hugepage")


def parse_tmpfiles(path: str, text: str) -> Tuple[TmpfilesLine, ...]:
    """The lines of a tmpfiles.d file that write a value into a tunable of huge pages."""
    return tuple(line for line in tmpfiles_d.parse(path, text, tmpfiles_d.WRITE) if "hugepage" in line.target)


def read_sysctl(files: Files) -> Tuple[BootAssignment, ...]:
    """What sysctl.d and /etc/sysctl.conf say; what is no number of pages is no assignment."""
    return tuple(line for line in tunables.read_sysctl(files, SYSCTL_KEYS) if line.value.isdecimal())


def of_path(target: str) -> Tuple[str, ...]:
    """The tunable that a path is, as services and scripts write it."""
    if target.startswith(PROC_SYS):
        known = SYSCTL_KEYS.get(target[len(PROC_SYS) :])
        return (known,) if known else ()
    return (target,) if "hugepage" in target else ()


def of_tuned(plugin: str, key: str) -> str:
    if plugin == "vm":
        return f"{THP}/enabled" if key in POLICY else ""
    if plugin == "sysctl":
        return SYSCTL_TUNABLE if key == "vm.nr_hugepages" else ""
    return key if plugin == "sysfs" and "hugepage" in key else ""
