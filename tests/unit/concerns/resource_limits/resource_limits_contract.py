# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``resource_limits`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.resource_limits import limits_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of

FILES = {
    **limits_machine.FILES,
    "/etc/security/limits.conf": "# <domain> <type> <item> <value>\n* hard memlock 65536\n",
    "/etc/security/limits.d/10-rdma.conf": "@rdma - memlock 1048576\n",
}


def contract_node(make: Make) -> Node:
    declaration = {
        "sessions": {"memlock": "unlimited", "nofile": "1024:1048576"},
        "services": {"memlock": "unlimited"},
        "units": [{"name": "slurmd.service", "nofile": "1048576"}],
    }
    other = {
        "sessions": {"memlock": "8G", "rtprio": "50"},
        "units": [{"name": "slurmd.service", "memlock": "1G"}, {"name": "containerd.service", "nproc": "unlimited"}],
    }
    host = make.machine(FILES)
    systemd = limits_machine.Systemd(host)

    def set_state(state: Any) -> None:
        systemd.read = dict(state)

    return Node(
        concern_of("resource_limits"),
        host,
        declaration,
        other,
        state=lambda: dict(systemd.read),
        save_state=lambda: dict(systemd.read),
        set_state=set_state,
        left={"/run/init/stat": "process 1, which was executed once more"},
    )
