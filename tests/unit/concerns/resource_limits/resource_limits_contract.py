# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``resource_limits`` keeps the contract of all concerns."""

from __future__ import annotations

from concern_machines import Make, Node, concern_of

FILES = {
    "/etc/security/limits.conf": "# <domain> <type> <item> <value>\n* hard memlock 65536\n",
    "/etc/security/limits.d/10-rdma.conf": "@rdma - memlock 1048576\n",
    "/proc/sys/fs/nr_open": "1048576\n",
}


def contract_node(make: Make) -> Node:
    declaration = {"sessions": {"memlock": "unlimited", "nofile": "1024:1048576"}}
    other = {"sessions": {"memlock": "8G", "rtprio": "50"}}
    return Node(concern_of("resource_limits"), make.machine(FILES), declaration, other)
