# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``fabric_manager`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.fabric_manager.fabric_machine import FabricMachine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    """An HGX H100 whose Fabric Manager is installed, and neither enabled nor running."""
    root = make.folder()
    machine = FabricMachine(root, running=False, enabled=False)
    for name in ("etc", "run", "var/lib", "proc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    # Later than any file of these tests is written, and the same for all of them.
    machine.systemd.began = machine.systemd.boot + 1_000_000.0

    def connect(host: Any) -> None:
        host.nvml = machine.driver

    return Node(
        concern_of("fabric_manager"),
        machine.host,
        {"service": "required", "config": {"LOG_LEVEL": 3, "LOG_USE_SYSLOG": 1}},
        {"service": "if_needed", "config": {"ABORT_CUDA_JOBS_ON_FM_EXIT": False}, "hold": False},
        connect_to=connect,
        left={"/run/gpufleet/fabric_manager.json": "what a daemon has read, and versions that need not be asked again"},
    )
