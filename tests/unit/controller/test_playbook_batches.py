# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A batch of nodes with different work: what is done in which order, and what is said of those that stay drained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.ordered_concerns import ordered_concerns
from ansible_collections.gpufleet.node.plugins.filter.removals import removals
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, replaying
from ansible_collections.gpufleet.node.tests.unit.support import HostVars

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
FACTS = {"changed": False, "node": {"nvml_gpus": 0, "gpus": [], "health": None, "owners": [], "driver": None}}
MARKED = {"changed": False, "nodes": [{"name": "a"}]}
ORDER = [entry.name for entry in REGISTRY]


def concern(status: str) -> Dict[str, Any]:
    found: Dict[str, Any] = {"status": status, "settings": [], "settings_in_sync": 1, "needs": [], "conflicts": []}
    found.update(unmanaged=[], unmanaged_total=0, changes=[], reboot_reasons=[], reboot_required=False)
    return found


def looked(statuses: Dict[str, str], *, to_converge: Sequence[str] = (), managed: Sequence[str] = ()) -> Dict[str, Any]:
    """An answer of node_state."""
    of = {
        status: [name for name in statuses if statuses[name] == status]
        for status in ("in_sync", "drifted", "unknown", "invalid")
    }
    lists = {"pending": [], "waiting": [], "orphaned": [], "to_converge": list(to_converge), "managed": list(managed)}
    concerns = {name: concern(status) for name, status in statuses.items()}
    return {"changed": False, "concerns": concerns, "reboot_noted": {}, **of, **lists}


# Of a node that is drained before its GPUs are divided anew.
ENDS_JOBS = looked({"mig_layout": "drifted"}, to_converge=["mig_layout"])
ENDS_JOBS["concerns"]["mig_layout"]["needs"] = ["idle_gpu"]


def tasks_of(output: str) -> List[str]:
    """What ran, by the names of the roles of concerns, in order and each once."""
    found = re.findall(r"^TASK \[gpufleet\.node\.(\w+) : ", output, flags=re.MULTILINE)
    return list(dict.fromkeys(name for name in found if name in ORDER))


def test_the_concerns_of_a_batch_are_in_the_order_of_their_prerequisites() -> None:
    looks = {
        "a": {"to_converge": ["mig_layout"]},
        "b": {"to_converge": ["nvml", "mig_layout"]},
        "c": {"managed": ["hugepages"]},
    }
    hostvars = HostVars({**{name: {"look": look} for name, look in looks.items()}, "d": {}})
    assert ordered_concerns("abcd", hostvars, "look") == ["nvml", "mig_layout"]
    assert ordered_concerns("abcd", hostvars, "look", "managed") == ["hugepages"]
    assert ordered_concerns("d", hostvars, "look") == []


# In one process after the other, so that the host with less to do is heard of first.
def test_a_node_converges_prerequisites_first_whatever_the_others_of_its_batch_do(tmp_path: Path) -> None:
    first, second = [name for name in ORDER if name in ("hugepages", "nvme_scheduler")]
    hosts = {}
    for host, to_converge in (("a", [second]), ("b", [first, second])):
        look = looked(dict.fromkeys(to_converge, "drifted"), to_converge=to_converge)
        roles = {name: {"changed": False} for name in (first, second)}
        hosts[host] = replaying(tmp_path / host, {"node_state": look, "gpu_node_info": FACTS, **roles})
    inventory = {"hosts": hosts, "vars": {"hugepages_pools": [{"size": "2M", "pages": 1}]}}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", "gpufleet_batches=2", forks="1")
    assert tasks_of(output) == [first, second]
    assert output.endswith("ends with 0"), output


@pytest.mark.parametrize(("arguments", "ran"), [(["--check"], ["nvml"]), ([], ["nvml", "gpu_settings"])])
def test_the_modules_of_what_only_the_look_could_read_do_not_run_in_check_mode(
    tmp_path: Path, arguments: List[str], ran: List[str]
) -> None:
    """The look has planned it with the binding of the controller, and a module has none before ``nvml`` ran."""
    look = looked({"nvml": "drifted", "gpu_settings": "drifted"}, to_converge=["nvml", "gpu_settings"])
    look["concerns"]["gpu_settings"]["changes"] = [
        {"object": "gpu0", "setting": "ecc", "scope": "effective", "takes_effect": "now", "before": "a", "after": "b"}
    ]
    answers = {"node_state": {**look, "lacks_binding": ["gpu_settings"]}, "gpu_node_info": FACTS}
    answers.update({name: {"changed": False} for name in ran})
    inventory = {
        "hosts": {"a": replaying(tmp_path / "a", answers)},
        "vars": {"gpu_settings_gpus": [{"ecc": "enabled"}]},
    }
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", *arguments)
    assert tasks_of(output) == ran
    assert output.endswith("ends with 0"), output
    assert ("1 change: gpu_settings 1" in output) == bool(arguments)


def test_no_include_has_a_loop_that_hosts_of_a_batch_have_each_for_themselves() -> None:
    """Ansible keeps its order only where all of them loop over the same."""
    loops = {}
    for path in [
        *PLAYBOOKS.glob("*.yml"),
        *PLAYBOOKS.glob("plays/*.yml"),
        *PLAYBOOKS.glob("tasks/*.yml"),
        *PLAYBOOKS.parent.glob("roles/*/tasks/*.yml"),
    ]:
        for task in tasks_in(yaml.safe_load(path.read_text(encoding="utf-8"))):
            if "loop" in task and any("include_" in key for key in task):
                loops[f"{path.name}: {task['name']}"] = task["loop"]
    assert len(loops) == 3
    assert set(loops.values()) == {"{{ __gpufleet_turns }}"}


def tasks_in(document: Any) -> List[Dict[str, Any]]:
    found = []
    for entry in document or ():
        found.append(entry)
        for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            found.extend(tasks_in(entry.get(key)))
    return found


def test_what_is_taken_back_comes_before_what_it_needs() -> None:
    hostvars = HostVars({"a": {"left": {"managed": ["nvml"]}}, "b": {"left": {"managed": ["nvml", "mig_layout"]}}})
    turns = list(removals(ordered_concerns("ab", hostvars, "left", "managed")))
    assert turns == ["mig_layout", "nvml"]


# --- what is refused before anything changes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tags", "hugepages"], "Cannot use --tags hugepages (given to the run): remove always covers"),
        (
            ["--skip-tags", "hugepages"],
            "Cannot use --skip-tags hugepages (given to the run): remove always covers",
        ),
        (["--tags", "hugepage"], "Cannot limit the run by tags: there is no concern hugepage; did you mean hugepages"),
        (
            ["-e", "gpufleet_concerns=hugepages"],
            "Cannot use gpufleet_concerns (given to the run): remove always covers",
        ),
        (
            ["-e", "gpufleet_skip=hugepages"],
            "Cannot use gpufleet_skip (given to the run): remove always covers",
        ),
    ],
)
def test_what_has_no_parts_is_not_narrowed(arguments: List[str], said: str, tmp_path: Path) -> None:
    hosts = {"a": replaying(tmp_path / "a", {"node_state": looked({}, managed=["hugepages", "mig_layout"])})}
    output = ansible_playbook(tmp_path, {"hosts": hosts}, "gpufleet.node.remove", *arguments)
    assert said in re.sub(r"\s+", " ", output)
    assert "absent" not in output
    assert output.endswith("ends with 2")


def test_a_node_with_what_only_another_release_knows_is_not_called_restored(tmp_path: Path) -> None:
    hosts = {"a": replaying(tmp_path / "a", {"node_state": looked({}, managed=["gpu_fans"])})}
    output = ansible_playbook(tmp_path, {"hosts": hosts}, "gpufleet.node.remove")
    assert (
        "a has gpu_fans, which this release does not know: run gpufleet.node.remove of the release that declared it."
        in re.sub(r"\s+", " ", output)
    )
    assert output.endswith("ends with 2")


def test_a_typo_in_what_is_skipped_is_refused(tmp_path: Path) -> None:
    hosts = {
        "a": replaying(tmp_path / "a", {"node_state": looked({"hugepages": "drifted"}, to_converge=["hugepages"])})
    }
    output = ansible_playbook(tmp_path, {"hosts": hosts}, "gpufleet.node.site", "--skip-tags", "hugepage")
    assert "there is no concern hugepage; did you mean hugepages?" in re.sub(r"\s+", " ", output)
    assert output.endswith("ends with 2")


# --- nodes that stay drained ------------------------------------------------------------------------------------------


def test_a_run_that_leaves_out_what_a_node_was_drained_for_does_not_resume_it(tmp_path: Path) -> None:
    """The answers do not depend on what is left out, so that the look at all of it is the same one."""
    look = looked({"hugepages": "in_sync", "mig_layout": "drifted"})
    answers = {"node_state": look, "gpu_node_info": FACTS, "slurm_drained_info": MARKED}
    answers["slurm_node"] = {"changed": False, "owner": "ours"}
    hosts = {"a": replaying(tmp_path / "a", answers)}
    inventory = {"hosts": hosts, "vars": {"drain_backend": "slurm"}}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "--tags", "hugepages")
    assert "Resume the node in Slurm" not in output
    assert "mig_layout is not in sync, which this run did not cover" in re.sub(r"\s+", " ", output)
    assert "a failed, and stays drained" in re.sub(r"\s+", " ", output)
    assert output.endswith("ends with 2")


@pytest.mark.parametrize(("found", "resumed"), [("481.2", True), ("212.4", False)])
def test_a_drained_node_is_resumed_only_if_it_passes_its_checks_and_the_scheduler_says_why_not(
    tmp_path: Path, found: str, resumed: bool
) -> None:
    check = {"name": "nccl", "command": ["all_reduce_perf"], "pattern": r"bandwidth: ([\d.]+)", "floor": 370}
    answers = {"node_state": looked({"hugepages": "in_sync"}), "gpu_node_info": FACTS, "slurm_drained_info": MARKED}
    answers["slurm_node"] = {"changed": False, "owner": "ours"}
    answers["command"] = {"changed": True, "rc": 0, "stdout": f"bandwidth: {found}", "stderr": ""}
    hosts = {"a": replaying(tmp_path / "a", answers)}
    inventory = {"hosts": hosts, "vars": {"drain_backend": "slurm", "preflight_checks": [check]}}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-v")
    said = re.sub(r"\s+", " ", output)
    assert ("drain : Resume the node in Slurm" in output) is resumed
    assert ("drain : Give the node that has our mark the reason" in output) is not resumed
    cause = "a failed, and stays drained: It is not resumed: check nccl: 212.4 is below 370"
    assert (cause in said) is not resumed
    assert output.endswith(f"ends with {0 if resumed else 2}"), output


@pytest.mark.parametrize("backend", ["slurm", "tasks"])
def test_a_node_whose_drain_broke_off_is_named_as_one_that_may_be_drained(tmp_path: Path, backend: str) -> None:
    """A scheduler out of reach is not taken for a node out of reach, whose run would end without a word."""
    answers = {"node_state": ENDS_JOBS, "gpu_node_info": FACTS, "mig_layout": {"changed": True}}
    # It answers this one question, and no other module.
    scheduler = replaying(tmp_path / "ctl", {"slurm_drained_info": {"changed": False, "nodes": []}})
    (tmp_path / "drain.yml").write_text(
        "- ansible.builtin.debug:\n- ansible.builtin.fail: {msg: jobs are still there}\n"
    )
    variables = {"drain_backend": backend, "drain_slurm_host": "ctl"}
    variables.update(drain_tasks=str(tmp_path / "drain.yml"), drain_resume_tasks=str(tmp_path / "drain.yml"))
    nodes = {"hosts": {"a": replaying(tmp_path / "a", answers)}, "vars": variables}
    inventory = {"children": {"nodes": nodes, "others": {"hosts": {"ctl": scheduler}}}}
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", "gpufleet_hosts=nodes")
    cause = {"slurm": "ctl, which drain_slurm_host names for a, is unreachable: ", "tasks": "jobs are still there"}
    said = re.sub(r"\s+", " ", output)
    assert f"a failed, and may be drained: {cause[backend]}" in said
    assert "gpufleet.node.mig_layout" not in output
    assert output.endswith("ends with 2")


def test_a_node_that_goes_out_of_reach_while_it_is_drained_is_named(tmp_path: Path) -> None:
    answers: Dict[str, Any] = {"node_state": ENDS_JOBS, "gpu_node_info": FACTS}
    answers.update(slurm_drained_info={"changed": False, "nodes": []}, slurm_node={"changed": True, "owner": "ours"})
    # Of mig_layout there is no answer.
    hosts = {host: replaying(tmp_path / host, answers) for host in ("a", "b")}
    inventory = {"hosts": hosts, "vars": {"drain_backend": "slurm", "drain_slurm_host": "b"}}
    right = {
        **answers,
        "node_state": looked({"hugepages": "drifted"}, to_converge=["hugepages"]),
        "hugepages": {"changed": True},
    }
    for module, answer in right.items():
        (tmp_path / "b" / f"{module}.json").write_text(json.dumps(answer))
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", "gpufleet_batches=2")
    assert "a stopped responding, and was drained before" in output
    assert output.endswith("ends with 4")
