# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fixtures of the NVML simulator, a plugin of pytest: ``pytest_plugins = ("nvml_simulator_fixtures",)``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from nvml_simulator_machine import SOURCES, Machine, Machines


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """The simulator, built from its sources."""
    built = tmp_path_factory.mktemp("nvml_simulator") / "built"
    subprocess.run([sys.executable, str(SOURCES / "build.py"), str(built)], check=True, timeout=300)
    return Machines(built, tmp_path_factory.mktemp("machines"))


@pytest.fixture
def machine(request: pytest.FixtureRequest, machines: Machines, tmp_path: Path) -> Machine:
    """The machine that ``@kind(...)`` says, or the ``MACHINE`` of the test's module, or an HGX H100."""
    usual = getattr(request.module, "MACHINE", ("hgx-h100-80gb-8",))
    return machines.copy(tmp_path / "machine", *getattr(request, "param", usual))
