# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``gds`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.gds.gds_machine import FILES
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    declaration = {
        "cufile": {
            "execution": {"max_io_threads": 8, "max_request_parallelism": 8},
            "properties": {"allow_compat_mode": False},
            "block": {"nvme": {"use_pci_p2pdma": False}},
        }
    }
    other = {"cufile": {"execution": {"max_io_threads": 16}, "denylist": {"drivers": ["sd"]}}}
    return Node(concern_of("gds"), make.machine(FILES), declaration, other)
