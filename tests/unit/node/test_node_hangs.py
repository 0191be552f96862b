# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The look at a whole node whose driver hangs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

DEADLINE = 3.0
XID = "NVRM: Xid (PCI:0000:1b:00): 119, pid=7, name=python3, Timeout after 6s of waiting for RPC response"


def test_the_concerns_of_gpus_are_unknown_within_one_deadline_and_the_others_are_looked_at(
    gpu_machine: MakeMachine,
) -> None:
    machine = gpu_machine("hgx-h100-80gb-8")
    machine.host.commands.programs["dmesg"] = lambda _argv: Completed(0, f"[  9.1] {XID}\n", "")
    machine.sim("hang", "nvmlDeviceGetCount_v2")
    machine.connect(deadline=DEADLINE)
    declared = {
        "nvidia_persistence": {"enabled": True},
        "gpu_settings": {"gpus": [{"power_limit_watts": 600}]},
        "node_tools": {"archive_sha256": "0" * 64},
    }
    started = time.monotonic()
    answer = assess_node(declared, machine.host, validate=validated, full=False)
    # Both concerns share the one process, and so the one deadline.
    assert time.monotonic() - started < 2 * DEADLINE
    assert (answer["unknown"], answer["drifted"]) == (["nvidia_persistence", "gpu_settings"], ["node_tools"])
    for name in answer["unknown"]:
        assert answer["concerns"][name]["failure"]["code"] == "driver_hangs"
        assert XID in answer["concerns"][name]["msg"]
    assert answer["waiting"] == answer["invalid"] == []
