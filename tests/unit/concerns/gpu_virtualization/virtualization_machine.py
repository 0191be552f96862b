# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with PCI functions whose drivers are bound and unbound by the rules of the kernel, and its programs.

Two H100, each alone in its IOMMU group, a workstation card that shares its own with its sound, and an NVMe drive.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization.files import PATH, UNIT
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, KernelFiles, build

PCI, DRIVERS = "/sys/bus/pci/devices", "/sys/bus/pci/drivers"
FIRST, SECOND, CARD, SOUND, DRIVE = "0000:17:00.0", "0000:65:00.0", "0000:b1:00.0", "0000:b1:00.1", "0000:31:00.0"
WANTS = "/etc/systemd/system/sysinit.target.wants"
# Address: vendor and device, class, IOMMU group, driver.
FUNCTIONS = {
    FIRST: ("10de:2330", "0x030200", "12", "nvidia"),
    SECOND: ("10de:2330", "0x030200", "13", "nvidia"),
    CARD: ("10de:2684", "0x030000", "20", "nvidia"),
    SOUND: ("10de:22ba", "0x040300", "20", "snd_hda_intel"),
    DRIVE: ("144d:a80a", "0x010802", "21", "nvme"),
}
MINORS = {FIRST: 0, SECOND: 1, CARD: 2}
# What a driver takes where there is no override.
TAKES = {"0x0302": "nvidia", "0x0300": "nvidia", "0x0403": "snd_hda_intel", "0x0108": "nvme"}
DRIVER_NAMES = ("nvidia", "snd_hda_intel", "nvme")
RELEASE = "6.8.0-60-generic"
FILES = {
    "/run/systemd/system/.keep": "",
    "/etc/systemd/system/.keep": "",
    "/var/lib/.keep": "",
    "/proc/cmdline": "ro intel_iommu=on\n",
    "/proc/cpuinfo": "vendor_id\t: GenuineIntel\n",
    "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
    f"/lib/modules/{RELEASE}/modules.dep": "kernel/drivers/vfio/pci/vfio-pci.ko:\nupdates/dkms/nvidia.ko:\n",
    f"/lib/modules/{RELEASE}/modules.builtin": "",
    "/sys/bus/pci/drivers_probe": "",
}


class Machine:
    """``host`` with all that the tests ask of it. ``closed`` are the GPUs that take no new client."""

    def __init__(
        self, root: Path, more: Optional[Mapping[str, str]] = None, functions: Sequence[str] = tuple(FUNCTIONS)
    ) -> None:
        texts, links = dict(FILES), {}
        for address in functions:
            ids, kind, group, driver = FUNCTIONS[address]
            texts.update(function(address, ids, kind))
            links[f"{PCI}/{address}/driver"] = f"../../drivers/{driver}"
            links[f"{PCI}/{address}/iommu_group"] = f"../../../../kernel/iommu_groups/{group}"
            texts[f"/sys/kernel/iommu_groups/{group}/devices/{address}"] = ""
        texts.update({f"{DRIVERS}/{name}/{file}": "" for name in DRIVER_NAMES for file in ("bind", "unbind")})
        texts.update(
            {information(address): minor_text(number) for address, number in MINORS.items() if address in functions}
        )
        self.host: FakeHost = build(root, {**texts, **(more or {})}, links)
        self.root = root
        self.closed: Set[str] = set()
        self.read: Dict[str, str] = {}
        files = self.host.files
        files.rules += [
            (rf"{PCI}/([^/]+)/driver_override", self._override),
            (rf"{DRIVERS}/([^/]+)/unbind", self._unbind),
            (f"{DRIVERS}_probe", self._probe),
        ]
        programs = self.host.commands.programs
        programs.update({"nvidia-smi": self._nvidia_smi, "modprobe": self._modprobe, "systemctl": self._systemctl})

    # What a test does and asks

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def run(self, *, check: bool = False, **options: Any) -> Outcome:
        """One run of the module. Raises ``GpuFleetError``, also what went wrong in the middle of it."""
        outcome = converge(CONCERN, validated(CONCERN, options), self.host, check_mode=check)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def driver(self, address: str) -> Optional[str]:
        link = self.at(f"{PCI}/{address}/driver")
        return os.path.basename(os.readlink(link)) if link.is_symlink() else None

    def bind(self, address: str, driver: str) -> None:
        """Let a function have this driver, whoever had it."""
        self.at(f"{PCI}/{address}/driver").unlink()
        self.at(f"{PCI}/{address}/driver").symlink_to(f"../../drivers/{driver}")

    def drivers(self, *addresses: str) -> List[Optional[str]]:
        return [self.driver(address) for address in addresses]

    def open(
        self,
        pid: int,
        path: str,
        command: str = "python3",
        cgroup: str = "/user.slice/s.scope",
        status: str = STATUS_OF_ROOT,
    ) -> None:
        """A process that has a device file open."""
        folder = self.at(f"/proc/{pid}")
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "3").symlink_to(path)
        (folder / "comm").write_text(f"{command[:15]}\n")
        (folder / "status").write_text(status)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "stat").write_text(f"{pid} ({command}) S 1 {' '.join(['0'] * 30)}\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.at(f"/proc/{pid}"))

    def without_iommu(self, command_line: str = "ro") -> None:
        shutil.rmtree(self.at("/sys/kernel/iommu_groups"))
        for address in FUNCTIONS:
            self.at(f"{PCI}/{address}/iommu_group").unlink()
        self.at("/proc/cmdline").write_text(f"{command_line}\n")

    def boot(self) -> None:
        """All functions are without a driver, the unit runs where it is enabled, and then all drivers are loaded."""
        for address in FUNCTIONS:
            if self.driver(address) is not None:
                self.let_go(address)
            self.at(f"{PCI}/{address}/driver_override").write_text("(null)\n")
        shutil.rmtree(self.at(f"{DRIVERS}/vfio-pci"), ignore_errors=True)
        if self.at(f"{WANTS}/{UNIT}").is_symlink():
            self.run_unit()
        for address in FUNCTIONS:
            if self.driver(address) is None:
                self._probed(address)

    def run_unit(self) -> None:
        """Carry out the commands of the unit, those of the shell by the shell itself."""
        probe = self.at("/sys/bus/pci/drivers_probe")
        for key, value in systemd.assignments(self.at(PATH).read_text()):
            if key != "Service.ExecStart":
                continue
            assert value.startswith("-"), "one that fails must not keep the others from it"
            words = shlex.split(value[1:])
            if words[0] == "/sbin/modprobe":
                self._modprobe(words)
                continue
            subprocess.run([word.replace("/sys/", f"{self.root}/sys/") for word in words], check=False)
            if probe.read_text():
                self._probed(probe.read_text().strip())
                probe.write_text("")

    # The kernel

    def _override(self, files: KernelFiles, match: Any, value: str) -> None:
        self.at(f"{PCI}/{match[1]}/driver_override").write_text(f"{value.strip() or '(null)'}\n")

    def _unbind(self, files: KernelFiles, match: Any, value: str) -> None:
        assert self.driver(value) == match[1]
        assert not self._opened(value), "the write waits in the kernel for ever"
        assert match[1] != "nvidia" or value in self.closed, "a new client may come before the GPU is gone"
        self.let_go(value)

    def _probe(self, files: KernelFiles, match: Any, value: str) -> None:
        if self.driver(value) is None:
            self._probed(value)

    def _probed(self, address: str) -> None:
        said = self.at(f"{PCI}/{address}/driver_override").read_text().strip()
        kind = self.at(f"{PCI}/{address}/class").read_text()[:6]
        name = TAKES[kind] if said == "(null)" else said
        if self.at(f"{DRIVERS}/{name}").exists():
            self.at(f"{PCI}/{address}/driver").symlink_to(f"../../drivers/{name}")
            if name == "nvidia":
                self.at(information(address)).parent.mkdir(parents=True, exist_ok=True)
                self.at(information(address)).write_text(minor_text(MINORS[address]))
                # A file of the kernel, which has no umask.
                self.at(information(address)).chmod(0o644)

    def let_go(self, address: str) -> None:
        self.at(f"{PCI}/{address}/driver").unlink()
        shutil.rmtree(self.at(information(address)).parent, ignore_errors=True)
        self.closed.discard(address)

    def _opened(self, address: str) -> List[str]:
        group = FUNCTIONS[address][2]
        mine = {f"/dev/nvidia{MINORS.get(address)}"} if self.driver(address) == "nvidia" else {f"/dev/vfio/{group}"}
        links = (os.readlink(path) for path in self.root.glob("proc/[0-9]*/fd/*"))
        return [path for path in links if path in mine]

    # The programs

    def _nvidia_smi(self, argv: Sequence[str]) -> Completed:
        words = list(argv[1:])
        if words[0] == "-i":
            for path in self.root.glob("proc/[0-9]*"):
                if (path / "comm").read_text() == "nvidia-persiste\n":
                    shutil.rmtree(path)
        else:
            assert words[:2] == ["drain", "-p"]
            self.closed.add(words[2]) if words[-1] == "1" else self.closed.discard(words[2])
        return Completed(0, "", "")

    def _modprobe(self, argv: Sequence[str]) -> Completed:
        folder = self.at(f"{DRIVERS}/{argv[1]}")
        folder.mkdir(exist_ok=True)
        for name in ("bind", "unbind"):
            (folder / name).touch()
        return Completed(0, "", "")

    def _systemctl(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if not word.startswith("--")]
        text = self.at(PATH).read_text() if self.at(PATH).exists() else ""
        if words[0] == "show":
            due = self.read.setdefault(UNIT, text) != text
            return Completed(0, f"Id={UNIT}\nNeedDaemonReload={'yes' if due else 'no'}\nDropInPaths=\n", "")
        if words[0] == "daemon-reload":
            self.read = {UNIT: text}
        link = self.at(f"{WANTS}/{UNIT}")
        if words[0] == "enable" and not link.is_symlink():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(PATH)
        if words[0] == "disable" and link.is_symlink():
            link.unlink()
            link.parent.rmdir()
        return Completed(0, "", "")


def function(address: str, ids: str, kind: str) -> Dict[str, str]:
    """The files of a function of PCI."""
    vendor, _colon, device = ids.partition(":")
    texts = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": kind, "driver_override": "(null)"}
    return {f"{PCI}/{address}/{name}": f"{text}\n" for name, text in texts.items()}


def information(address: str) -> str:
    return f"/proc/driver/nvidia/gpus/{address}/information"


def minor_text(number: int) -> str:
    return f"Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t {number}\n"
