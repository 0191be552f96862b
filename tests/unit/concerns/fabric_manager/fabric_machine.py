# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines of the kinds that need a Fabric Manager, IMEX or neither, whose systemd and dpkg follow the real rules.

The daemons are stand-ins: they have a version, a process and the way in which NVIDIA documents that they fail.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.units import YIELDS
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.fabric import COMPLETED, FabricReading
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager.driver import FabricGpu
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, build

TREES = Path(__file__).parent / "trees"
H100, DGX_H100, PCIE = str(TREES / "hgx-h100.tree"), "hgx-2socket", "single-socket"
B200, GB200 = str(TREES / "hgx-b200.tree"), str(TREES / "gb200.tree")
DRIVER = "570.158.01"
NEW_DRIVER = "570.172.08"
FM_UNIT, IMEX_UNIT = "nvidia-fabricmanager.service", "nvidia-imex.service"
CFG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
IMEX_CFG = "/etc/nvidia-imex/config.cfg"
NODES_CFG = "/etc/nvidia-imex/nodes_config.cfg"
DPKG = "/var/lib/dpkg/status"
LOCKS = "/etc/dnf/plugins/versionlock.list"
NVLSM, IB_UMAD = "/opt/nvidia/nvlsm/sbin/nvlsm", "/sys/module/ib_umad"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
VENDOR = "/usr/lib/systemd/system"
GROUPS = "/sys/fs/cgroup/system.slice"
WANTS = "/etc/systemd/system/multi-user.target.wants"
MPS_UNIT, MPS_SERVER = "gpufleet-mps.service", 951
COMMANDS = {FM_UNIT: "nv-fabricmanager", IMEX_UNIT: "nvidia-imex"}

# As the package has it, with the key that its start script fills in.
CFG_TEXT = """\
# Fabric Manager configuration
LOG_LEVEL=4
LOG_FILE_NAME=/var/log/fabricmanager.log
FABRIC_MODE=0
# Abort CUDA jobs when the daemon ends.
ABORT_CUDA_JOBS_ON_FM_EXIT=1
FM_SM_MGMT_PORT_GUID=0xb83fd203004e1a2c
"""
IMEX_TEXT = """\
LOG_LEVEL=4
SERVER_PORT=50000
IMEX_CMD_ENABLED=0
IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg
"""
UNIT_TEXT = """\
[Unit]
Description={command}
After=network-online.target
[Service]
Type=forking
ExecStart=/usr/bin/{command}{options}
[Install]
WantedBy=multi-user.target
"""
PACKAGES = {
    "nvidia-fabricmanager-570": "570.158.01-1",
    "libnvsdm": "570.158.01-1",
    "libnvidia-compute-570": "1:570.158.01-0ubuntu0.24.04.1",
    "libnvidia-container1": "1.17.8-1",
    "nvidia-container-toolkit": "1.17.8-1",
    "nvidia-imex-570": "570.158.01-1",
    "bash": "5.2.21-2",
}


def dpkg_status(packages: Mapping[str, str], held: Sequence[str] = ()) -> str:
    return "\n".join(
        f"Package: {name}\nStatus: {'hold' if name in held else 'install'} ok installed\nPriority: optional\n"
        f"Version: {version}\nDescription: {name}\n more of it\n"
        for name, version in packages.items()
    )


class Driver:
    """``protocols.Nvml`` whose GPUs have the fabric of ``reading``; the one of the simulator has tests of its own."""

    def __init__(self) -> None:
        self.reading: Optional[FabricReading] = FabricReading(COMPLETED, 0, bytes(16), 0)
        self.asked = 0

    def begin(self) -> None:
        pass

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        self.asked += 1
        return tuple(FabricGpu(Identity(number, f"GPU-{number}"), self.reading) for number in range(2))

    def close(self) -> None:
        pass


class Systemd:
    """``systemctl`` for the two units. A daemon of another version than the loaded driver's does not start."""

    def __init__(self, machine: FabricMachine) -> None:
        self.machine = machine
        self.started: List[Tuple[str, str]] = []
        self.boot = int(time.time()) - 100_000
        # When every process begins, where that is not now: a machine is the same however often it is brought back.
        self.began = 0.0
        self.last = 0
        machine.write("/proc/stat", f"cpu  1 2 3\nbtime {self.boot}\n")

    def __call__(self, argv: Sequence[str]) -> Completed:
        verb, *names = [word for word in argv[1:] if not word.startswith("--")]
        for name in names:
            error: Optional[str] = getattr(self, f"_{verb.replace('-', '_')}")(name)
            if error:
                return Completed(1, "", f"{error}\n")
        return Completed(0, "", "")

    def running(self, unit: str) -> Optional[int]:
        pids = self._group(unit)
        return int(pids.read_text()) if pids.exists() and pids.read_text() else None

    def run(self, unit: str, ago: float = 0.0) -> None:
        """A process of the daemon, which began so many seconds ago."""
        machine, command = self.machine, COMMANDS[unit]
        pid = 4000 + list(COMMANDS).index(unit)
        began = self.began or time.time() - ago
        ticks = int((began - self.boot) * 100)
        if self.began:
            # Another process is known by its start, and one that has read the same is the same.
            ticks += zlib.crc32(machine.read(CFG).encode()) % 1000
        else:
            # No real daemon ends and starts again within a tick; here two runs may take less.
            ticks += ticks == self.last
            self.last = ticks
        machine.write(f"/proc/{pid}/stat", f"{pid} ({command[:15]}) S 1 {' '.join(['0'] * 17)} {ticks} 0 0\n")
        machine.write(f"/proc/{pid}/comm", f"{command[:15]}\n")
        machine.write(f"/proc/{pid}/status", STATUS_OF_ROOT)
        machine.write(f"/proc/{pid}/cmdline", "\0".join(["/usr/bin/" + command, *machine.options[unit], ""]))
        machine.write(f"{GROUPS}/{unit}/cgroup.procs", f"{pid}\n")

    def end(self, unit: str) -> None:
        if unit == MPS_UNIT:
            self.machine.client_ends(MPS_SERVER)
            self._group(unit).unlink()
            return
        pid = self.running(unit)
        if pid is not None:
            for name in ("stat", "comm", "cmdline", "status"):
                self.machine.path(f"/proc/{pid}/{name}").unlink()
            self.machine.path(f"/proc/{pid}").rmdir()
            self._group(unit).unlink()
            self._group(unit).parent.rmdir()

    def _group(self, unit: str) -> Path:
        return self.machine.path(f"{GROUPS}/{unit}/cgroup.procs")

    def _start(self, unit: str) -> Optional[str]:
        if unit != MPS_UNIT and self.running(unit):
            return None
        self.started.append(("start", unit))
        if unit == MPS_UNIT:
            return None
        loaded, version = self.machine.read("/sys/module/nvidia/version").strip(), self.machine.versions[COMMANDS[unit]]
        if version != loaded:
            return f"Job for {unit} failed because the control process exited with error code."
        self.run(unit)
        return None

    def _restart(self, unit: str) -> Optional[str]:
        told = len(self.started)
        self._stop(unit)
        error = self._start(unit)
        self.started[told:] = [("restart", unit)]
        return error

    def _stop(self, unit: str) -> None:
        self.started.append(("stop", unit))
        self.end(unit)

    def _enable(self, unit: str) -> None:
        link = self.machine.path(f"{WANTS}/{unit}")
        if not os.path.lexists(link):
            link.symlink_to(f"{VENDOR}/{unit}")

    def _disable(self, unit: str) -> None:
        self.machine.path(f"{WANTS}/{unit}").unlink(missing_ok=True)

    def _reset_failed(self, unit: str) -> None:
        pass


class FabricMachine:
    """A machine of one of these kinds, with the files of the driver, the daemons and the packages."""

    def __init__(
        self,
        root: Path,
        kind: str = H100,
        *,
        running: bool = True,
        enabled: bool = True,
        installed: Sequence[str] = (FM_UNIT, IMEX_UNIT),
        options: Optional[Mapping[str, Sequence[str]]] = None,
    ) -> None:
        nodetree.expand(nodetree.parse(Path(kind).read_text()) if kind.endswith(".tree") else kind, root)
        self.root = root
        self.versions = {"nv-fabricmanager": DRIVER, "nvidia-imex": DRIVER}
        self.options = {FM_UNIT: ("-c", CFG), IMEX_UNIT: ("-c", IMEX_CFG), **(options or {})}
        self.runs: List[Sequence[str]] = []
        for path in (f"{VENDOR}/{FM_UNIT}", f"{VENDOR}/{IMEX_UNIT}", f"{WANTS}/{FM_UNIT}"):
            self.path(path).unlink(missing_ok=True)
        self.host: FakeHost = build(root, self._files(installed))
        self.driver = Driver()
        self.host.nvml = self.driver
        self.systemd = Systemd(self)
        self.domain = Completed(0, '{"status": "UP", "nodes": {"0": {"status": "READY", "host": "192.0.2.11"}}}', "")
        programs = self.host.commands.programs
        programs["systemctl"] = self.systemd
        programs["apt-mark"] = self._apt_mark
        programs["grep"] = self._grep
        if kind == B200:
            self.write(NVLSM, "a program\n")
            self.write(f"{IB_UMAD}/refcnt", "2\n")
            programs["ibstat"] = lambda argv: self._ran(argv, Completed(0, "", ""))
        for unit in installed:
            programs[COMMANDS[unit]] = self._version
        if IMEX_UNIT in installed:
            programs["nvidia-imex-ctl"] = lambda argv: self._ran(argv, self.domain)
        for folder in (WANTS, GROUPS):
            self.path(folder).mkdir(parents=True, exist_ok=True)
        self.load_driver(DRIVER)
        self.install_driver(DRIVER)
        unit = IMEX_UNIT if kind == GB200 else FM_UNIT
        if enabled and unit in installed:
            self.systemd._enable(unit)
        if running and unit in installed:
            for path in (CFG, IMEX_CFG, NODES_CFG):
                if self.path(path).exists():
                    os.utime(self.path(path), (time.time() - 5000, time.time() - 5000))
            self.systemd.run(unit, ago=3600)

    def _files(self, installed: Sequence[str]) -> Dict[str, str]:
        files = {
            "/run/systemd/system/.keep": "",
            DPKG: dpkg_status(PACKAGES),
            "/etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n",
        }
        for unit in installed:
            options = "".join(f" {word}" for word in self.options[unit])
            files[f"{VENDOR}/{unit}"] = UNIT_TEXT.format(command=COMMANDS[unit], options=options)
            files[f"/usr/bin/{COMMANDS[unit]}"] = "a program\n"
        if FM_UNIT in installed:
            files[CFG] = CFG_TEXT
        if IMEX_UNIT in installed:
            files[IMEX_CFG] = IMEX_TEXT
            files[NODES_CFG] = "# one address a line\n"
        return files

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    def write(self, path: str, text: str) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def load_driver(self, version: str) -> None:
        self.write("/sys/module/nvidia/version", f"{version}\n")

    def install_driver(self, version: str) -> None:
        link = self.path(f"{LIBRARIES}/libnvidia-ml.so.1")
        link.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(link):
            link.unlink()
        link.symlink_to(f"libnvidia-ml.so.{version}")

    def install_daemon(self, version: str, command: str = "nv-fabricmanager") -> None:
        """Another version of the program on disk, as an upgrade of its package leaves it."""
        self.versions[command] = version
        self.path(f"/usr/bin/{command}").unlink()
        self.write(f"/usr/bin/{command}", f"a program of {version}\n")

    def edit(self, path: str, old: str, new: str, *, at: Optional[float] = None) -> None:
        """What somebody else does to a file."""
        text = self.read(path)
        assert old in text
        self.path(path).write_text(text.replace(old, new))
        if at is not None:
            os.utime(self.path(path), (at, at))

    def client(self, pid: int = 900, command: str = "python3", *, unit: str = "", status: str = STATUS_OF_ROOT) -> None:
        """A process that has a GPU open."""
        if unit:
            self.write(f"/proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
        self.write(f"/proc/{pid}/comm", f"{command[:15]}\n")
        self.write(f"/proc/{pid}/status", status)
        self.write(f"/proc/{pid}/stat", f"{pid} ({command[:15]}) S 1 {' '.join(['0'] * 17)} 5000 0 0\n")
        self.path(f"/proc/{pid}/fd").mkdir(parents=True)
        self.path(f"/proc/{pid}/fd/7").symlink_to("/dev/nvidia0")

    def mps(self, clients: Sequence[int] = ()) -> None:
        """An MPS daemon of ours, whose server has a GPU open, and these clients, which have none open themselves."""
        self.write(f"/etc/systemd/system/{MPS_UNIT}", f"[Unit]\n{YIELDS}\n")
        self.client(MPS_SERVER, "nvidia-cuda-mps-server", unit=MPS_UNIT)
        self.write(f"/proc/{MPS_SERVER - 1}/cmdline", "/usr/bin/nvidia-cuda-mps-control\0-f\0")
        self.write(f"{GROUPS}/{MPS_UNIT}/cgroup.procs", f"{MPS_SERVER - 1}\n{MPS_SERVER}\n")
        lists = {"get_server_list": str(MPS_SERVER), f"get_client_list {MPS_SERVER}": "\n".join(map(str, clients))}

        def answer(_argv: Sequence[str]) -> Completed:
            lines = [lists.get(line, "0") for line in self.host.commands.data.splitlines()]
            return Completed(0, "".join(f"{line}\n" for line in lines if line), "")

        self.host.commands.programs["env"] = answer

    def client_ends(self, pid: int = 900) -> None:
        self.path(f"/proc/{pid}/fd/7").unlink()
        self.path(f"/proc/{pid}/fd").rmdir()
        self.path(f"/proc/{pid}/comm").unlink()
        self.path(f"/proc/{pid}/status").unlink()
        self.path(f"/proc/{pid}/stat").unlink()
        self.path(f"/proc/{pid}/cgroup").unlink(missing_ok=True)
        self.path(f"/proc/{pid}").rmdir()

    def holds(self) -> List[str]:
        blocks = self.read(DPKG).split("\n\n")
        return sorted(block.split()[1] for block in blocks if "Status: hold" in block)

    def asked(self, command: str) -> int:
        return sum(os.path.basename(argv[0]) == command for argv in self.runs)

    def params(self, **declaration: Any) -> Dict[str, Any]:
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(declaration)
        assert validated.error_messages == []
        found: Dict[str, Any] = validated.validated_parameters
        return found

    def run(self, *, check_mode: bool = False, **declaration: Any) -> Outcome:
        """One run of the module; its error is raised."""
        outcome = converge(CONCERN, self.params(**declaration), self.host, check_mode=check_mode)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def refused(self, **declaration: Any) -> str:
        """The message of a run that must fail, and change nothing."""
        before = list(self.host.files.log)
        try:
            self.run(**declaration)
        except GpuFleetError as error:
            assert self.host.files.log == before, "something was changed"
            assert self.systemd.started == []
            return str(error)
        raise AssertionError("it was not refused")

    def rows(self, **declaration: Any) -> Dict[Tuple[str, str], Tuple[Any, Any, Any, str]]:
        """What a look shows: wanted, effective, boot and status of each setting."""
        plan = self.run(check_mode=True, **declaration).remaining
        return {
            (row.object, row.setting): (row.wanted, row.effective, row.boot, row.status)
            for row in plan.settings
            if not row.object.startswith(declared.FOLDER)
        }

    # --- programs ---

    def _ran(self, argv: Sequence[str], answer: Completed) -> Completed:
        self.runs.append(tuple(argv))
        return answer

    def _version(self, argv: Sequence[str]) -> Completed:
        """As the daemons say it."""
        command = os.path.basename(argv[0])
        title = "Fabric Manager" if command == "nv-fabricmanager" else "IMEX"
        return self._ran(argv, Completed(0, f"{title} version is : {self.versions[command]}\n", ""))

    def _apt_mark(self, argv: Sequence[str]) -> Completed:
        word = {"hold": ("install", "hold"), "unhold": ("hold", "install")}[argv[1]]
        text = self.read(DPKG)
        for name in argv[2:]:
            text, count = re.subn(
                rf"(Package: {re.escape(name)}\nStatus: ){word[0]} ", rf"\g<1>{word[1]} ", text, count=1
            )
            if not count:
                return Completed(100, "", f"E: Can't select installed package {name}\n")
        self.path(DPKG).write_text(text)
        return self._ran(argv, Completed(0, "", ""))

    def _grep(self, argv: Sequence[str]) -> Completed:
        """As grep with these options: the paths with a match."""
        paths = [word for word in argv if word.startswith("/")]
        found = [path for path in paths if b"SW_MNG" in self.path(path).read_bytes()]
        return self._ran(argv, Completed(0 if found else 1, "".join(f"{path}\n" for path in found), ""))
