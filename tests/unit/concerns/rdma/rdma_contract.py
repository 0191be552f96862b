# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``rdma`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.rdma.firewalls_machine import (
    RANGE,
    UFW_FILES,
    Firewalls,
    firewalld_file,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.rdma.rdma_machine import Machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    files = {**UFW_FILES, **firewalld_file(), RANGE: "32768\t60999\n"}
    host = Firewalls(Machine(make.folder(), files).host).host
    return Node(
        concern_of("rdma"),
        host,
        {
            "devices": [
                {"match": {"pci_address": "0000:17:00.0"}, "roce_mode": "v1", "roce_tos": 106, "traffic_class": 106},
                {
                    "match": {"netdev": "eth1"},
                    "roce_mode": "v2",
                    "pfc": [3],
                    "dscp_priorities": {26: 3, 48: 7},
                    "ecn": [3],
                },
            ],
            "gpudirect": "peermem",
            "job_ports": {"networks": ["fd00:20::/64"], "ports": ["29500"]},
        },
        {
            "devices": [
                {"match": {"name": "mlx5_0"}, "roce_tos": 104},
                {"match": {"name": "mlx5_1"}, "pfc": [], "dscp_priorities": {"34": 4}, "traffic_class": 96},
                {"match": {"name": "rxe0"}, "roce_mode": "v2", "roce_tos": 8},
            ],
            "job_ports": {"networks": ["10.20.0.0/16"]},
        },
    )
