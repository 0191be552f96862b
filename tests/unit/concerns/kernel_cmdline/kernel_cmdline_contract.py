# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``kernel_cmdline`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_cmdline import cmdline_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    return Node(
        concern_of("kernel_cmdline"),
        cmdline_machine.machine(make.folder()),
        {"arguments": {"iommu": "pt", "nohz_full": "2-7", "skew_tick": 1, "nosmt": False}},
        {"arguments": {"iommu": "pt", "numa_balancing": "disable"}},
    )
