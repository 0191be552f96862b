# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fixtures of the NVML simulator, a plugin of pytest: a file of tests has its full name in ``pytest_plugins``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.fork_server import ForkServer, ForkServers
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import (
    SOURCES,
    Machine,
    Machines,
)

BUILDS = Path(__file__).resolve().parents[3] / ".cache" / "nvml_simulator"


def built_simulator() -> Path:
    """The simulator as its sources are now: built once for all Pythons that the tests run on."""
    sources = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".py", ".json", ".c", ".h", ".def"))
    content = hashlib.sha256()
    for path in sources:
        content.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    built = BUILDS / content.hexdigest()[:16]
    if not built.exists():
        fresh = BUILDS / f"{built.name}.{os.getpid()}"
        subprocess.run([sys.executable, str(SOURCES / "build.py"), str(fresh)], check=True, timeout=300)
        with contextlib.suppress(OSError):  # another session was faster
            fresh.rename(built)
        shutil.rmtree(fresh, ignore_errors=True)
    return built


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """The simulator, built from its sources."""
    servers = ForkServers(ForkServer(), ForkServer())
    yield Machines(built_simulator(), tmp_path_factory.mktemp("machines"), servers)
    servers.close()


@pytest.fixture
def machine(request: pytest.FixtureRequest, machines: Machines, tmp_path: Path) -> Machine:
    """The machine that ``@kind(...)`` says, or the ``MACHINE`` of the test's module, or an HGX H100.

    A machine of A100s behind switches has a fabric manager where nothing is seen of it, but for ``@without_manager``.
    """
    usual = getattr(request.module, "MACHINE", ("hgx-h100-80gb-8",))
    arguments = getattr(request, "param", usual)
    machine = machines.copy(tmp_path / "node", *arguments)
    if arguments[0] == "hgx-a100-80gb-8" and request.node.get_closest_marker("without_manager") is None:
        machine.tool("set", "system", "fabric_manager=1")
    return machine
