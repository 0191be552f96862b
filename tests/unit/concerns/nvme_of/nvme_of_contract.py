# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``nvme_of`` keeps the contract of all concerns."""

from __future__ import annotations

from concern_machines import Make, Node, concern_of
from nvme_of_machine import DATA, OTHER, Machine


def contract_node(make: Make) -> Node:
    paths = [{"address": "10.10.0.5"}, {"address": "10.11.0.5", "port": 4421}]
    return Node(
        concern_of("nvme_of"),
        Machine(make.folder()).host,
        {"subsystems": [{"nqn": DATA, "paths": paths, "io_policy": "round-robin", "io_queues": 4, "loss_seconds": -1}]},
        {
            "subsystems": [
                {"nqn": DATA, "paths": paths[:1], "reconnect_seconds": 5},
                {"nqn": OTHER, "paths": [{"address": "fd00::5"}]},
            ]
        },
    )
