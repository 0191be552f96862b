# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything changes on a node, by the facts of a recorded one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.check_failures import check_failures
from ansible_collections.gpufleet.node.plugins.filter.preflight import held_by, preflight
from ansible_collections.gpufleet.node.plugins.filter.sick_ports import sick_ports
from ansible_collections.gpufleet.node.plugins.module_utils._node.port_health import LIMITS
from ansible_collections.gpufleet.node.plugins.module_utils._node.verdict import sick_gpus
from ansible_collections.gpufleet.node.plugins.plugin_utils.playbooks import options_of
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, replaying
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import EXPECTED

Facts = Dict[str, Any]
CONFLICT = {
    "owner": "tuned",
    "path": "/etc/tuned/x",
    "line": 3,
    "object": "transparent_hugepages",
    "setting": "enabled",
    "value": "never",
    "wins": "them",
    "accepted": "",
}
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


def lost_link(node: Facts) -> None:
    (port,) = (port for port in node["network"]["ports"] if port["name"] == "mlx5_3/1")
    port.update(state="down", physical_state="polling")


def older(node: Facts) -> None:
    for gpu in node["gpus"]:
        gpu.update(model="Tesla M40", cuda_capability="5.2")


def divided(node: Facts) -> None:
    node["gpus"][0]["mig"]["instances"] = [{"memory_mib": 40448}, {"memory_mib": 9856}]


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
        (lost_link, {}, ["it has lost its link (polling)"], []),
        (lost_link, {"allow_sick": True}, [], ["it has lost its link (polling)"]),
        (lost_link, {"ports": {"ignored": ["mlx5_3"]}}, [], []),
        (nothing, {"ports": {"required": ["mlx5_12"]}}, ["there is no such port"], []),
        (nothing, {"ports": {"rate_gbps": 400, "required": ["mlx5_8"]}}, ["its rate is 200 Gb/s, but must be 400"], []),
        (nothing, {"sharing": [{"replicas": 4, "memory_mib": 20000}]}, [], []),
        (
            nothing,
            {"sharing": [{"model": "*H100*", "replicas": 4, "memory_mib": 24000, "strategy": "mps"}]},
            ["4 replicas with 24000 MiB each need 96000 MiB, but it has 81559"] * 8,
            [],
        ),
        (
            divided,
            {"sharing": [{"replicas": 2, "memory_mib": 5000}]},
            ["2 replicas with 5000 MiB each need 10000 MiB, but its smallest GPU instance has 9856"],
            [],
        ),
        (
            older,
            {"sharing": [{"replicas": 2}]},
            ["time slicing needs Pascal or newer, but its compute capability is 5.2"] * 8,
            [],
        ),
        (older, {"sharing": [{"replicas": 2, "strategy": "mps"}]}, [], []),
        (nothing, {"sharing": [{"model": "*L40S*", "replicas": 2}]}, [], ["no GPU of this node matches *L40S*"]),
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
    known = {**CONFLICT, "accepted": "SRE-12"}
    look = {"concerns": {"hugepages": {"conflicts": [CONFLICT, ours, known]}, "gpu_settings": {"conflicts": []}}}
    node["owners"] = [OPERATOR, {**OPERATOR, "setting": "container runtime"}]
    found = preflight(node, look, conflicts=conflicts)
    texts = [
        "hugepages: tuned sets transparent_hugepages enabled to never in /etc/tuned/x:3",
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


def test_a_glob_of_dnf_5_holds_what_it_matches(node: Facts) -> None:
    dnf5 = (
        'version = "1.0"\n[[packages]]\nname = "*nvidia*"\n'
        '[[packages.conditions]]\nkey = "evr"\ncomparator = "<"\nvalue = "3:571"\n'
    )
    found = preflight(node, held=["nvidia-driver", "dcgm-*"], dnf5=dnf5)["warned"]
    assert [text for text in found if "held" in text] == ["package dcgm-* is not held in its version"]
    with pytest.raises(AnsibleFilterError, match=r"Cannot parse /etc/dnf/versionlock\.toml: line 1, column"):
        preflight(node, held=["nvidia-driver"], dnf5="= 1")


def test_a_node_that_cannot_be_asked_has_no_sick_gpu(node: Facts) -> None:
    assert sick_gpus({"health": None, "gpus": None}) == []
    assert sick_gpus({}) == []
    no_driver(node)
    assert sick_gpus(node) == []


# --- ports ------------------------------------------------------------------------------------------------------------


def test_the_role_has_the_limits_by_which_the_node_judges_itself() -> None:
    assert options_of("preflight")["preflight_port_limits"]["default"] == LIMITS


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ({"symbol_errors": 1}, "there is no such counter. did you mean symbol_error"),
        ({"pfc": 1}, "the counters are symbol_error, link_error_recovery"),
        ({"symbol_error": -2}, "it is -2, and must be a whole number, or -1 for no limit"),
        ({"symbol_error": "many"}, "it is many, and must be a whole number"),
        ({"symbol_error": True}, "it is True, and must be a whole number"),
    ],
)
def test_a_limit_that_is_none_is_refused(node: Facts, limits: Facts, cause: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        sick_ports(node, limits=limits)
    assert cause in str(refused.value)


def test_a_limit_of_the_fleet_counts_and_the_others_stay(node: Facts) -> None:
    node["network"]["ports"][0]["errors"] = [{"counter": "symbol_error", "total": 9000, "growth": 9000}]
    node["network"]["seconds"] = 3600
    assert len(sick_ports(node)) == 1
    assert sick_ports(node, limits={"symbol_error": "10000"}) == []
    assert len(sick_ports(node, limits={"link_downed": 1})) == 1


# What resumes a node asks this part of the role, and whoever hands a node over the playbook.
RESUMING = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: gpufleet.node.preflight, tasks_from: health}
"""
LOOKED = {
    **{name: [] for name in ("in_sync", "drifted", "pending", "unknown", "invalid", "waiting", "orphaned")},
    "changed": False,
    "concerns": {},
    "to_converge": [],
    "managed": [],
    "reboot_noted": {},
}


@pytest.mark.parametrize(("variables", "refused"), [({}, True), ({"preflight_ports_ignored": "mlx5_3"}, False)])
@pytest.mark.parametrize("playbook", ["resuming.yml", "gpufleet.node.verify"])
def test_a_sick_port_keeps_a_node_from_being_resumed_and_handed_over(
    tmp_path: Path, node: Facts, playbook: str, variables: Facts, refused: bool
) -> None:
    lost_link(node)
    (tmp_path / "resuming.yml").write_text(RESUMING)
    answers = {"gpu_node_info": {"changed": False, "node": node}, "node_state": LOOKED, "command": {"rc": 0}}
    inventory = {"hosts": {"a": replaying(tmp_path / "a", answers)}, "vars": {"preflight_wait": 0, **variables}}
    output = ansible_playbook(tmp_path, inventory, playbook)
    said = "port mlx5_3/1 (ibp94s0): it has lost its link (polling)"
    assert (said in re.sub(r"\s+", " ", output)) is refused, output
    assert output.endswith(f"ends with {2 if refused else 0}"), output


@pytest.mark.parametrize(("asked", "run"), [({}, False), ({"verify_checks": "true"}, True)])
def test_verify_runs_the_checks_only_where_it_is_told_to(tmp_path: Path, node: Facts, asked: Facts, run: bool) -> None:
    answers = {"gpu_node_info": {"changed": False, "node": node}, "node_state": LOOKED}
    answers["command"] = {"changed": True, "rc": 0, "stdout": "bandwidth: 212.4", "stderr": ""}
    check = {"name": "nccl", "command": ["all_reduce_perf"], "pattern": r"bandwidth: ([\d.]+)", "floor": 370}
    variables = {"preflight_checks": [check], **asked}
    inventory = {"hosts": {"a": replaying(tmp_path / "a", answers)}, "vars": variables}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.verify")
    assert ("check nccl: 212.4 is below 370" in output) is run
    assert output.endswith(f"ends with {2 if run else 0}"), output


# --- active checks ----------------------------------------------------------------------------------------------------

NCCL = {
    "name": "nccl",
    "command": ["all_reduce_perf", "-g", "8"],
    "pattern": r"^# Avg bus bandwidth\s*:\s*([\d.]+)",
    "floor": 370.0,
}
DIAG = {"name": "diag", "command": ["dcgmi", "diag", "-r", "1"], "exit": 0, "timeout": 60}
OUTPUT = "#  size  time\n 8589934592  39021\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {}\n"


def ran(check: Facts, rc: int = 0, stdout: str = "", stderr: str = "", **more: str) -> Facts:
    return {"item": check, "rc": rc, "stdout": stdout, "stderr": stderr, **more}


@pytest.mark.parametrize(
    ("result", "failures"),
    [
        (ran(DIAG), []),
        (ran({**DIAG, "exit": 3}, rc=3), []),
        (ran(NCCL, stdout=OUTPUT.format("481.2")), []),
        (ran(NCCL, stdout=OUTPUT.format("370")), []),
        (ran(NCCL, stdout=OUTPUT.format("212.4")), ["check nccl: 212.4 is below 370.0"]),
        # The last counts.
        (ran(NCCL, stdout=OUTPUT.format("481") + OUTPUT.format("12")), ["check nccl: 12 is below 370.0"]),
        (ran(NCCL, stdout="nothing"), [f"check nccl: nothing in its output matches {NCCL['pattern']}"]),
        (ran(NCCL, stdout=OUTPUT.format("4.8.1")), ["check nccl: '4.8.1' in its output is not a number"]),
        (
            ran(DIAG, rc=226, stderr="warming up\nError: GPU 3 failed\n"),
            ["check diag: it ended with status 226 instead of 0: Error: GPU 3 failed"],
        ),
        (ran(DIAG, rc=1), ["check diag: it ended with status 1 instead of 0"]),
        (ran(DIAG, rc=124), ["check diag: it took longer than 60 seconds"]),
        (ran(NCCL, rc=137), ["check nccl: it took longer than 300 seconds"]),
        (ran(NCCL, rc=137, delta="0:05:10.031415"), ["check nccl: it took longer than 300 seconds"]),
        (
            ran(NCCL, rc=137, delta="0:00:12.031415"),
            ["check nccl: it was killed, as the kernel does when memory runs out: see dmesg of the node"],
        ),
        (
            ran(DIAG, rc=127, stderr="timeout: failed to run command 'dcgmi': No such file or directory\n"),
            ["check diag: dcgmi cannot be run: timeout: failed to run command 'dcgmi': No such file or directory"],
        ),
        ({"item": DIAG, "msg": "Failed to connect", "unreachable": True}, ["check diag: Failed to connect"]),
        # Check mode runs nothing.
        ({"item": DIAG, "skipped": True}, []),
    ],
)
def test_a_check_is_passed_by_its_status_and_its_number(result: Facts, failures: List[str]) -> None:
    assert check_failures([result]) == failures


@pytest.mark.parametrize("pattern", ["(", r"no group \d+"])
def test_a_pattern_that_finds_no_number_is_refused(pattern: str) -> None:
    with pytest.raises(AnsibleFilterError, match="Cannot use the check nccl: its pattern"):
        check_failures([ran({**NCCL, "pattern": pattern}, stdout="no group 3")])


# --- the fabric -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "failed", "refuses"),
    [
        ("drifted", "nv-fabricmanager", True),
        ("drifted", "nvidia-imex", True),
        ("drifted", "nvidia-fabricmanager.service", False),
        ("pending", "", False),
    ],
)
def test_a_fabric_manager_of_another_version_than_the_driver_is_refused(
    node: Facts, status: str, failed: str, refuses: bool
) -> None:
    message = "Cannot run the Fabric Manager (nv-fabricmanager): its version is 570.2, but that of the driver is 570.1"
    result: Facts = {"status": status, "conflicts": []}
    if failed:
        result.update(msg=message, failure={"code": "not_in_effect", "object": failed})
    found = preflight(node, look={"concerns": {"fabric_manager": result}})
    assert found["refused"] == ([message] if refuses else [])
