# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Any user can give a process the name of a daemon: no concern believes a name alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._kinds import workload
from ansible_collections.gpufleet.node.plugins.module_utils._machine import processes
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager.daemons import IDLE_HOLDERS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.consumers import PROGRAMS
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import CONCERNS, PRESENT, Nodes
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_USER, build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

NAMES = sorted(
    {
        *workload.COMMANDS,
        *IDLE_HOLDERS,
        *(processes.comm(command) for _name, command in PROGRAMS.values()),
        *("containerd", "dockerd", "irqbalance", "kubelet", "multipathd", "s3fs", "slurmctld", "tuned"),
    }
)
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
# A set-user-ID program of root, which a user starts by a link of this name.
SET_USER_ID = "Name:\tnv-hostengine\nUid:\t1000\t0\t0\t0\n"


@pytest.mark.once
@pytest.mark.parametrize("concern", CONCERNS)
def test_processes_of_a_user_change_nothing_by_their_names(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    alone = node.look(PRESENT)
    files = {}
    for number, name in enumerate(NAMES * 2):
        pid = 70000 + number
        folder = f"{node.host.files.resolve('/proc')}/{pid}"
        files[f"{folder}/comm"] = f"{name}\n"
        files[f"{folder}/cmdline"] = f"/usr/bin/{name}\0bucket\0/data\0"
        files[f"{folder}/cgroup"] = SESSION
        files[f"{folder}/stat"] = f"{pid} ({name}) S 1 {' '.join(['0'] * 17)} 4711 0 0\n"
        files[f"{folder}/status"] = STATUS_OF_USER if number < len(NAMES) else SET_USER_ID
    build(Path(node.host.files.root), files)
    assert node.look(PRESENT) == alone
