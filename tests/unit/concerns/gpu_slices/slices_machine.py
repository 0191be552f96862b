# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with GPUs on two NUMA nodes, and systemd as far as it is asked about slices and services.

systemd 252 was tried with each line: how it shows what it was given, and that it reads files at a reload only.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

ETC, LIB, CGROUP = "/etc/systemd/system", "/usr/lib/systemd/system", "/sys/fs/cgroup"
RULE = "/etc/polkit-1/rules.d/49-gpufleet-gpu_slices.rules"
DAEMON = "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"
NODES = "/sys/devices/system/node"
MACHINES = Path(__file__).resolve().parents[3] / "nvml_simulator" / "machines"
FILES = {
    "/run/systemd/system/.keep": "",
    f"{CGROUP}/cgroup.controllers": "cpuset cpu io memory pids\n",
    f"{CGROUP}/system.slice/memory.max": "max\n",
    f"{CGROUP}/system.slice/memory.swap.max": "max\n",
    "/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline\n",
    "/sys/block/nvme0n1/dev": "259:0\n",
    "/sys/class/block/nvme0n1/dev": "259:0\n",
    "/dev/nvme0n1": "",
    f"{LIB}/nvidia-persistenced.service": DAEMON,
    f"{LIB}/nvidia-dcgm.service": DAEMON,
    "/proc/500/oom_score_adj": "0\n",
    "/usr/share/polkit-1/rules.d/.keep": "",
    "/var/lib/dpkg/status": "",
}
DEFAULTS = {"MemorySwapMax": "infinity", "IOWeight": "[not set]", "AllowedCPUs": "", "AllowedMemoryNodes": ""}


class Systemd:
    """systemd: the texts of the units that it has read. A slice is active where it has a cgroup."""

    def __init__(self, host: FakeHost, root: Path) -> None:
        self._root = root
        self.read: Dict[str, str] = {}
        self.processes = {"nvidia-persistenced.service": 500}
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if not word.startswith("--")]
        if words[0] == "show":
            return Completed(0, "\n".join(self._shown(name) for name in words[1:]), "")
        if words[0] == "daemon-reload":
            self.read.clear()
            for folder in self._at(f"{CGROUP}/gpu.slice").glob("gpu-*.slice"):
                procs = folder / "job.scope" / "cgroup.procs"
                self.start(folder.name, *(map(int, procs.read_text().split()) if procs.exists() else ()))
        for name in words[1:]:
            # As systemd does, with all that runs there.
            shutil.rmtree(self._at(self.cgroup(name)), ignore_errors=True)
            self.read.pop(name, None)
        return Completed(0, "", "")

    def start(self, name: str, *processes: int) -> None:
        """Load a slice; what runs in it is in a scope of it."""
        lines = dict(line.partition("=")[::2] for line in self._text(name).splitlines())
        self._write(name, "cpuset.cpus.effective", lines.get("AllowedCPUs", "0-7"))
        self._write(name, "cpuset.mems.effective", lines.get("AllowedMemoryNodes", "0-1"))
        self._write(name, "memory.swap.max", "0" if "MemorySwapMax" in lines else "max")
        self._write(name, "io.weight", f"default {lines.get('IOWeight', '100')}")
        rate = lines.get("IOReadBandwidthMax", "").partition(" ")[2]
        self._write(name, "io.max", f"259:0 rbps={rate} wbps=max riops=max wiops=max" if rate else "")
        self._write(name, "cgroup.events", f"populated {int(bool(processes))}\nfrozen 0")
        shutil.rmtree(self._at(f"{self.cgroup(name)}/job.scope"), ignore_errors=True)
        if processes:
            self._write(name, "job.scope/cgroup.procs", "\n".join(map(str, processes)))

    def cgroup(self, name: str) -> str:
        return f"{CGROUP}/gpu.slice" if name == "gpu.slice" else f"{CGROUP}/gpu.slice/{name}"

    def stale(self) -> List[str]:
        """The units of which systemd knows another text than the files have."""
        return sorted(name for name, text in self.read.items() if text != self._on_disk(name))

    def _shown(self, name: str) -> str:
        text = self._text(name)
        shown: Dict[str, List[str]] = {key: [value] for key, value in DEFAULTS.items()}
        shown.update({"OOMScoreAdjust": ["0"], "ManagedOOMPreference": ["none"]})
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and key.startswith("IO") and key.endswith("Max"):
                shown.setdefault(key, []).append(value)
            elif equals and key not in ("Description", "ExecStart", "WantedBy"):
                shown[key] = [value]
        folder = self._at(f"{ETC}/{name}.d")
        known = "" if name not in self.read else " ".join(f"{ETC}/{name}.d/{one.name}" for one in folder.glob("*.conf"))
        shown["NeedDaemonReload"] = ["yes" if text != self._on_disk(name) else "no"]
        shown["DropInPaths"] = [known]
        shown["MainPID"] = [str(self.processes.get(name, 0))]
        return "".join(f"{key}={value}\n" for key, values in shown.items() for value in values)

    def _text(self, name: str) -> str:
        return self.read.setdefault(name, self._on_disk(name))

    def _on_disk(self, name: str) -> str:
        fragment = next(
            (path for path in (self._at(f"{ETC}/{name}"), self._at(f"{LIB}/{name}")) if path.exists()), None
        )
        drop_ins = sorted(self._at(f"{ETC}/{name}.d").glob("*.conf"))
        return "".join(
            path.read_text(errors="surrogateescape") for path in (*([fragment] if fragment else []), *drop_ins)
        )

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _write(self, name: str, file: str, text: str) -> None:
        path = self._at(f"{self.cgroup(name)}/{file}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def cpus_of(kind: str) -> Dict[str, str]:
    """The CPUs of each NUMA node, as the simulator's driver has them too."""
    found: Dict[str, str] = json.loads((MACHINES / f"{kind}.json").read_text())["nodes"]
    return found


def topology(kind: str) -> Dict[str, str]:
    nodes = cpus_of(kind)
    online = cpulist.render(number for cpus in nodes.values() for number in cpulist.parse(cpus))
    files = {"/sys/devices/system/cpu/online": f"{online}\n", "/sys/devices/system/cpu/possible": f"{online}\n"}
    for number, cpus in nodes.items():
        files[f"{NODES}/node{number}/cpulist"] = f"{cpus}\n"
        files[f"{NODES}/node{number}/meminfo"] = f"Node {number} MemTotal:  1000 kB\n"
        files[f"{NODES}/node{number}/distance"] = " ".join("10" if one == number else "21" for one in nodes) + "\n"
    return files


def machine(make: MakeMachine, kind: str = "a30-4", files: Optional[Mapping[str, str]] = None) -> GpuMachine:
    made = make(kind, files={**FILES, **topology(kind), **(files or {})})
    made.host.commands.programs.update(
        pkexec=lambda _argv: Completed(0, "", ""),
        getent=lambda argv: Completed(0 if argv[-1] == "gpu-users" else 2, "", ""),
    )
    Systemd(made.host, made.root)
    return made


def systemd_of(made: GpuMachine) -> Systemd:
    found = made.host.commands.programs["systemctl"]
    assert isinstance(found, Systemd)
    return found


def run(made: GpuMachine, *, check: bool = False, **options: Any) -> Outcome:
    """One run of the module. Raises ``GpuFleetError``, also what went wrong in the middle of it."""
    outcome = converge(CONCERN, validated(CONCERN, options), made.host, check_mode=check)
    if outcome.error is not None:
        raise outcome.error
    return outcome
