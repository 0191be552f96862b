# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``nic_settings`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.nic_settings.nic_machine import Machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    bond = {"match": {"name": ["bond0", "bond0.100"]}, "mtu": 9000}
    return Node(
        concern_of("nic_settings"),
        Machine(make.folder()).host,
        {
            "interfaces": [
                bond,
                {
                    "match": {"driver": "mlx5_core", "name": "eth0"},
                    "mtu": 4200,
                    "rx_ring": "max",
                    "tx_usecs": 4,
                    "offloads": {"gro": False},
                    "tx_pause": False,
                },
                {"match": {"pci_address": "0000:3b:00.0"}, "virtual_functions": 4},
            ]
        },
        {
            "interfaces": [
                {"match": {"name": ["eth0"]}, "mtu": 2000, "rx_ring": 256, "combined_channels": 8},
                {"match": {"name": "eth2"}, "virtual_functions": 2},
            ]
        },
    )
