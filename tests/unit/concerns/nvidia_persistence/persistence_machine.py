# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with simulated GPUs whose systemd knows the unit of nvidia-persistenced, with a daemon that holds them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_service, systemd
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import EXEC_START
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.daemon import DROP_IN, UNIT
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

__all__ = ["DROP_IN", "UNIT"]

PROGRAM = Path(__file__).resolve().parents[3] / "nvml_simulator" / "persistenced.py"
VENDOR = f"/usr/lib/systemd/system/{UNIT}"
LINK = f"{systemd.ETC}/multi-user.target.wants/{UNIT}"
RULE = "/usr/lib/udev/rules.d/71-nvidia.rules"

# Of nvidia-persistenced and of nvidia-driver-cuda in NVIDIA's repository for RHEL.
UPSTREAM = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvpd
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
# Of nvidia-compute-utils in Ubuntu.
UBUNTU = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
UBUNTU_RULE = """\
# Start and stop nvidia-persistenced on power on and power off
ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", TAG+="systemd", ENV{SYSTEMD_WANTS}="nvidia-persistenced.service"
"""
BOOT_SERVICE = {
    f"{systemd.ETC}/{boot_service.UNIT}": f"[Service]\nExecStart={EXEC_START} boot\n",
    f"{systemd.ETC}/multi-user.target.wants/{boot_service.UNIT}": "",
    boot_service.PROGRAM: "",
    boot_service.ARCHIVE: "",
}


class Systemd:
    """``systemctl`` for the one unit. What it starts is what it read last, as ``daemon-reload`` is about."""

    def __init__(self, machine: GpuMachine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self.read: Optional[Mapping[str, Sequence[str]]] = None
        self.scopes: Dict[str, str] = {}
        self.daemon = 0

    @property
    def files(self) -> Any:
        return self.machine.host.files

    def __call__(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if word != "--no-reload"]
        if words[0] == "show":
            return Completed(0, self.show(words), "")
        action: Callable[[], None] = getattr(self, words[0].replace("-", "_"))
        try:
            action()
        except subprocess.CalledProcessError as error:
            return Completed(1, "", f"Job for {UNIT} failed.\n{error.stderr}")
        return Completed(0, "", "")

    def show(self, words: Sequence[str]) -> str:
        units = words[words.index("--") + 1 :]
        if "--property=NeedDaemonReload,DropInPaths" in words:
            due = self.read is not None and self.read != systemd.unit_lines(self.files, UNIT)
            return f"NeedDaemonReload={'yes' if due else 'no'}\n"
        return "\n".join(self.scopes.get(unit, f"Id={unit}\n") for unit in units)

    def daemon_reload(self) -> None:
        self.read = systemd.unit_lines(self.files, UNIT)

    def enable(self) -> None:
        Path(self.files.locate(LINK)).parent.mkdir(parents=True, exist_ok=True)
        Path(self.files.locate(os.path.dirname(LINK)), UNIT).symlink_to(VENDOR)

    add_wants = enable

    def disable(self) -> None:
        Path(self.files.locate(os.path.dirname(LINK)), UNIT).unlink()
        with contextlib.suppress(OSError):
            Path(self.files.locate(os.path.dirname(LINK))).rmdir()

    def start(self) -> None:
        if self.read is None:
            self.daemon_reload()
        if self.daemon:
            return
        assert self.read is not None
        (line,) = self.read["Service.ExecStart"]
        self.run(line)
        if self.read.get("Unit.StopWhenUnneeded", ("no",))[-1] == "true" and not self.needed:
            self.stop()

    @property
    def needed(self) -> bool:
        """Whether something active wants it: a target, or the device of the driver for which a udev rule speaks."""
        return systemd.enabled(self.files, UNIT) == systemd.ENABLED or bool(self.files.exists(RULE))

    def run(self, line: str) -> None:
        """The daemon of the simulator, with these arguments but for the user, whom the machine of a test lacks."""
        words = shlex.split(line)[1:]
        if "--user" in words:
            del words[words.index("--user") : words.index("--user") + 2]
        built = str(self.machine.simulated.built)
        script = f"import runpy, sys\nsys.path.insert(0, {built!r})\nsys.argv = {['nvidia-persistenced', *words]!r}\n"
        script += f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
        environment = self.machine.simulated.environment()
        subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
        self.daemon = int((self.folder / "nvidia-persistenced.pid").read_text())
        marker = Path(self.files.root, "run/nvidia-persistenced/socket")
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()

    def stop(self) -> None:
        if self.daemon:
            os.kill(self.daemon, signal.SIGTERM)
            while _state_of(self.daemon) != "Z":
                time.sleep(0.005)
            self.daemon = 0
            Path(self.files.root, "run/nvidia-persistenced/socket").unlink()

    def restart(self) -> None:
        self.stop()
        self.start()


class PersistenceMachine:
    """``GpuMachine`` with systemd. ``modes`` is what the driver says, asked by another process."""

    def __init__(self, machine: GpuMachine, service: Systemd) -> None:
        self.machine = machine
        self.systemd = service

    @property
    def host(self) -> FakeHost:
        return self.machine.host

    @property
    def root(self) -> Path:
        return self.machine.root

    def modes(self) -> List[str]:
        self.machine.connect()
        try:
            return self.host.nvml.ask(modes_of)
        finally:
            self.host.nvml.close()

    def run(self, *, check_mode: bool = False, **declaration: Any) -> Outcome:
        outcome = self.try_to_run(check_mode=check_mode, **declaration)
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def try_to_run(self, *, check_mode: bool = False, **declaration: Any) -> Outcome:
        """One run of the module, with its own process for the driver; a failure in the middle is in the outcome."""
        self.machine.connect()
        try:
            return converge(CONCERN, params(**declaration), self.host, check_mode=check_mode)
        finally:
            self.host.nvml.close()

    def reboot(self) -> None:
        """What the next boot makes of it: the daemon where it is enabled, then the boot service where it is there."""
        self.systemd.stop()
        self.machine.reboot()
        for folder in ("run/systemd/system", "run/gpufleet"):
            Path(self.root, folder).mkdir(parents=True, exist_ok=True)
        self.systemd.read = None
        if self.systemd.needed and systemd.enabled(self.host.files, UNIT) != systemd.MASKED:
            self.systemd.start()
        if not boot_service.why_not_persisted(self.host.files) and CONCERN.name in declared.names(self.host.files):
            left = json.loads(self.host.files.read(declared.path_of(CONCERN.name)))
            assert left["apply_at_boot"] is True
            self.run(**left["declaration"])


def modes_of(driver: Driver) -> List[str]:
    """A question: what the driver itself says."""
    modes = [driver.nvml.nvmlDeviceGetPersistenceMode(gpu.handle) for gpu in driver.gpus()]
    return ["on" if mode else "off" for mode in modes]


def params(**declaration: Any) -> Dict[str, Any]:
    """Parameters as Ansible would hand them over, defaults filled in. Raises ``ValueError`` with its message."""
    validator = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options})
    result = validator.validate(declaration)
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    validated: Dict[str, Any] = result.validated_parameters
    return validated


MakePersistenceMachine = Callable[..., PersistenceMachine]


@pytest.fixture
def persistence_machine(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePersistenceMachine]:
    """Makes machines: with Ubuntu's unit, with NVIDIA's own (``unit=UPSTREAM``), or with none (``unit=None``)."""
    made: List[PersistenceMachine] = []

    def make(
        kind: str = "hgx-h100-80gb-8",
        *,
        unit: Optional[str] = UBUNTU,
        files: Optional[Mapping[str, str]] = None,
        links: Optional[Mapping[str, str]] = None,
        running: bool = True,
        enabled: bool = False,
    ) -> PersistenceMachine:
        tree = {"/run/systemd/system/.keep": "", "/etc/systemd/system/.keep": "", "/var/lib/dbus/machine-id": "0\n"}
        if unit is not None:
            tree[VENDOR] = unit
        if unit == UBUNTU:
            tree[RULE] = UBUNTU_RULE
        tree.update(files or {})
        more = {LINK: VENDOR} if enabled else {}
        machine = gpu_machine(kind, files=tree, links={"/var/run": "/run", **more, **(links or {})})
        # Not below the folder of the test: the path of a socket must be short.
        folder = stack / str(len(made))
        machine.simulated.variables["NVML_SIM_PERSISTENCED"] = str(folder / "socket")
        monkeypatch.setenv("NVML_SIM_PERSISTENCED", str(folder / "socket"))
        service = Systemd(machine, folder)
        machine.host.commands.programs["systemctl"] = service
        made.append(PersistenceMachine(machine, service))
        if unit is not None and running:
            service.start()
        return made[-1]

    with tempfile.TemporaryDirectory(prefix="nvpd-") as name:
        stack = Path(name)
        yield make
        for machine in made:
            machine.systemd.stop()


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return "Z"
