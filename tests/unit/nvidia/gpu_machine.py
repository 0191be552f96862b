# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with GPUs: the files and commands of ``support`` with the NVML simulator as its driver.

A file of tests has this module in ``pytest_plugins``; a test takes the fixture of this name and calls it:
``gpu_machine("hgx-h100-80gb-8")``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Protocol, Tuple
from uuid import uuid4

import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import Machine, Machines
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost, build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

# A simulator that does not respond for so long never will; hangs have a test with a deadline of its own.
DEADLINE_SECONDS = 20.0
# A process of the fabric manager, in the tree of files.
FABRIC_MANAGER = {"/proc/77/comm": "nv-fabricmanage\n", "/proc/77/status": STATUS_OF_ROOT}


class GpuMachine:
    """``host`` is what a room gets, ``simulated`` the machine behind its driver. ``root`` is the tree of its files."""

    def __init__(self, root: Path, host: FakeHost, simulated: Machine) -> None:
        self.root = root
        self.host = host
        self.simulated = simulated

    def connect(self, **options: Any) -> None:
        """A new process for the driver, as every run of a module has its own. ``options`` are those of LocalNvml."""
        self.host.nvml.close()
        self.host.nvml = self.simulated.nvml(self.host.commands, **{"deadline": DEADLINE_SECONDS, **options})

    def sim(self, *arguments: object) -> str:
        """What ``nvml-sim`` prints; a refusal fails the test."""
        return self.simulated.tool(*arguments)

    def describe(self) -> Dict[str, Any]:
        return self.simulated.describe()

    def gpu(self, index: int) -> Dict[str, Any]:
        """One GPU as ``nvml-sim describe`` has it."""
        found: Dict[str, Any] = self.describe()["gpus"][index]
        return found

    def log(self, *, changes: bool = True) -> List[Tuple[str, int]]:
        """The calls since ``forget``, or those that change state: symbol and result, in order."""
        return [(call["symbol"], call["result"]) for call in self.simulated.calls(changes=changes)]

    def clear_logs(self) -> None:
        """Begin the logs anew: that of the simulator, and those of the files and the commands."""
        self.sim("log", "--clear")
        self.host.files.log.clear()
        self.host.files.reads.clear()
        self.host.commands.calls.clear()

    def reboot(self) -> None:
        """The driver starts anew, and ``/run`` is empty. Services are the matter of the test."""
        self.host.nvml.close()
        self.sim("reboot")
        for kind, path in _under(self.root / "run"):
            path.rmdir() if kind == "folder" else path.unlink()
        boot_id = self.root / "proc" / "sys" / "kernel" / "random" / "boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text(f"{uuid4()}\n")


class MakeMachine(Protocol):
    def __call__(
        self,
        kind: str = ...,
        *arguments: str,
        files: Optional[Mapping[str, str]] = None,
        links: Optional[Mapping[str, str]] = None,
    ) -> GpuMachine:
        """A machine as ``nvml-sim create KIND ARGUMENTS`` makes it, with these files and links."""


@pytest.fixture
def gpu_machine(machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeMachine]:
    made: List[GpuMachine] = []

    def make(
        kind: str = "hgx-h100-80gb-8",
        *arguments: str,
        files: Optional[Mapping[str, str]] = None,
        links: Optional[Mapping[str, str]] = None,
    ) -> GpuMachine:
        simulated = machines.copy(tmp_path / "simulated", kind, *arguments)
        # The process that asks the driver is a child of this one.
        for name, value in simulated.variables.items():
            monkeypatch.setenv(name, value)
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        if FABRIC_MANAGER.items() <= (files or {}).items():
            # The simulator does not look into that tree.
            simulated.tool("set", "system", "fabric_manager=1")
        machine = GpuMachine(root, build(root, files or {}, links), simulated)
        machine.connect()
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.host.nvml.close()


def _under(folder: Path) -> List[Tuple[str, Path]]:
    """What lies below a folder, from the inside out."""
    if not folder.is_dir():
        return []
    inside = sorted(folder.rglob("*"), key=lambda path: len(path.parts), reverse=True)
    return [("folder" if path.is_dir() and not path.is_symlink() else "file", path) for path in inside]
