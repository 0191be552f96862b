# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with two NUMA nodes of eight CPUs, two threads a core, its slices, and systemctl as far as it is asked.

As systemd 257 on a kernel 6.12 was seen to do: what was read at a reload is applied to a slice when the next unit
starts there, and the kernel refuses to empty a list while processes are below it. Where no unit has a list any more,
systemd switches the controller off, and the kernel leaves the processes the CPUs that they had.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_isolation.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, KernelFiles, build

CPU, NODE, GROUP = "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"
ETC, LIB = "/etc/systemd/system", "/usr/lib/systemd/system"
OURS = "99-gpufleet-cpu_isolation.conf"
SYSTEM = f"{ETC}/system.slice.d/{OURS}"
HOUSEKEEPING = f"{ETC}/housekeeping.slice.d/{OURS}"
ALL = "0-15"
CPUS = "0-1,8-9"
SERVICE = "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"


def group(name: str, cpus: str = ALL, asked: str = "") -> Dict[str, str]:
    """A control group with the cpuset controller."""
    folder = f"{GROUP}/{name}"
    return {f"{folder}/cpuset.cpus": f"{asked}\n", f"{folder}/cpuset.cpus.effective": f"{cpus}\n"}


def files_of() -> Dict[str, str]:
    files = {
        f"{CPU}/possible": f"{ALL}\n",
        f"{CPU}/online": f"{ALL}\n",
        f"{CPU}/offline": "\n",
        f"{CPU}/isolated": "\n",
        f"{CPU}/nohz_full": "(null)\n",
        f"{NODE}/node0/cpulist": "0-7\n",
        f"{NODE}/node1/cpulist": "8-15\n",
        f"{GROUP}/cgroup.controllers": "cpuset cpu io memory pids\n",
        f"{GROUP}/cpuset.cpus.effective": f"{ALL}\n",
        **group("system.slice"),
        f"{GROUP}/system.slice/chrony.service/cgroup.procs": "812\n",
        f"{LIB}/chrony.service": SERVICE,
        f"{LIB}/cron.service": SERVICE,
        f"{LIB}/kubelet.service": f"{SERVICE}[Service]\nDelegate=yes\n",
        "/run/systemd/system/.keep": "",
        f"{ETC}/.keep": "",
        "/var/lib/dpkg/status": "",
    }
    for number in range(16):
        files[f"{CPU}/cpu{number}/topology/thread_siblings_list"] = f"{number // 2 * 2}-{number // 2 * 2 + 1}\n"
    return files


class Systemd:
    """What systemd has read of our files, by unit. ``keeps`` is a kernel that empties no list.

    ``switches`` says whether systemd switches a controller off. ``processes`` are the CPUs of what runs in a slice.
    """

    def __init__(self, host: FakeHost) -> None:
        self._files = host.files
        self.read: Dict[str, str] = {}
        self.reloads = 0
        self.keeps = False
        self.switches = False
        self.processes: Dict[str, str] = {}
        self.scopes: Dict[str, str] = {}
        host.commands.programs["systemctl"] = self
        host.commands.programs["systemd-run"] = self._start
        host.files.rules.append((rf"{GROUP}/.*/cpuset\.cpus", self._take_list))

    def __call__(self, argv: Sequence[str]) -> Completed:
        if argv[1] == "show":
            return Completed(0, "\n".join(map(self._shown, argv[4:])), "")
        assert argv[1] == "daemon-reload", argv
        self.reloads += 1
        for folder in Path(f"{self._files.root}{ETC}").glob("*.d"):
            path = folder / OURS
            self.read[folder.name[:-2]] = path.read_text() if path.exists() else ""
        for unit in [name for name in self.read if not os.path.exists(f"{self._files.root}{ETC}/{name}.d/{OURS}")]:
            self.read[unit] = ""
        return Completed(0, "", "")

    def _start(self, argv: Sequence[str]) -> Completed:
        slices = [word.partition("=")[2] for word in argv if word.startswith("--slice=")]
        path = f"{GROUP}/{slices[0]}/cpuset.cpus"
        cpus = re.findall("^AllowedCPUs=(.+)$", self.read.get(slices[0], ""), re.MULTILINE)
        if not cpus and self.switches:
            self._files.remove(path)
            self._files.remove(f"{path}.effective")
        elif cpus or not self.keeps:
            self._store(path, cpus[0] if cpus else "")
        return Completed(0, "", "")

    def _shown(self, unit: str) -> str:
        if unit in self.scopes:
            return f"Id={unit}\n{self.scopes[unit]}\n"
        path = f"{ETC}/{unit}.d/{OURS}"
        there = self._files.read_optional(path) or ""
        known = self.read.get(unit, "")
        return f"NeedDaemonReload={'yes' if there != known else 'no'}\nDropInPaths={path if known else ''}\n"

    def _take_list(self, files: KernelFiles, match: re.Match[str], value: str) -> None:
        if not value.strip() and self.keeps:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), match[0])
        self._store(match[0], value.strip())

    def _store(self, path: str, cpus: str) -> None:
        self._files.store(path, cpus)
        self._files.store(f"{path}.effective", cpus or ALL)
        self.processes[os.path.basename(os.path.dirname(path))] = cpus or ALL


def machine(root: Path, extra: Optional[Mapping[str, str]] = None) -> FakeHost:
    host = build(root, {**files_of(), **(extra or {})})
    Systemd(host)
    return host


def systemd_of(host: FakeHost) -> Systemd:
    found = host.commands.programs["systemctl"]
    assert isinstance(found, Systemd)
    return found


def params(declared: Mapping[str, Any], concern: AnyConcern = CONCERN) -> Dict[str, Any]:
    """Complete parameters, as argument validation would hand them over."""
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **concern.options}).validate(dict(declared))
    assert validated.error_messages == []
    found: Dict[str, Any] = validated.validated_parameters
    return found


def run(host: FakeHost, cpus: Optional[str] = CPUS, *, check: bool = False, **more: Any) -> Outcome:
    """One run of the module. Raises ``GpuFleetError``, also what went wrong in the middle of it."""
    outcome = converge(CONCERN, params({"housekeeping_cpus": cpus, **more}), host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def effective(host: FakeHost, name: str = "system.slice") -> str:
    """What the kernel says of a slice."""
    return host.files.read(f"{GROUP}/{name}/cpuset.cpus.effective").strip()
