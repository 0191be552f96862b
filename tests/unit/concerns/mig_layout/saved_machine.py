# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with GPUs that goes back to a state it had."""

from __future__ import annotations

import shutil

from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ARCHIVE, PROGRAM
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine
from ansible_collections.gpufleet.node.tests.unit.support import build

SERVICE = "nvidia-dcgm.service"


class Saved:
    """A machine as it is now, to go back to: the state of its driver, and the files that runs write."""

    FOLDERS = ("run/gpufleet", "var/lib/gpufleet", "etc/gpufleet")

    def __init__(self, machine: GpuMachine) -> None:
        self.machine = machine
        self.state = machine.simulated.state.read_bytes()

    def restore(self) -> None:
        self.machine.simulated.state.write_bytes(self.state)
        for folder in self.FOLDERS:
            shutil.rmtree(self.machine.root / folder, ignore_errors=True)
        # Runs do not write the program that a boot starts.
        build(self.machine.root, {PROGRAM: "", ARCHIVE: ""})
