# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``slurm_gpus`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus import apply
from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_gpus.slurm_gpus_machine import SlurmMachine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    """Two GPUs, of which Slurm knows one, by another name and in a line for several nodes."""
    machine = SlurmMachine(make.folder())
    # slurmctld hears of a new slurmd at once here, or never.
    make.monkeypatch.setattr(apply, "REGISTER_SECONDS", 0.0)

    def connect(host: Any) -> None:
        host.nvml = machine.driver

    return Node(
        concern_of("slurm_gpus"),
        machine.host,
        {"devices": "explicit", "types": [{"match": {"index": 0}, "type": "h100"}]},
        {"devices": "explicit", "shards": 4, "cores": False, "constrain_devices": False},
        state=machine.seen,
        save_state=lambda: dict(machine.daemons),
        set_state=machine.remember,
        connect_to=connect,
    )
