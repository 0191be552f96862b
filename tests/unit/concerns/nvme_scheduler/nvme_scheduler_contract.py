# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``nvme_scheduler`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.nvme_scheduler import nvme_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    drives = [nvme_machine.Drive(0, scheduler="[none] mq-deadline kyber"), nvme_machine.Drive(1)]
    return Node(
        concern_of("nvme_scheduler"),
        nvme_machine.machine(make.folder(), drives),
        {"queues": [{"scheduler": "mq-deadline", "read_ahead_kb": 512}]},
        {"queues": [{"read_ahead_kb": 1024}]},
    )
