# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``rdma`` keeps the contract of all concerns."""

from __future__ import annotations

from concern_machines import Make, Node, concern_of

# TODO: the files of a machine on which the declaration below changes something, those of others among them.
FILES = {
    "/etc/TODO": "",
}


def contract_node(make: Make) -> Node:
    return Node(concern_of("rdma"), make.machine(FILES), {"setting": "one"}, {"setting": "another"})
