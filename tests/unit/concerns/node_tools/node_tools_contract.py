# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``node_tools`` keeps the contract of all concerns."""

from __future__ import annotations

from hashlib import sha256

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.concern import NodeTools
from ansible_collections.gpufleet.node.tests.unit.concerns.node_tools import node_tools_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node

PROGRAM = node_tools_machine.small_program()


def contract_node(make: Make) -> Node:
    declaration = {"archive_sha256": sha256(PROGRAM).hexdigest()}
    return Node(
        NodeTools(PROGRAM),
        node_tools_machine.machine(make.folder()),
        declaration,
        {**declaration, "boot_timeout": 60},
        absent_options=declaration,
    )
