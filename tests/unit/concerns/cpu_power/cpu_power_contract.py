# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``cpu_power`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_power import cpu_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    return Node(
        concern_of("cpu_power"),
        cpu_machine.CpuMachine(make.folder(), cpu_machine.intel_active()).host,
        {"governor": "performance", "max_frequency": "3GHz", "max_idle_latency_us": 2},
        {"governor": "powersave", "energy_performance_preference": "power", "energy_performance_bias": "power"},
    )
