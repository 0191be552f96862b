# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``slurm_topology`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.slurm_topology.topology_machine import (
    TOPOLOGIES,
    TREE,
    TopologyMachine,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    """A controller with a topology.conf of others that no plugin reads."""
    machine = TopologyMachine(make.folder(), version="25.05.3")
    return Node(
        concern_of("slurm_topology"),
        machine.host,
        TREE,
        TOPOLOGIES,
        state=machine.seen,
        save_state=lambda: dict(machine.daemon),
        set_state=machine.remember,
    )
