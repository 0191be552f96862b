# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine for each concern of the registry, with a declaration that changes it: what all concerns have to keep."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import binding_machine
import engine_machine
import gpu_settings_machine
import hugepages_machine
import irq_machine
import kernel_modules_machine
import mig_layout_machine
import nvme_machine
import persistence_machine as persistence
import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.concern import NodeTools
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvml.concern import NvmlBinding
from gpu_machine import GpuMachine, MakeMachine
from support import FakeHost, build, snapshot
from test_node_tools import Systemctl

PROGRAM = b"PK the program of the node"
SHARED = {f"{folder}/.keep": "" for folder in ("/etc/systemd/system", "/usr/local/sbin", "/usr/local/lib", "/var/lib")}
CONCERNS = tuple(entry.name for entry in REGISTRY)


@dataclass
class Node:
    """One machine with what is declared for one concern of it, and something else that may be declared.

    ``state`` is what of the machine lies outside of its tree. ``connect`` is what a run begins with.
    """

    concern: AnyConcern
    host: FakeHost
    declaration: Mapping[str, Any]
    other: Mapping[str, Any]
    state: Callable[[], Any] = lambda: None
    connect: Callable[[], None] = lambda: None
    lasting: bool = field(default=False)

    def params(self, declaration: Mapping[str, Any]) -> Dict[str, Any]:
        validated = ArgumentSpecValidator({**SHARED_OPTIONS, **self.concern.options}).validate(dict(declaration))
        assert validated.error_messages == []
        found: Dict[str, Any] = validated.validated_parameters
        return found

    def run(self, declaration: Mapping[str, Any], **more: Any) -> Outcome:
        """One run of the module. Raises ``GpuFleetError``, also what went wrong in the middle of it."""
        self.connect()
        try:
            outcome = converge(self.concern, self.params({**declaration, **more}), self.host, check_mode=False)
        finally:
            self.host.nvml.close()
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def present(self) -> Outcome:
        return self.run(self.declaration)

    def absent(self) -> Outcome:
        required = {"archive_sha256": sha256(PROGRAM).hexdigest()} if self.concern.name == "node_tools" else {}
        return self.run(required, state="absent")

    def found(self, leave_out: Tuple[str, ...] = ("run",)) -> Tuple[Any, Any]:
        """All of the machine that a run may change, but what the next boot clears."""
        return snapshot(Path(self.host.files.root), leave_out=leave_out), self.state()

    def differs_from(self, earlier: Tuple[Any, Any]) -> List[Tuple[str, Any, Any]]:
        """What is not as ``found`` had it earlier."""
        tree, state = self.found()
        return [*difference(tree, earlier[0]), *([] if state == earlier[1] else [("state", earlier[1], state)])]


class Nodes:
    """Makes a new machine for a concern; those with GPUs are one machine, which a test leaves as it found it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        self._root = root
        self._monkeypatch = monkeypatch
        self._request = request
        self._made = 0
        self._with_gpus: Optional[Node] = None

    def __call__(self, concern: str) -> Node:
        if self._with_gpus is not None:
            return self._with_gpus
        self._made += 1
        root = self._root / str(self._made)
        root.mkdir()
        node: Node = getattr(self, f"_{concern}")(root)
        if node.lasting:
            self._with_gpus = node
        node.host.files.log.clear()
        return node

    def _hugepages(self, root: Path) -> Node:
        host = hugepages_machine.machine(root)
        return Node(
            concern_of("hugepages"),
            host,
            {"pools": [{"size": "2M", "pages": 8}, {"size": "1G", "pages": 2}], "transparent": {"enabled": "madvise"}},
            {"pools": [{"size": "2M", "pages": 12}]},
        )

    def _kernel_modules(self, root: Path) -> Node:
        loaded = kernel_modules_machine.NOUVEAU_LOADED
        host, _kernel = kernel_modules_machine.machine(root, loaded=loaded, initramfs=True)
        declaration = {"load": ["dummy"], "block": ["nouveau"]}
        return Node(concern_of("kernel_modules"), host, declaration, {"load": ["nvidia_uvm"]})

    def _nvme_scheduler(self, root: Path) -> Node:
        drives = [nvme_machine.Drive(0, scheduler="[none] mq-deadline kyber"), nvme_machine.Drive(1)]
        declaration = {"queues": [{"scheduler": "mq-deadline", "read_ahead_kb": 512}]}
        host = nvme_machine.machine(root, drives)
        return Node(concern_of("nvme_scheduler"), host, declaration, {"queues": [{"read_ahead_kb": 1024}]})

    def _nvml(self, root: Path) -> Node:
        host = binding_machine.machine(root, SHARED)
        sent = root / "pynvml.py"
        sent.write_text(binding_machine.CURRENT)
        declaration = {"pynvml_sha256": binding_machine.total(binding_machine.CURRENT)}
        (root / "node" / "opt").mkdir()
        (root / "node" / "opt" / "pynvml.py").write_text(binding_machine.CURRENT)
        return Node(NvmlBinding(str(sent)), host, declaration, {"source": "folder", "folder": "/opt"})

    def _nvidia_persistence(self, _root: Path) -> Node:
        make = self._request.getfixturevalue("persistence_machine")
        made = make("a30-4", unit=persistence.UBUNTU, files=persistence.BOOT_SERVICE)
        return self._on_gpus("nvidia_persistence", made.machine, {"enabled": True}, {"enabled": False})

    def _mig_layout(self, _root: Path) -> Node:
        made = mig_layout_machine.ready(self._make, "a30-4")
        other = {"gpus": [{"match": {"index": 0}, "layout": "all-2g"}]}
        return self._on_gpus("mig_layout", made, {"gpus": [{"match": {"index": 0}, "layout": "all-1g"}]}, other)

    def _gpu_settings(self, _root: Path) -> Node:
        made = gpu_settings_machine.ready(self._make, "l40s-1")
        declaration = {"gpus": [{"power_limit_watts": 250, "locked_graphics_clocks": "1200-1500"}]}
        return self._on_gpus("gpu_settings", made, declaration, {"gpus": [{"power_limit_watts": 200}]})

    def _numa_irq_affinity(self, root: Path) -> Node:
        host = irq_machine.IrqMachine(root).host
        declaration = {"interrupts": [{"match": {"interface": "eth0"}}]}
        return Node(concern_of("numa_irq_affinity"), host, declaration, {"interrupts": [irq_machine.LOCAL]})

    def _container_runtime(self, root: Path) -> Node:
        main = engine_machine.main_of("docker")
        machine = engine_machine.EngineMachine(root, self._monkeypatch, {main: "log=json\n"})
        declaration = {"engines": [{"engine": "docker", "default": True}]}
        return Node(concern_of("container_runtime"), machine.host, declaration, {"engines": [{"engine": "docker"}]})

    def _node_tools(self, root: Path) -> Node:
        host = build(root, {**SHARED, "/run/systemd/system/.keep": "", sys.executable: ""})
        Systemctl(host)
        declaration = {"archive_sha256": sha256(PROGRAM).hexdigest()}
        return Node(NodeTools(PROGRAM), host, declaration, {**declaration, "boot_timeout": 60})

    @property
    def _make(self) -> MakeMachine:
        make: MakeMachine = self._request.getfixturevalue("gpu_machine")
        return make

    def _on_gpus(
        self, concern: str, machine: GpuMachine, declaration: Mapping[str, Any], other: Mapping[str, Any]
    ) -> Node:
        names = ("persistence", "mig", "mig_pending", "instances", "power_limit")
        names += ("locked_graphics_min", "locked_graphics_max", "compute_mode", "ecc_pending")

        def state() -> Any:
            return [{name: gpu.get(name) for name in names} for gpu in machine.describe()["gpus"]]

        return Node(concern_of(concern), machine.host, declaration, other, state, machine.connect, lasting=True)


def difference(now: Mapping[str, Any], before: Mapping[str, Any]) -> List[Tuple[str, Any, Any]]:
    """The paths that differ, with both entries."""
    paths = sorted({*now, *before})
    return [(path, before.get(path), now.get(path)) for path in paths if now.get(path) != before.get(path)]


def concern_of(name: str) -> AnyConcern:
    return next(entry.concern for entry in REGISTRY if entry.name == name)


def failure_of(run: Callable[[], Outcome]) -> Optional[GpuFleetError]:
    """What a run failed with, None where it did not."""
    try:
        run()
    except GpuFleetError as error:
        return error
    return None


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Nodes:
    (tmp_path / "nodes").mkdir()
    return Nodes(tmp_path / "nodes", monkeypatch, request)
