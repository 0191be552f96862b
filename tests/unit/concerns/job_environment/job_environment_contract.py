# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``job_environment`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.job_environment import job_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of

FILES = {**job_machine.FILES, job_machine.NCCL: "# of the image\nNCCL_DEBUG=INFO\nNCCL_IB_TIMEOUT=22\n"}


def contract_node(make: Make) -> Node:
    declaration = {
        "variables": {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "OMP_NUM_THREADS": 8},
        "places": ["sessions", "services", "slurm", "containers"],
        "units": [{"name": "slurmd.service", "variables": {"MALLOC_ARENA_MAX": "4"}}],
        "nccl": {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "=bond0"},
    }
    other = {
        "variables": {"OMP_NUM_THREADS": "2"},
        "places": ["slurm", "sessions"],
        "units": [{"name": "containerd.service", "variables": {"MALLOC_ARENA_MAX": "2"}}],
        "nccl": {"NCCL_IB_TIMEOUT": 20},
    }
    host = make.machine(FILES)
    systemd = job_machine.Systemd(host)

    def set_state(state: Any) -> None:
        systemd.read = dict(state)

    return Node(
        concern_of("job_environment"),
        host,
        declaration,
        other,
        state=lambda: dict(systemd.read),
        save_state=lambda: dict(systemd.read),
        set_state=set_state,
        left={"/run/init/stat": "process 1, which was executed once more"},
    )
