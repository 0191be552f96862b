# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``kernel_tunables`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_tunables import kernel_tunables_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    declaration = {
        "sysctl": {
            "vm.swappiness": 0,
            "vm.dirty_bytes": 8589934592,
            "net.ipv4.tcp_rmem": "4096 87380 268435456",
            "net.netfilter.nf_conntrack_max": 1048576,
        }
    }
    other = {"sysctl": {"vm.swappiness": 10, "vm.dirty_ratio": 40, "kernel.numa_balancing": 0}}
    return Node(concern_of("kernel_tunables"), kernel_tunables_machine.machine(make.folder()), declaration, other)
