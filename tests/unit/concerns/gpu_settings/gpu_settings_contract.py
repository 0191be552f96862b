# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``gpu_settings`` keeps the contract of all concerns."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings import gpu_settings_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of, on_gpus

# In the tree of the machine, which is saved and compared: the simulator's own nvidia-smi is a process for every look.
TIME_SLICE = "/sys/simulated/time_slice"
SLICES = ("Default", "Short", "Medium", "Long")


def contract_node(make: Make) -> Node:
    machine = gpu_settings_machine.ready(make.gpu_machine, "l40s-1", files={TIME_SLICE: "0"})

    def nvidia_smi(argv: Sequence[str]) -> Completed:
        state = Path(machine.host.files.locate(TIME_SLICE))
        if argv[-2] == "--set-timeslice":
            state.write_text(argv[-1])
            return Completed(0, "", "")
        return Completed(0, f"|   0     Timeslice   {SLICES[int(state.read_text())]}  |\n", "")

    machine.host.commands.programs["nvidia-smi"] = nvidia_smi
    wanted = {
        "power_limit_watts": 250,
        "locked_graphics_clocks": "1200-1500",
        "ecc": "disabled",
        "time_slice": "short",
    }
    return on_gpus(concern_of("gpu_settings"), machine, {"gpus": [wanted]}, {"gpus": [{"power_limit_watts": 200}]})
