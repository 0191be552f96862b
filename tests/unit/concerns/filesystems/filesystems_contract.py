# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``filesystems`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems import filesystems_machine, parallel_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    host = parallel_machine.machine(make.folder())
    # From one to the other a mount goes and one comes.
    first, second = filesystems_machine.NFS_MOUNT, {**parallel_machine.TUNED, "path": "/fast"}
    return Node(concern_of("filesystems"), host, {"mounts": [first]}, {"mounts": [second]})
