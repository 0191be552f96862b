# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``numa_irq_affinity`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity import irq_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    return Node(
        concern_of("numa_irq_affinity"),
        irq_machine.IrqMachine(make.folder()).host,
        {"interrupts": [{"match": {"interface": "eth0"}}]},
        {"interrupts": [irq_machine.LOCAL]},
        refused_until_boot="the kernel says no to an interrupt for good, and gives it CPUs anew when it boots",
    )
