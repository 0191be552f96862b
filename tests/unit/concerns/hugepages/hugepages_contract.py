# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``hugepages`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.hugepages import hugepages_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    return Node(
        concern_of("hugepages"),
        hugepages_machine.machine(make.folder()),
        {"pools": [{"size": "2M", "pages": 8}, {"size": "1G", "pages": 2}], "transparent": {"enabled": "madvise"}},
        {"pools": [{"size": "2M", "pages": 12}]},
    )
