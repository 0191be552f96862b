# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute node of Slurm with its daemons, which count GPUs as the real ones were recorded to (gres_recordings.py)."""

from __future__ import annotations

import os
import re
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.driver import GresGpu, GresInstance
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

NODE = "h1"
SLURM_CONF, GRES_CONF, CGROUP_CONF = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf"
UNIT = "/usr/lib/systemd/system/slurmd.service"
ADDRESSES = ("0000:17:00.0", "0000:65:00.0")
MODEL = "NVIDIA H100 80GB HBM3"
SHARED = ("shard", "mps")
SLURM_TEXT = """\
ClusterName=test
SlurmctldHost=ctl
TaskPlugin=task/affinity,task/cgroup # both
SelectType=select/cons_tres
NodeName=DEFAULT RealMemory=1024 \\
  State=UNKNOWN
NodeName=h1 Sockets=2 CoresPerSocket=2 ThreadsPerCore=1 Gres=gpu:old:1,nic:4
PartitionName=gpu Nodes=ALL Default=YES
"""
GRES_TEXT = (
    "# of our own\nNodeName=h[1-9] Name=gpu Type=old File=/dev/nvidia0\nName=nic Count=4\nNodeName=x1 Name=gpu Count=1"
)
PID = 4100
LINE = (
    "NodeName={node} Arch=x86_64 CoresPerSocket=2  CPUAlloc=0 CPUTot=4 Gres={gres} NodeAddr={node} NodeHostName={node} "
    "OS=Linux 6.1.0 #1 SMP  RealMemory=1024 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 Partitions=gpu  "
    "BootTime=2026-11-21T20:24:18 SlurmdStartTime={start} LastBusyTime=2026-11-22T04:34:57 AllocTRES= {reason}\n"
)


def gpu(index: int, *profiles: str, minor: Optional[int] = None, links: Optional[Mapping[str, int]] = None) -> GresGpu:
    """A GPU, with MIG on where it has profiles."""
    identity = Identity(index, f"GPU-{index}", ADDRESSES[index], MODEL, pci_ids=("10de:2330",))
    instances = tuple(GresInstance(number + 1, 0, profile) for number, profile in enumerate(profiles))
    return GresGpu(identity, index if minor is None else minor, bool(profiles), instances, links or {})


class Ended(Exception):
    """slurmd ended with these words."""


def counted(gres: str) -> Dict[str, int]:
    """The parts of a Gres= in slurm.conf, by name and type."""
    found: Dict[str, int] = {}
    for part in filter(None, gres.split(",")):
        kind, _colon, count = part.rpartition(":")
        found[kind] = found.get(kind, 0) + int(count)
    return found


def named(kind: str) -> str:
    return kind.partition(":")[0]


def total(counts: Mapping[str, int]) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for kind, count in counts.items():
        found[named(kind)] = found.get(named(kind), 0) + count
    return found


def scaled(count: int) -> str:
    """A count as slurmctld writes it."""
    return str(count) if count % 1024 or not count else f"{count // 1024}K"


class Driver:
    """``protocols.Nvml`` that knows these GPUs; what is really asked of a driver has its own test."""

    def __init__(self) -> None:
        self.gpus: Tuple[GresGpu, ...] = (gpu(0), gpu(1))

    def begin(self) -> None:
        pass

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        return self.gpus

    def close(self) -> None:
        pass


class SlurmMachine:
    """``daemons`` is what slurmctld and slurmd have in memory, with the state of the node."""

    def __init__(self, root: Path, *, controller: bool = True, running: bool = True) -> None:
        self.root = root
        for name in ("etc", "run", "var/lib", "dev"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.host: FakeHost = build(root, self._files())
        self.driver = Driver()
        self.host.nvml = self.driver
        real = self.host.files.status
        # Nobody but root makes a device.
        self.devices: List[str] = ["/dev/nvidia0", "/dev/nvidia1"]
        self.host.files.status = lambda path: os.stat("/dev/null") if path in self.devices else real(path)  # type: ignore[method-assign]
        self.controller = controller
        self.failed = False
        self.broken = ""
        # How many looks slurmctld has not heard of slurmd after a resume.
        self.silent = 0
        self.jobs = ""
        self.calls: List[Tuple[str, ...]] = []
        self.daemons: Dict[str, Any] = {
            "gres": "",
            "counts": {},
            "has": {},
            "flags": (),
            "reason": "",
            "base": "IDLE",
            "starts": 0,
        }
        programs = self.host.commands.programs
        # squeue is run by env, which takes the filters of whoever runs it away.
        programs.update(systemctl=self._systemctl, scontrol=self._scontrol, squeue=self._scontrol, env=self._squeue)
        self.boot = int(time.time()) - 100_000
        self.write("/proc/stat", f"cpu  1 2 3\nbtime {self.boot}\n")
        if running:
            self._start_slurmctld()
            self._start_slurmd()

    def _files(self) -> Dict[str, str]:
        files = {
            "/run/systemd/system/.keep": "",
            "/proc/sys/kernel/hostname": f"{NODE}.example.org\n",
            SLURM_CONF: SLURM_TEXT,
            GRES_CONF: GRES_TEXT,
            UNIT: "[Service]\nExecStart=/usr/sbin/slurmd --systemd $SLURMD_OPTIONS\n",
            "/sys/devices/system/cpu/online": "0-3\n",
        }
        for number in range(4):
            package = "0,2" if number % 2 == 0 else "1,3"
            files[f"/sys/devices/system/cpu/cpu{number}/topology/package_cpus_list"] = f"{package}\n"
            files[f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"] = f"{number}\n"
        for address, cpus in zip(ADDRESSES, ("0,2", "1,3")):
            files[f"/sys/bus/pci/devices/{address}/local_cpulist"] = f"{cpus}\n"
        return files

    # --- what a test does ---

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    def write(self, path: str, text: str) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def edit(self, path: str, old: str, new: str) -> None:
        text = self.read(path)
        assert old in text
        self.write(path, text.replace(old, new))

    def divide(self, number: int, *profiles: str, first_capability: int = 10) -> None:
        """Another layout of a GPU, with its device files."""
        self.driver.gpus = tuple(gpu(i, *profiles) if i == number else one for i, one in enumerate(self.driver.gpus))
        for at in range(len(profiles)):
            folder = f"/proc/driver/nvidia/capabilities/gpu{number}/mig/gi{at + 1}"
            for place, minor in ((folder, first_capability + 2 * at), (f"{folder}/ci0", first_capability + 2 * at + 1)):
                self.write(f"{place}/access", f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\n")
                self.devices.append(f"/dev/nvidia-caps/nvidia-cap{minor}")

    def restart(self, *units: str) -> None:
        """What an administrator does, or a reboot."""
        for unit in units:
            self._systemctl(["systemctl", "restart", f"{unit}.service"])

    def stop_slurmd(self) -> None:
        self.path(f"/proc/{PID}/stat").unlink()

    def run(self, *, check_mode: bool = False, **declaration: Any) -> Outcome:
        """One run of the module; its error is raised."""
        outcome = converge(CONCERN, self.params(**declaration), self.host, check_mode=check_mode)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def params(self, **declaration: Any) -> Dict[str, Any]:
        if "state" not in declaration and declaration.setdefault("devices", "explicit") is None:
            del declaration["devices"]
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(declaration)
        assert validated.error_messages == []
        found: Dict[str, Any] = validated.validated_parameters
        return found

    def refused(self, **declaration: Any) -> str:
        """The message of a run that must fail, and change nothing."""
        before = len(self.host.files.log)
        told = len(self.restarts)
        try:
            self.run(**declaration)
        except GpuFleetError as error:
            assert (len(self.host.files.log), len(self.restarts)) == (before, told)
            return str(error)
        raise AssertionError("it was not refused")

    def lines(self) -> List[str]:
        """The lines of gres.conf that count."""
        return [line for line in self.read(GRES_CONF).splitlines() if line and not line.startswith("#")]

    @property
    def restarts(self) -> List[str]:
        return [argv[2] for argv in self.calls if argv[1] == "restart"]

    @property
    def state(self) -> str:
        return "+".join((self.daemons["base"], *self.daemons["flags"]))

    # --- what the contract suite does ---

    def seen(self) -> Dict[str, Any]:
        return {name: value for name, value in self.daemons.items() if name != "starts"}

    def remember(self, daemons: Mapping[str, Any]) -> None:
        self.daemons = dict(daemons)

    # --- Slurm ---

    def _systemctl(self, argv: Sequence[str]) -> Completed:
        self.calls.append(tuple(argv))
        verb, unit = argv[1], argv[2]
        if verb == "show":
            pid = PID if self.path(f"/proc/{PID}/stat").exists() else 0
            active = "active" if pid else "failed" if self.failed else "inactive"
            ctld = 4000 if self.controller else 0
            return Completed(
                0,
                f"Id=slurmd.service\nMainPID={pid}\nActiveState={active}\n\n"
                f"Id=slurmctld.service\nMainPID={ctld}\nActiveState=active\n",
                "",
            )
        if verb == "restart":
            if unit.startswith("slurmctld"):
                self._start_slurmctld()
            elif not self._start_slurmd():
                return Completed(1, "", "Job for slurmd.service failed because the control process exited.\nSee ...\n")
        return Completed(0, "", "")

    def _start_slurmctld(self) -> None:
        self.daemons.update(gres=self._configured(), has={})
        if self.path(f"/proc/{PID}/stat").exists():
            self._measure()

    def _configured(self) -> str:
        found = re.search(rf"^NodeName=(?:{NODE}|h\[1-9\]) .*?Gres=(\S+)", self.read(SLURM_CONF), re.MULTILINE)
        return found[1] if found else ""

    def _start_slurmd(self) -> bool:
        gres = self.path(GRES_CONF)
        text = gres.read_text() if gres.exists() else ""
        self.daemons["starts"] += 1
        stat = self.path(f"/proc/{PID}/stat")
        try:
            self.daemons.update(counts=self._count(text), near="Cores=" in text)
        except Ended:
            self.failed = True
            if stat.exists():
                stat.unlink()
            return False
        self.failed = False
        cgroup = self.path(CGROUP_CONF)
        read = text + (cgroup.read_text() if cgroup.exists() else "")
        # Later than any file of a test is written; one that has read the same is the same.
        ticks = 20_000_000 + zlib.crc32(read.encode()) % 1000
        self.write(f"/proc/{PID}/stat", f"{PID} (slurmd) S 1 {' '.join(['0'] * 17)} {ticks} 0 0\n")
        self.write(f"/proc/{PID}/cmdline", "/usr/sbin/slurmd\0--systemd\0")
        self._measure()
        return True

    def _count(self, text: str) -> Dict[str, int]:
        """What slurmd reports by name and type: no more than slurm.conf has. Raises ``Ended``."""
        wanted = counted(self._configured())
        found: Dict[str, int] = {}
        types: Dict[str, str] = {}
        files: Dict[str, int] = {}
        auto = False
        for line in text.splitlines():
            words = dict(word.split("=", 1) for word in line.split() if "=" in word and not line.startswith("#"))
            if words.get("AutoDetect") == "nvml":
                auto = True
                found["gpu"] = sum(len(one.instances) if one.mig else 1 for one in self.driver.gpus)
            if "Name" not in words or words.get("NodeName", NODE) not in (NODE, "h[1-9]"):
                continue
            name, count = words["Name"], int(words.get("Count", 1))
            kind = f"{name}:{words['Type']}" if "Type" in words else name
            if name == "gpu" and "File" in words:
                types[words["File"]] = words.get("Type", "")
            if name in SHARED and "File" in words:
                files[name] = files.get(name, 0) + count
                kind = f"{name}:{types[words['File']]}".rstrip(":") if words["File"] in types else name
            found[kind] = found.get(kind, 0) + count
        # What the real slurmd has of NVML could not be recorded without GPUs: all that slurm.conf has, as it has it.
        if auto:
            return {**found, **{kind: count for kind, count in wanted.items() if named(kind) in SHARED}}
        for name in SHARED:
            of_name = {kind: count for kind, count in wanted.items() if named(kind) == name}
            if len(of_name) > 1:
                raise Ended('fatal: _build_shared_list: bad configuration, multiple configurations without "File"')
            if not of_name:
                continue
            total = sum(of_name.values())
            if name in files and files[name] < total:
                raise Ended('fatal: _build_shared_list: multiple configurations with and without "File"')
            if files.get(name) != total:
                # Without a count for each device, or with more than there are, they are dealt out.
                found = {kind: count for kind, count in found.items() if named(kind) != name}
                for kind in dict.fromkeys(types.values()):
                    found[f"{name}:{kind}".rstrip(":")] = total // len(set(types.values()))
        return {
            kind: count if named(kind) in SHARED else min(count, wanted[kind])
            for kind, count in found.items()
            if kind in wanted or named(kind) in SHARED
        }

    def _measure(self) -> None:
        """What slurmctld makes of a registration: it drains by itself, and never ends that.

        Its Gres= is what a registration has, but fewer than in slurm.conf only where that is the first one.
        """
        flags = set(self.daemons["flags"]) - {"INVALID_REG"}
        wanted, there = (total(counts) for counts in (counted(self.daemons["gres"]), self.daemons["counts"]))
        for name, count in wanted.items():
            if there.get(name, 0) < count:
                flags |= {"DRAIN", "INVALID_REG"}
                if not self.daemons["reason"]:
                    found = there.get(name, 0)
                    self.daemons["reason"] = f"gres/{name} count reported lower than configured ({found} < {count})"
        self.daemons["flags"] = tuple(sorted(flags))
        if "INVALID_REG" not in flags or not self.daemons["has"]:
            self.daemons["has"] = dict(self.daemons["counts"])

    @property
    def shown(self) -> str:
        """Gres= of scontrol: shares by the types of their GPUs once slurmd has registered."""
        parts = []
        reported = self.daemons["has"]
        for kind, count in counted(self.daemons["gres"]).items():
            name = named(kind)
            near = "(S:0-1)" if self.daemons.get("near") and name in ("gpu", *SHARED) else ""
            typed = {one: number for one, number in reported.items() if named(one) == name} if name in SHARED else {}
            # Of several types it has what was reported, and of one that is not there what was wanted.
            has = typed or {kind: reported.get(kind, count)}
            parts += [f"{one}:{scaled(number)}{near}" for one, number in has.items()]
        return ",".join(parts) or "(null)"

    def _squeue(self, argv: Sequence[str]) -> Completed:
        assert "squeue" in argv
        assert f"--nodelist={NODE}" in argv
        return Completed(0, self.jobs, "")

    def _scontrol(self, argv: Sequence[str]) -> Completed:
        if self.broken:
            return Completed(1, "", self.broken)
        if argv[1] == "update":
            assert argv[2:] == [f"NodeName={NODE}", "State=RESUME"]
            self.daemons.update(flags=tuple(flag for flag in self.daemons["flags"] if flag != "DRAIN"), reason="")
            self.silent = 1
            return Completed(0, "", "")
        if argv[-1] != NODE:
            return Completed(1, f"Node {argv[-1]} not found\n", "")
        reason = f"Reason={self.daemons['reason']} [slurm@2026-11-22T04:33:41]" if self.daemons["reason"] else ""
        start = f"2026-11-22T04:{self.daemons['starts'] // 60:02}:{self.daemons['starts'] % 60:02}"
        state = self.state + ("+NOT_RESPONDING" if self.silent else "")
        self.silent = max(0, self.silent - 1)
        return Completed(0, LINE.format(node=NODE, gres=self.shown, state=state, start=start, reason=reason), "")
