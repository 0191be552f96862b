# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``nvidia_persistence`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence import persistence_machine as persistence
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of, on_gpus

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine",)


def contract_node(make: Make) -> Node:
    new: persistence.MakePersistenceMachine = make.fixture("persistence_machine")
    made = new("a30-4", unit=persistence.UBUNTU, files=persistence.BOOT_SERVICE)
    node = on_gpus(
        concern_of("nvidia_persistence"),
        made.machine,
        {"enabled": True},
        {"enabled": False},
        left={
            "/run/gpufleet/gpu_reset_counts.json": "how often the driver reset each GPU, for as long as it is loaded"
        },
    )
    # The daemon holds the GPUs, and what it knows is in its memory.
    node.save_state = None
    return node
