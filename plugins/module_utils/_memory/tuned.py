# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What profiles of tuned set of huge pages. Imported only on a machine that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Tuple

from .._host import tuned
from .owners import SYSCTL_KNOB, THP, Assignment

if TYPE_CHECKING:
    from .._host.protocols import Files

POLICY = ("transparent_hugepages", "transparent_hugepage")


def read_active(files: Files) -> Tuple[Assignment, ...]:
    """What the active profile of an enabled tuned sets: what comes later replaces what came before."""
    found: Dict[str, Assignment] = {}
    for option in tuned.read_active(files):
        knob = _knob(option.plugin, option.key)
        if knob:
            found[knob] = Assignment("tuned", option.path, option.line, knob, option.value)
    return tuple(found.values())


def _knob(plugin: str, key: str) -> str:
    if plugin == "vm":
        return f"{THP}/enabled" if key in POLICY else ""
    if plugin == "sysctl":
        return SYSCTL_KNOB if key == "vm.nr_hugepages" else ""
    return key if plugin == "sysfs" and "hugepage" in key else ""
