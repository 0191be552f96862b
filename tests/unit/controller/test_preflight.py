# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything changes on a node, by the facts of a recorded one."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.preflight import held_by, preflight
from ansible_collections.gpufleet.node.plugins.filter.sick_gpus import sick_gpus
from facts_machine import EXPECTED

Facts = Dict[str, Any]
CONFLICT = {"owner": "tuned", "path": "/etc/tuned/x", "line": 3, "setting": "enabled", "value": "never", "wins": "them"}
OPERATOR = {"owner": "gpu-operator", "setting": "driver and its settings", "path": "/run/nvidia/driver", "line": None}


@pytest.fixture
def node() -> Facts:
    """An HGX with eight GPUs that are well; every test has its own."""
    facts: Facts = json.loads((EXPECTED / "hgx-2socket.json").read_text(encoding="utf-8"))
    return facts


def nothing(_node: Facts) -> None:
    pass


def old_driver(node: Facts) -> None:
    node["driver"].update(version="515.105.01", branch=515)


def no_driver(node: Facts) -> None:
    node["driver"].update(version=None, branch=None)
    node["nvml_gpus"] = None


def sick(node: Facts) -> None:
    gpu = node["health"]["gpus"][2]
    gpu.update(healthy=False, problems=["Xid 79 since boot, 1 time", "a row of its memory could not be remapped"])


def unknown_to_the_driver(node: Facts) -> None:
    node["gpus"][3]["index"] = None
    node["nvml_gpus"] = 7


def passed_through(node: Facts) -> None:
    unknown_to_the_driver(node)
    node["gpus"][3]["kernel_driver"] = "vfio-pci"


@pytest.mark.parametrize(
    ("change", "asked", "refused", "warned"),
    [
        (nothing, {}, [], []),
        (nothing, {"cuda": "12.4", "gpus": 8}, [], []),
        (old_driver, {}, [], []),
        (old_driver, {"cuda": "11.8"}, [], []),
        (old_driver, {"cuda": "12.4"}, ["CUDA 12.4 needs a driver from R525, but this one is 515.105.01"], []),
        (old_driver, {"cuda": "13"}, ["CUDA 13 needs a driver from R580, but this one is 515.105.01"], []),
        (
            no_driver,
            {"cuda": "13.0"},
            [],
            ["CUDA 13.0 needs a driver from R580, and no driver reports its version yet"],
        ),
        (no_driver, {"gpus": 8}, [], ["there should be 8 GPUs, but the driver does not respond"]),
        (nothing, {"gpus": 7}, ["there should be 7 GPUs, but the driver knows 8"], []),
        (sick, {"cuda": "12"}, ["Xid 79 since boot, 1 time", "a row of its memory could not be remapped"], []),
        (sick, {"allow_sick": True}, [], ["Xid 79 since boot, 1 time", "a row of its memory could not be remapped"]),
        (unknown_to_the_driver, {}, ["it is on the bus, but unknown to the driver"], []),
        (passed_through, {}, [], []),
        (nothing, {"held": ["nvidia-driver-*"]}, [], ["package nvidia-driver-* is not held in its version"]),
        (
            nothing,
            {"held": ["nvidia-driver-*", "datacenter-gpu-manager"], "not_held": "refuse", "apt": "nvidia-driver-570\n"},
            ["package datacenter-gpu-manager is not held in its version"],
            [],
        ),
    ],
)
def test_what_certainly_fails_is_refused_and_what_nobody_knows_is_said(
    node: Facts, change: Callable[[Facts], None], asked: Facts, refused: List[str], warned: List[str]
) -> None:
    change(node)
    found = preflight(node, **asked)
    # The GPU it is about is before the colon.
    assert [text.rpartition(": ")[2] for text in found["refused"]] == refused
    assert [text.rpartition(": ")[2] for text in found["warned"]] == warned


def test_all_reasons_come_at_once(node: Facts) -> None:
    old_driver(node)
    sick(node)
    assert len(preflight(node, cuda="13", gpus=4)["refused"]) == 4


@pytest.mark.parametrize(("conflicts", "kind"), [("refuse", "refused"), ("warn", "warned"), ("ignore", None)], ids=str)
def test_another_owner_who_wins_is_what_the_fleet_says_he_is(node: Facts, conflicts: str, kind: Any) -> None:
    ours = {**CONFLICT, "owner": "sysctl.d", "wins": "us"}
    look = {"concerns": {"hugepages": {"conflicts": [CONFLICT, ours]}, "gpu_settings": {"conflicts": []}}}
    node["owners"] = [OPERATOR, {**OPERATOR, "setting": "container runtime"}]
    found = preflight(node, look, conflicts=conflicts)
    texts = [
        "hugepages: tuned sets enabled to never in /etc/tuned/x",
        "gpu_settings: gpu-operator manages the driver and its settings (/run/nvidia/driver)",
    ]
    assert found == {"refused": [], "warned": [], **({kind: texts} if kind else {})}


@pytest.mark.parametrize("cuda", ["9.2", "twelve", "12.x", "14.0"])
def test_a_cuda_that_is_none_or_that_nobody_knows_is_refused(node: Facts, cuda: str) -> None:
    with pytest.raises(
        AnsibleFilterError, match=f"preflight_cuda: it is {cuda}, and must be a version of CUDA 10, 11, 12"
    ):
        preflight(node, cuda=cuda)


def test_held_packages_are_those_of_either_package_manager() -> None:
    lock = """# Added lock on Tue
kernel-core-0:5.14.0-503.el9.*
!excluded-0:1-1.*
nvidia-fabricmanager-3:570.86.15-1.el9.x86_64
"""
    assert held_by("nvidia-driver-570\nlibnvidia-compute-570:i386\n", lock) == [
        "nvidia-driver-570",
        "libnvidia-compute-570",
        "kernel-core",
        "nvidia-fabricmanager",
    ]


def test_a_node_that_cannot_be_asked_has_no_sick_gpu(node: Facts) -> None:
    assert sick_gpus({"health": None, "gpus": None}) == []
    assert sick_gpus({}) == []
    no_driver(node)
    assert sick_gpus(node) == []
