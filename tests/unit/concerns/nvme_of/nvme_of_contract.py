# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``nvme_of`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_of.nvme_of_machine import (
    DATA,
    DISCOVERY,
    OTHER,
    Machine,
    entry,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of

TOLD = "nqn.2024-01.com.example:told"


def contract_node(make: Make) -> Node:
    paths = [{"address": "10.10.0.5", "host_address": "10.10.0.7"}, {"address": "10.11.0.5", "port": 4421}]
    machine = Machine(make.folder(), program=True)
    # Of others, so that what it tells of is known before the first run.
    machine.connect({"nqn": DISCOVERY, "transport": "tcp", "traddr": "10.10.0.9", "trsvcid": "8009"})
    machine.tells = {"10.10.0.9": [entry(nqn=DATA, address="10.12.0.5"), entry(nqn=TOLD, address="10.12.0.6")]}
    return Node(
        concern_of("nvme_of"),
        machine.host,
        {
            "subsystems": [
                {"nqn": DATA, "paths": paths, "io_policy": "round-robin", "io_queues": 4, "loss_seconds": -1}
            ],
            "discovery": [{"address": "10.10.0.9", "reconnect_seconds": 4, "io_policy": "round-robin"}],
        },
        {
            "subsystems": [
                {"nqn": DATA, "paths": paths[:1], "reconnect_seconds": 5},
                {"nqn": OTHER, "paths": [{"address": "fd00::5"}]},
            ]
        },
    )
