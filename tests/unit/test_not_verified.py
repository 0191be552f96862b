# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a node from being called ready for jobs, by the facts of a recorded one."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.not_verified import not_verified
from facts_machine import EXPECTED

NODE: Dict[str, Any] = json.loads((EXPECTED / "hgx-2socket.json").read_text(encoding="utf-8"))
UNKNOWN_GPU = {"pci_address": "0000:1b:00.0", "index": None, "kernel_driver": "nvidia"}
DOCKER = {"name": "docker", "running": True, "not_taken_up": []}


def looked(**concerns: Dict[str, Any]) -> Dict[str, Any]:
    whole = {name: {"needs": [], "reboot_reasons": [], **result} for name, result in concerns.items()}
    return {"concerns": whole, "undeclared": [], "reboot_noted": {}}


RIGHT = looked(gpu_settings={"status": "right"})


@pytest.mark.parametrize(
    ("look", "changes", "arguments", "reasons"),
    [
        (RIGHT, {}, {}, []),
        (looked(hugepages={"status": "differs"}), {}, {}, ["hugepages is differs"]),
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
        ({**RIGHT, "undeclared": ["nvml"]}, {}, {}, ["nvml is declared on the node, and not in the inventory"]),
        ({**RIGHT, "reboot_noted": {"nvml": ["x"]}}, {}, {}, ["it waits for a reboot: x"]),
        (
            RIGHT,
            {"nvml_gpus": None, "unavailable": {"nvml_gpus": "no library"}},
            {},
            ["the NVIDIA driver does not work: no library"],
        ),
        # A node that declares nothing of GPUs need not have any.
        (looked(hugepages={"status": "right"}), {"nvml_gpus": None, "gpus": []}, {}, []),
        (
            looked(nvidia_persistence={"status": "right"}),
            {"driver": {"services": {"persistenced": {"running": False}}}},
            {},
            ["nvidia-persistenced does not run"],
        ),
        (
            RIGHT,
            {},
            {"failed_units": ["gpufleet-boot.service loaded failed failed Settings of this node", ""]},
            ["gpufleet-boot.service has failed, see journalctl -u gpufleet-boot.service"],
        ),
        (
            {"concerns": {}, "undeclared": []},
            {"nvml_gpus": None, "gpus": [UNKNOWN_GPU], "unavailable": {"nvml_gpus": "no answer within 20 s"}},
            {},
            ["the NVIDIA driver does not work: no answer within 20 s"],
        ),
        (RIGHT, {"nvml_gpus": 7}, {"gpus": 8}, ["there should be 8 GPUs, and the driver knows 7"]),
        (RIGHT, {"nvml_gpus": 8}, {"gpus": 8}, []),
        (
            {"concerns": {}, "undeclared": []},
            {"nvml_gpus": None, "gpus": []},
            {"gpus": 8},
            ["there should be 8 GPUs, and the driver does not answer"],
        ),
        (RIGHT, {"engines": [DOCKER]}, {"engines": [{"engine": "docker"}, {"engine": "crio", "state": "absent"}]}, []),
        (RIGHT, {"engines": []}, {"engines": [{"engine": "docker"}]}, ["the container engine docker is not there"]),
        (
            RIGHT,
            {"engines": [{**DOCKER, "running": False}]},
            {"engines": [{"engine": "docker"}]},
            ["the daemon of docker does not run"],
        ),
        (
            RIGHT,
            {"engines": [{**DOCKER, "not_taken_up": ["runtime nvidia"]}]},
            {"engines": [{"engine": "docker"}]},
            ["the daemon of docker has not taken up runtime nvidia"],
        ),
    ],
)
def test_a_node_is_ready_when_nothing_is_left_to_say(
    look: Dict[str, Any], changes: Dict[str, Any], arguments: Dict[str, Any], reasons: List[str]
) -> None:
    assert not_verified(look, {**NODE, **changes}, **arguments) == reasons
