# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``rdma`` keeps the contract of all concerns."""

from __future__ import annotations

from concern_machines import Make, Node, concern_of
from rdma_machine import Machine


def contract_node(make: Make) -> Node:
    return Node(
        concern_of("rdma"),
        Machine(make.folder()).host,
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
        },
        {
            "devices": [
                {"match": {"name": "mlx5_0"}, "roce_tos": 104},
                {"match": {"name": "mlx5_1"}, "pfc": [], "dscp_priorities": {"34": 4}, "traffic_class": 96},
                {"match": {"name": "rxe0"}, "roce_mode": "v2", "roce_tos": 8},
            ],
        },
    )
