# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated nvidia-persistenced as a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import Machine, wait_until


def folder_of(machine: Machine) -> Path:
    return machine.state.parent / "nvidia-persistenced"


def start(machine: Machine, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", str(machine.built / "persistenced.py"), *options]
    return subprocess.run(command, env=machine.environment(), text=True, capture_output=True, timeout=120, check=False)


def alive(pid: int) -> bool:
    """Whether it runs; one that ended and still waits for its parent does not."""
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


@contextlib.contextmanager
def running(machine: Machine, *options: str) -> Iterator[int]:
    """A daemon in the background: its process id; it is told to end afterwards, if it has not been before."""
    done = start(machine, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int((folder_of(machine) / "nvidia-persistenced.pid").read_text())
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not alive(pid))
