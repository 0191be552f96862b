# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a node from being called ready for jobs, by the facts of a recorded one."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.verification_failures import verification_failures
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import EXPECTED

NODE: Dict[str, Any] = json.loads((EXPECTED / "hgx-2socket.json").read_text(encoding="utf-8"))
UNKNOWN_GPU = {"pci_address": "0000:1b:00.0", "index": None, "kernel_driver": "nvidia"}
DOCKER = {"name": "docker", "running": True, "not_taken_up": []}


def looked(**concerns: Dict[str, Any]) -> Dict[str, Any]:
    whole = {name: {"needs": [], "reboot_reasons": [], **result} for name, result in concerns.items()}
    return {"concerns": whole, "orphaned": [], "reboot_noted": {}}


IN_SYNC = looked(gpu_settings={"status": "in_sync"})


@pytest.mark.parametrize(
    ("look", "changes", "arguments", "reasons"),
    [
        (IN_SYNC, {}, {}, []),
        (looked(hugepages={"status": "drifted"}), {}, {}, ["hugepages is drifted"]),
        (
            looked(hugepages={"status": "unknown", "msg": "Cannot look."}),
            {},
            {},
            ["hugepages is unknown: Cannot look."],
        ),
        (
            looked(hugepages={"status": "pending", "needs": ["reboot", "idle_gpu"], "reboot_reasons": ["1G pages"]}),
            {},
            {},
            ["hugepages waits for idle_gpu", "it waits for a reboot: 1G pages"],
        ),
        ({**IN_SYNC, "orphaned": ["nvml"]}, {}, {}, ["nvml is declared on the node, but not in the inventory"]),
        ({**IN_SYNC, "reboot_noted": {"nvml": ["x"]}}, {}, {}, ["it waits for a reboot: x"]),
        (
            IN_SYNC,
            {"nvml_gpus": None, "unavailable": {"nvml_gpus": "no library"}},
            {},
            ["the NVIDIA driver does not work: no library"],
        ),
        # A node that declares nothing of GPUs need not have any.
        (looked(hugepages={"status": "in_sync"}), {"nvml_gpus": None, "gpus": []}, {}, []),
        (
            looked(nvidia_persistence={"status": "in_sync"}),
            {"driver": {"services": {"persistenced": {"running": False}}}},
            {},
            ["nvidia-persistenced is not running"],
        ),
        (
            IN_SYNC,
            {},
            {"failed_units": ["gpufleet-boot.service loaded failed failed Settings of this node", ""]},
            ["gpufleet-boot.service has failed, see journalctl -u gpufleet-boot.service"],
        ),
        (
            {"concerns": {}, "orphaned": []},
            {"nvml_gpus": None, "gpus": [UNKNOWN_GPU], "unavailable": {"nvml_gpus": "no response within 20 s"}},
            {},
            ["the NVIDIA driver does not work: no response within 20 s"],
        ),
        (IN_SYNC, {"nvml_gpus": 7}, {"gpus": 8}, ["there should be 8 GPUs, but the driver knows 7"]),
        (IN_SYNC, {"nvml_gpus": 8}, {"gpus": 8}, []),
        (
            {"concerns": {}, "orphaned": []},
            {"nvml_gpus": None, "gpus": []},
            {"gpus": 8},
            ["there should be 8 GPUs, but the driver does not respond"],
        ),
        (
            IN_SYNC,
            {"engines": [DOCKER]},
            {"engines": [{"engine": "docker"}, {"engine": "crio", "state": "absent"}]},
            [],
        ),
        (
            IN_SYNC,
            {"engines": []},
            {"engines": [{"engine": "docker"}]},
            ["the container engine docker is not installed"],
        ),
        (
            IN_SYNC,
            {"engines": [{**DOCKER, "running": False}]},
            {"engines": [{"engine": "docker"}]},
            ["the daemon of docker is not running"],
        ),
        (
            IN_SYNC,
            {"engines": [{**DOCKER, "not_taken_up": ["runtime nvidia"]}]},
            {"engines": [{"engine": "docker"}]},
            ["the daemon of docker has not loaded runtime nvidia"],
        ),
    ],
)
def test_a_node_is_ready_when_nothing_is_left_to_say(
    look: Dict[str, Any], changes: Dict[str, Any], arguments: Dict[str, Any], reasons: List[str]
) -> None:
    assert verification_failures(look, {**NODE, **changes}, **arguments) == reasons
