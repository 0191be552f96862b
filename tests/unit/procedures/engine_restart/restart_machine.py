# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Daemons of container engines behind ``systemctl``, which take up their files when they are told to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import procedure
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.docker import reload
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.engine_restart import procedure as restart
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.engine_restart.options import (
    OPTIONS as RESTART_OPTIONS,
)
from ansible_collections.gpufleet.node.tests.nodes.recorded import recorded_answer
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, build

DAEMON_JSON = "/etc/docker/daemon.json"
BEFORE = "/var/lib/gpufleet/baseline/container_runtime.json"
DECLARED = "/etc/gpufleet/declared.d/container_runtime.json"
NVIDIA = "/usr/bin/nvidia-container-runtime"
SOCKET = "/run/docker.sock"
START = 1_700_000_000.0
START_LIMIT = 5
FOUND = '{\n  "log-driver": "local"\n}\n'
STARTING = 'time="2026-11-22T00:00:00Z" level=info msg="Starting up"'
FAILURE = "failed to start daemon: mkdir /broken: read-only file system"


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = START
        self.then: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()


class Daemon:
    """``systemctl``, ``journalctl`` and a host for one unit.

    ``calls`` are the verbs that systemd was told, ``states`` what the unit is for the next looks, before ``state``.
    ``starts`` are those that systemd counts (StartLimitBurst= in systemd.unit(5)).
    """

    unit = ""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str]) -> None:
        self.root = root
        self.clock = Clock()
        for module in (restart, reload):
            monkeypatch.setattr(module, "time", self.clock)
        self.host: FakeHost = build(root, {"/run/systemd/system/.keep": "", "/var/lib/.keep": "", NVIDIA: "", **files})
        (root / NVIDIA.lstrip("/")).chmod(0o755)
        self.calls: List[str] = []
        self.starts = 0
        self.states: List[str] = []
        self.state = "inactive"
        self.log: List[str] = []
        self.host.commands.programs.update(systemctl=self.systemctl, journalctl=self.journalctl)

    def systemctl(self, argv: Sequence[str]) -> Completed:
        verb = argv[1]
        if verb == "show":
            return Completed(0, f"ActiveState={self.states.pop(0) if self.states else self.state}\n", "")
        assert argv[2] == self.unit
        if verb == "reset-failed":
            self.starts = 0
            return Completed(0, "", "")
        self.calls.append(verb)
        if verb == "restart" and self.starts == START_LIMIT:
            self.state = "failed"
        else:
            self.starts += verb == "restart"
            (self.restart if verb == "restart" else self.reload)()
        said = f'Job for {self.unit} failed.\nSee "systemctl status {self.unit}".\n'
        return Completed(0, "", "") if self.state == "active" else Completed(1, "", said)

    def journalctl(self, argv: Sequence[str]) -> Completed:
        assert argv[1:4] == [f"_SYSTEMD_UNIT={self.unit}", "_TRANSPORT=stdout", f"--since=@{int(START)}"]
        return Completed(0, "".join(f"{line}\n" for line in self.log), "")

    def restart(self) -> None:
        raise NotImplementedError

    def reload(self) -> None:
        raise NotImplementedError

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def text(self, path: str = DAEMON_JSON) -> Optional[str]:
        return self.host.files.read_optional(path)


class Docker(Daemon):
    """dockerd 26, with containers in it. It does not start with the data root ``/broken``."""

    unit = "docker.service"

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, text: Optional[str] = FOUND, *, containers: int = 0
    ) -> None:
        unit = "[Service]\nExecStart=/usr/sbin/dockerd -H fd://\nExecReload=/bin/kill -s HUP $MAINPID\n"
        files = {"/usr/sbin/dockerd": "", f"/usr/lib/systemd/system/{self.unit}": unit}
        super().__init__(root, monkeypatch, {**files, **({} if text is None else {DAEMON_JSON: text})})
        self.containers = containers
        self.has: Dict[str, Any] = {}
        self.pid = 4000
        self.reloaded: List[float] = []
        self.verdict = Completed(0, "configuration OK\n", "")
        self.hears = True
        self.ignores: Tuple[str, ...] = ()
        self.host.http_get = self.http_get  # type: ignore[method-assign]
        self.host.commands.programs["dockerd"] = self.dockerd
        self.restart()

    def dockerd(self, argv: Sequence[str]) -> Completed:
        return Completed(0, "Docker version 26.1.5+dfsg1, build 5d6db84\n", "") if len(argv) == 2 else self.verdict

    def http_get(self, socket: str, target: str) -> str:
        match = re.match(r"/events\?since=([\d.]+)&until=([\d.]+)&filters=", target)
        if match is None:
            return recorded_answer(self.host.files, socket, target)
        told = [moment for moment in self.reloaded if float(match[1]) <= moment <= float(match[2])]
        return "".join(f'{{"Type":"daemon","Action":"reload","time":{moment}}}\n' for moment in told)

    def file(self) -> Dict[str, Any]:
        found: Dict[str, Any] = json.loads(self.text() or "{}")
        return {key: value for key, value in found.items() if key not in self.ignores}

    def restart(self) -> None:
        wanted = self.file()
        if not (self.has.get("live-restore") and wanted.get("live-restore")) and self.has:
            self.containers = 0
        if wanted.get("data-root") == "/broken":
            self.state, self.has = "failed", {}
            self.log += [STARTING, FAILURE]
            self.gone()
            return
        self.state, self.has = "active", {**wanted, "started": True}
        self.pid += 1
        self.write("/run/docker.pid", str(self.pid))
        self.write(f"/proc/{self.pid}/comm", "dockerd\n")
        self.write(f"/proc/{self.pid}/status", STATUS_OF_ROOT)
        self.write(f"/proc/{self.pid}/cmdline", "/usr/sbin/dockerd\0-H\0fd://\0")
        self.write(f"/proc/{self.pid}/stat", f"{self.pid} (dockerd) S 1 " + "0 " * 17 + "555 0\n")
        self.tell()

    def gone(self) -> None:
        (self.root / "run/docker.pid").unlink(missing_ok=True)

    def reload(self) -> None:
        if not self.hears:
            self.log.append("unable to configure the Docker daemon")
            return
        wanted = self.file()
        # It never unsets, and takes only these.
        self.has.update({key: wanted[key] for key in ("runtimes", "default-runtime", "live-restore") if key in wanted})
        self.reloaded.append(self.clock.now)
        self.tell()

    def tell(self) -> None:
        features = self.has.get("features", {})
        info = {
            "ServerVersion": "26.1.5",
            "ContainersRunning": self.containers,
            "CgroupDriver": "systemd",
            "DockerRootDir": self.has.get("data-root", "/var/lib/docker"),
            "Runtimes": {"runc": {"path": "runc"}, **self.has.get("runtimes", {})},
            "DefaultRuntime": self.has.get("default-runtime", "runc"),
            "LiveRestoreEnabled": self.has.get("live-restore", False),
            "CDISpecDirs": ["/etc/cdi"] if features.get("cdi") else [],
            "Swarm": {"LocalNodeState": "inactive"},
        }
        self.write(f"{SOCKET}.http/info", json.dumps(info))


def declare(machine: Daemon, engine: str = "docker", **options: Any) -> Tuple[str, ...]:
    """A run of ``container_runtime``; what is needed afterwards."""
    entries = [{"engine": engine, **options}] if options.get("state") != "gone" else []
    state = "present" if entries else "absent"
    outcome = converge(
        CONCERN, validated(CONCERN, {"engines": entries, "state": state}), machine.host, check_mode=False
    )
    if outcome.error is not None:
        raise outcome.error
    return outcome.remaining.needs


def run(machine: Daemon, engine: str = "docker", *, check_mode: bool = False, **options: Any) -> Dict[str, Any]:
    defaults = {name: argument.get("default") for name, argument in RESTART_OPTIONS.items()}
    return procedure.run_through(
        restart.PROCEDURE, {**defaults, "engine": engine, **options}, machine.host, check_mode=check_mode
    )
