# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``gpu_slices`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_slices import slices_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of, on_gpus


def contract_node(make: Make) -> Node:
    made = slices_machine.machine(make.gpu_machine, "l40s-1", files={"/etc/group": "root:x:0:\ngpu-users:x:990:\n"})
    systemd = slices_machine.systemd_of(made)
    node = on_gpus(
        concern_of("gpu_slices"),
        made,
        {
            "gpus": [{"io_weight": 200}],
            "launch_group": "gpu-users",
            "protected_services": [{"name": "nvidia-persistenced.service"}],
        },
        {"gpus": [{}], "numa_nodes": [{"node": 0}]},
    )
    gpus, save, restore = node.state, node.save_state, node.set_state
    assert save is not None

    def set_state(state: Any) -> None:
        restore(state[0])
        systemd.read.clear()
        systemd.read.update(state[1])

    node.state = lambda: (gpus(), systemd.stale())
    node.save_state = lambda: (save(), dict(systemd.read))
    node.set_state = set_state
    return node
