# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with GPUs, systemd as far as it is asked about units of MPS, and the stand-in's control daemon in them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps import control
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps import files as mps_files
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

STAND_IN = Path(__file__).resolve().parents[3] / "nvml_simulator" / "mps.py"
ETC, UNIT, PIPES = systemd.ETC, mps_files.UNIT, "/run/nvidia-mps"
CGROUP = "/sys/fs/cgroup/system.slice"
PASSWD = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/bash\n"
FILES = {
    "/run/systemd/system/.keep": "",
    "/etc/passwd": PASSWD,
    "/var/lib/dpkg/status": "",
    "/var/log/dpkg.log": "",
    f"{CGROUP}/cgroup.procs": "",
    "/proc/net/unix": "Num       RefCount Protocol Flags    Type St Inode Path\n",
}


def _stand_in() -> Any:
    spec = importlib.util.spec_from_file_location("mps_stand_in", STAND_IN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


stand_in = _stand_in()


class Systemd:
    """``systemctl`` for these units. What it starts is what it read last, and it reads files at a reload only."""

    def __init__(self, host: FakeHost, root: Path) -> None:
        self._root = root
        self.read: Dict[str, str] = {}
        self.daemons: Dict[str, Any] = {}
        self.processes: Dict[str, int] = {}
        # A daemon that hangs, or has been killed with its sockets left.
        self.silent = False
        host.commands.programs["systemctl"] = self
        host.commands.programs[control.PROGRAM] = lambda _argv: Completed(0, "", "")
        host.commands.programs["env"] = self.front_end
        self._host = host

    # What the control program answers

    def front_end(self, argv: Sequence[str]) -> Completed:
        assert argv[2] == control.PROGRAM
        folder = argv[1].partition("=")[2]
        key = folder[len(PIPES) + 1 :]
        daemon = self.daemons.get(mps_files.unit_of(key))
        if daemon is None or self.silent:
            return Completed(1, "", f"{stand_in.ABSENT}\n")
        answers = [daemon.answer(line) for line in self._host.commands.data.splitlines()]
        return Completed(0, "".join(f"{answer}\n" for answer in answers if answer), "")

    def client(self, unit: str = UNIT, *, user: int = 1000, cgroup: str = "/user.slice/s.scope") -> int:
        """A program that computes through the daemon; the process of the program."""
        if not self.daemons[unit].servers:
            self.daemons[unit].answer(f"start_server -uid {user}")
        pid = self._process("python3", ("python3", "train.py"), {}, user=user, cgroup=cgroup)
        self.daemons[unit].connect(pid)
        return pid

    def end(self, pid: int, unit: str = UNIT) -> None:
        self.daemons[unit].disconnect(pid)
        shutil.rmtree(self.at(f"/proc/{pid}"))

    # systemd

    def __call__(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if not word.startswith("--")]
        verb, names = words[0], words[1:]
        if verb == "show":
            return Completed(0, "\n".join(map(self._shown, names)), "")
        if verb == "daemon-reload":
            self.read = {name: self._on_disk(name) for name in (*self._units(), *self.daemons)}
        for name in names:
            if verb in ("enable", "disable"):
                self._link(name, made=verb == "enable")
            if verb in ("stop", "restart"):
                self.stop(name)
            if verb in ("start", "restart"):
                self.start(name)
        return Completed(0, "", "")

    def start(self, name: str) -> None:
        if name in self.daemons:
            return
        text = self.read.setdefault(name, self._on_disk(name))
        found: Dict[str, List[str]] = {}
        for key, value in systemd.assignments(text):
            found.setdefault(key, []).append(value)
        environment = dict(line.partition("=")[::2] for line in found["Service.Environment"])
        command = found["Service.ExecStart"][-1].split()
        pid = self._process(control.PROGRAM, command, environment, unit=name)
        self.processes[name] = pid
        self.daemons[name] = stand_in.Control(environment, lambda: self._server(name, environment))
        # As ExecStartPost= tells it.
        for line in found["Service.ExecStartPost"][-1].split(";"):
            if "echo set_" in line:
                self.daemons[name].answer(line.partition("echo ")[2].strip())
        for folder in (
            f"/run/{found['Service.RuntimeDirectory'][-1]}",
            f"/var/log/{found['Service.LogsDirectory'][-1]}",
        ):
            self.at(folder).mkdir(parents=True, exist_ok=True)
        self.at(f"/run/{found['Service.RuntimeDirectory'][-1]}/control").touch()

    def stop(self, name: str) -> None:
        daemon = self.daemons.pop(name, None)
        if daemon is None:
            return
        assert not any(server.clients for server in daemon.servers.values()), "a daemon was stopped under its clients"
        for pid in (self.processes.pop(name), *daemon.servers):
            shutil.rmtree(self.at(f"/proc/{pid}"))
        shutil.rmtree(self.at(f"{CGROUP}/{name}"))
        shutil.rmtree(self.at(mps_files.pipes_of(mps_files.key_of(name))))

    def boot(self) -> None:
        """What is enabled starts, and nothing else runs."""
        for name in list(self.daemons):
            for server in self.daemons[name].servers.values():
                server.clients.clear()
            self.stop(name)
        self.read = {}
        for name in self._units():
            if self.at(f"{ETC}/multi-user.target.wants/{name}").is_symlink():
                self.start(name)

    # What a test keeps of it

    def state(self) -> Any:
        return sorted(
            (name, daemon.percentage, sorted(daemon.limits.items()), sorted(daemon.servers))
            for name, daemon in self.daemons.items()
        )

    def stale(self) -> List[str]:
        """The units of which systemd knows another text than the files have."""
        return sorted(name for name, text in self.read.items() if text != self._on_disk(name) and text)

    def at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _units(self) -> List[str]:
        return sorted(path.name for path in self.at(ETC).glob("gpufleet-mps*.service"))

    def _shown(self, name: str) -> str:
        text = self.read.setdefault(name, self._on_disk(name))
        due = "yes" if text != self._on_disk(name) else "no"
        known = " ".join(f"{ETC}/{name}.d/{path.name}" for path in sorted(self.at(f"{ETC}/{name}.d").glob("*.conf")))
        return f"Id={name}\nNeedDaemonReload={due}\nDropInPaths={known}\n"

    def _on_disk(self, name: str) -> str:
        paths = (self.at(f"{ETC}/{name}"), *sorted(self.at(f"{ETC}/{name}.d").glob("*.conf")))
        return "".join(path.read_text() for path in paths if path.exists())

    def _link(self, name: str, *, made: bool) -> None:
        folder = self.at(f"{ETC}/multi-user.target.wants")
        link = folder / name
        if made and not link.is_symlink():
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"{ETC}/{name}")
        if not made and link.is_symlink():
            link.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()

    def _server(self, name: str, environment: Mapping[str, str]) -> int:
        return self._process(control.SERVER_PROGRAM, (control.SERVER_PROGRAM,), environment, unit=name)

    def _process(
        self,
        program: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        unit: str = "",
        user: int = 0,
        cgroup: str = "",
    ) -> int:
        pid = next(number for number in range(5001, 6000) if not self.at(f"/proc/{number}").exists())
        folder = self.at(f"/proc/{pid}")
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{program[:15]}\n")
        (folder / "cmdline").write_text("\0".join((*command, "")))
        (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
        (folder / "status").write_text(f"Name:\t{program}\nUid:\t{user}\t{user}\t{user}\t{user}\n")
        (folder / "cgroup").write_text(f"0::{cgroup or f'/system.slice/{unit}'}\n")
        if unit:
            procs = self.at(f"{CGROUP}/{unit}/cgroup.procs")
            procs.parent.mkdir(parents=True, exist_ok=True)
            procs.write_text(f"{procs.read_text() if procs.exists() else ''}{pid}\n")
        return pid


def machine(
    make: MakeMachine, kind: str = "l40s-1", *, driver: str = "", files: Optional[Mapping[str, str]] = None
) -> GpuMachine:
    made = make(kind, *(("--driver", driver) if driver else ()), files={**FILES, **(files or {})})
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


def uuid_of(made: GpuMachine, index: int = 0) -> str:
    found: str = made.gpu(index)["uuid"]
    return found


def environment_of(text: str) -> Dict[str, str]:
    """The environment of a unit."""
    lines = [value for key, value in systemd.assignments(text) if key == "Service.Environment"]
    return dict(line.partition("=")[::2] for line in lines)
