# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with two NUMA nodes of eight CPUs, two threads a core, whose GRUB generates its menu."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages import hugepages_machine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

CPU = "/sys/devices/system/cpu"
GPU = "/sys/bus/pci/devices/0000:3b:00.0"
DROP_IN = "/etc/default/grub.d/gpufleet-kernel_cmdline.cfg"
MENU = "/boot/grub/grub.cfg"


def cpus() -> Dict[str, str]:
    files = {
        f"{CPU}/possible": "0-15\n",
        f"{CPU}/online": "0-15\n",
        f"{CPU}/isolated": "\n",
        f"{CPU}/nohz_full": "(null)\n",
        f"{GPU}/vendor": "0x10de\n",
        f"{GPU}/class": "0x030200\n",
        f"{GPU}/local_cpulist": "8-11\n",
    }
    for number in range(16):
        files[f"{CPU}/cpu{number}/topology/thread_siblings_list"] = f"{number // 2 * 2}-{number // 2 * 2 + 1}\n"
    return files


def machine(root: Path, *, extra: Optional[Mapping[str, str]] = None, **shape: Any) -> FakeHost:
    return hugepages_machine.machine(root, extra={**cpus(), **(extra or {})}, **shape)


def reboot(host: FakeHost) -> None:
    """The kernel gets the line of the menu, and takes its lists of CPUs."""
    line = next(line for line in host.files.read(MENU).splitlines() if line.strip().startswith("linux"))
    # As GRUB reads its menu: a semicolon ends a command outside of quotes, which it takes away.
    command = re.match(r'(?:"[^"]*"|[^;"])*', line)
    passed = command[0].split(None, 2)[2].replace('"', "") if command else ""
    host.files.store("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz-6.8 {passed}")
    words = dict(word.partition("=")[::2] for word in reversed(passed.split()))
    host.files.store(f"{CPU}/isolated", words.get("isolcpus", "").replace("domain,", ""))
    host.files.store(f"{CPU}/nohz_full", words.get("nohz_full", "(null)"))


def params(**declared: Any) -> Dict[str, Any]:
    """Complete parameters, as argument validation would hand them over."""
    shared = {"state": "present", "immediate": True, "permanent": True, "strict": False, "accepted": []}
    return {**shared, "arguments": None, "most_isolated": False, **declared}


def run(host: FakeHost, arguments: Optional[Mapping[str, Any]] = None, **declared: Any) -> Outcome:
    """One run of the module. Raises ``GpuFleetError`` before anything changed."""
    return converge(CONCERN, params(arguments=arguments, **declared), host, check_mode=False)
