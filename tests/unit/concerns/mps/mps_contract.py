# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``mps`` keeps the contract of all concerns."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.mps import mps_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of, on_gpus


def contract_node(make: Make) -> Node:
    made = mps_machine.machine(make.gpu_machine)
    systemd = mps_machine.systemd_of(made)
    node = on_gpus(
        concern_of("mps"),
        made,
        {"gpus": [{"memory_limit": "10G"}], "active_thread_percentage": "40", "exclusive": False},
        {"gpus": [{}], "active_thread_percentage": "25.5"},
    )
    gpus, save, restore = node.state, node.save_state, node.set_state
    assert save is not None

    def set_state(state: Any) -> None:
        restore(state[0])
        systemd.read = dict(state[1])
        systemd.daemons = dict(state[2])
        systemd.processes = dict(state[3])

    node.state = lambda: (gpus(), systemd.stale(), systemd.state())
    node.save_state = lambda: (save(), dict(systemd.read), dict(systemd.daemons), copy.copy(systemd.processes))
    node.set_state = set_state
    return node
