# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``kubelet_config`` keeps the contract of all concerns."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpufleet.node.tests.unit.concerns.kubelet_config.kubelet_machine import (
    CONFIG,
    LINKS,
    Kubelet,
    files_of,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of
from ansible_collections.gpufleet.node.tests.unit.support import build

SHORT = "kind: KubeletConfiguration\nmemorySwap: {}\nshutdownGracePeriod: 0s\nhealthzPort: 10248\n"


def contract_node(make: Make) -> Node:
    # Few lines are as good as thirty here, and sooner done with.
    files = {path: text for path, text in files_of().items() if "physical_package_id" not in path}
    host = make.machine({**files, CONFIG: SHORT})
    build(Path(host.files.root), {}, LINKS)
    kubelet = Kubelet(host)
    kubelet.start()
    return Node(
        concern_of("kubelet_config"),
        host,
        {
            "cpu_manager_policy": "static",
            "reserved_system_cpus": "0-1",
            "shutdown_grace_period": "2m",
            "start_timeout": 1,
        },
        {"topology_manager_policy": "restricted", "system_reserved": {"memory": "1Gi"}, "start_timeout": 1},
        absent_options={"start_timeout": 1},
        state=kubelet.state,
        save_state=kubelet.memory,
        set_state=kubelet.remember,
        left={"/run/proc/900/stat": "when the kubelet was started: it was restarted to read the files of before"},
    )
