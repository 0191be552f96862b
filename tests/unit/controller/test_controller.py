# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side: filters, the check of variables, the table of the audit, and what the playbooks must name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpufleet.node.plugins.action import validate_run
from ansible_collections.gpufleet.node.plugins.action.validate_run import (
    is_shared,
    known_names,
    lacking_binding,
    unknown_variables,
)
from ansible_collections.gpufleet.node.plugins.filter.needs_convergence import needs_convergence
from ansible_collections.gpufleet.node.plugins.filter.needs_repartition import needs_repartition
from ansible_collections.gpufleet.node.plugins.filter.removals import removals
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import rows_of, table
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.consumers import NEEDS
from ansible_collections.gpufleet.node.plugins.plugin_utils.declarations import (
    declaration_of,
    declarations,
    declaring,
    is_plain,
)
from ansible_collections.gpufleet.node.plugins.plugin_utils.playbooks import options_of
from ansible_collections.gpufleet.node.plugins.plugin_utils.profiles import ProfileError
from ansible_collections.gpufleet.node.plugins.plugin_utils.scope import excluded
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook
from ansible_collections.gpufleet.node.tests.unit.support import HostVars

ROOT = Path(__file__).resolve().parents[3]
COLLECTIONS = ROOT / ".cache" / "collections"
CONCERNS = [entry.name for entry in REGISTRY]


@pytest.mark.parametrize(
    ("only", "arguments", "kept"),
    [
        ([], {}, CONCERNS),
        (["hugepages"], {}, ["hugepages"]),
        ([], {"skip": CONCERNS[1:]}, CONCERNS[:1]),
        ([], {"tags": ["nvme_scheduler"]}, ["nvme_scheduler"]),
        ("hugepages, nvme_scheduler", {"skip": "hugepages"}, ["nvme_scheduler"]),
        ([], {"tags": ["always", "hugepages"]}, CONCERNS),
        ([], {"tags": ["some_other_tag"]}, []),
        ([], {"skip_tags": CONCERNS[1:]}, CONCERNS[:1]),
        (["hugepages"], {"skip_tags": ["hugepages"]}, []),
    ],
)
def test_a_run_is_narrowed_by_variables_and_tags(only: Any, arguments: Dict[str, Any], kept: List[str]) -> None:
    assert excluded(only, **arguments) == [name for name in CONCERNS if name not in kept]


def test_a_concern_that_declares_nothing_is_not_looked_at_unless_it_shall_be_taken_back() -> None:
    nothing = {"pools": [], "transparent": {}, "on_shortage": "fail"}
    assert declaring({"hugepages": {**nothing, "state": "present"}}) == {}
    for something in ({"state": "absent"}, {"state": "absnet"}, {"pools": "2M"}, {"transparent": "always"}):
        assert list(declaring({"hugepages": {**nothing, "state": "present", **something}})) == ["hugepages"]


def test_a_host_without_variables_declares_nothing() -> None:
    assert declarations({}, Templar(loader=DataLoader(), variables={}).template) == {}


def declare(variables: Mapping[str, Any]) -> Dict[str, Any]:
    """What the variables declare of huge pages."""
    return declaration_of("hugepages", variables, Templar(loader=DataLoader(), variables=variables).template)


def test_a_declaration_has_the_values_of_the_variables_whatever_they_refer_to() -> None:
    variables = {
        "pages": 64,
        "hugepages_pools": [{"size": "2M", "pages": trust_as_template("{{ pages * 2 }}")}],
        "hugepages_strict": True,
    }
    declared = declare(variables)
    assert (declared["pools"], declared["strict"]) == ([{"size": "2M", "pages": 128}], True)
    assert declared["on_shortage"] == "fail"
    with pytest.raises(AnsibleUndefinedVariable, match="nobody_said"):
        declare({"hugepages_pools": trust_as_template("{{ nobody_said }}")})


@pytest.mark.parametrize(
    "value", ["{{ x }}", {"a": ["{% if x %}"]}, "#jinja2: variable_start_string:'[%'\n[% x %]", object()]
)
def test_what_may_be_more_than_it_says_is_no_plain_value(value: Any) -> None:
    assert not is_plain(value)
    assert is_plain([{"a": 1, "b": [None, 0.5, True, "2M"]}])


def test_the_default_of_a_role_is_the_profiles_and_what_the_inventory_says_is_not() -> None:
    training = {"gpufleet_profile": trust_as_template("{{ 'train' ~ 'ing' }}"), "hugepages_pools": []}
    declared = declare(training)
    assert declared["transparent"] == {"enabled": "always", "defrag": "defer+madvise"}
    assert (declared["strict"], declared["pools"]) == (False, [])
    assert declare({**training, "hugepages_transparent": {}})["transparent"] == {}
    assert declare({})["transparent"] == {}
    with pytest.raises(ProfileError, match="Did you mean training"):
        declare({"gpufleet_profile": "trainig"})


HOSTS = """
all:
  vars: {gpufleet_profile: training}
  hosts:
    profile: {wanted: {enabled: always, defrag: defer+madvise}}
    inventory: {wanted: {enabled: never}, hugepages_transparent: {enabled: never}}
    empty: {wanted: {}, hugepages_transparent: {}}
    nothing: {wanted: {}, gpufleet_profile: ""}
    own: {wanted: {enabled: madvise}, gpufleet_profile: "{{ inventory_dir }}/own.yml"}
"""
PLAY = """
- hosts: all
  gather_facts: false
  vars: {hugepages_on_shortage: reboot}
  tasks:
    - gpufleet.node.validate_run:
    - ansible.builtin.assert:
        that:
          - declared.transparent == wanted
          - declared.on_shortage == 'reboot'
          - declared.drop_caches is false
      vars: {declared: "{{ lookup('gpufleet.node.declaration', 'hugepages') }}"}
"""


def test_whatever_sets_a_variable_beats_the_profile_in_a_run_of_ansible(tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "play.yml").write_text(PLAY)

    def run(profile: str) -> Tuple[int, str]:
        own.write_text(profile)
        ran = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml"],
            cwd=tmp_path,
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_HOME": str(tmp_path)},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return ran.returncode, ran.stdout + ran.stderr

    status, output = run("hugepages_transparent: {enabled: madvise}")
    assert (status, output.count("All assertions passed")) == (0, 5), output
    status, output = run("hugepages_transparnet: {enabled: madvise}")
    assert status == 2
    assert f"Cannot use hugepages_transparnet in the profile {own} (on own): no concern has such a variable." in output


def test_every_concern_has_a_role_whose_variables_declare_all_that_can_be() -> None:
    for entry in REGISTRY:
        assert all(name.startswith(f"{entry.name}_") for name in options_of(entry.name))
        declared = declaration_of(entry.name, {}, lambda value: value)
        shared = [name for name in SHARED_OPTIONS if f"{entry.name}_{name}" in options_of(entry.name)]
        assert set(declared) == {*shared, "accepted", *entry.concern.options}


def test_what_serves_others_is_declared_where_one_of_them_is() -> None:
    tools = {"node_tools": {"state": "present", "boot_timeout": 300}}
    assert declaring(tools) == {}
    assert list(declaring({**tools, "hugepages": {"pools": [{"size": "2M"}]}})) == ["node_tools", "hugepages"]


@pytest.mark.parametrize(("only", "skip"), [(["hugepage"], []), ([], ["hugepage"])])
def test_a_typo_in_the_name_of_a_concern_is_refused(only: List[str], skip: List[str]) -> None:
    with pytest.raises(AnsibleError, match="no concern hugepage; did you mean hugepages"):
        excluded(only, skip=skip)


def test_a_tag_that_is_nearly_a_concern_is_refused() -> None:
    with pytest.raises(AnsibleError, match="by tags: there is no concern hugepage; did you mean hugepages"):
        excluded([], tags=["hugepage"])


def test_hosts_with_work_keep_their_order() -> None:
    hostvars = HostVars(
        {
            "a": {"look": {"to_converge": ["x"]}},
            "b": {"look": {"to_converge": []}},
            "c": {},
            "d": {"look": {"to_converge": ["y"]}},
        }
    )
    assert needs_convergence(["d", "c", "b", "a"], hostvars, "look") == ["d", "a"]
    # Those that an earlier run has left drained are finished first, also where nothing differs any more.
    assert needs_convergence(["d", "c", "b", "a"], hostvars, "look", drained=["a", "b"]) == ["b", "a", "d"]


@pytest.mark.parametrize(
    ("mig_layout", "drained"),
    [
        ({"changes": [{"scope": "boot"}, {"scope": "effective"}], "needs": []}, True),
        ({"changes": [], "needs": ["idle_gpu"]}, True),
        ({"changes": [{"scope": "boot"}], "needs": []}, False),
        ({"changes": [], "needs": ["cdi", "reboot"]}, False),
        ({"changes": [], "needs": []}, False),
        (None, False),
    ],
)
def test_a_node_is_drained_only_where_a_gpu_is_to_be_divided_anew(mig_layout: Any, drained: bool) -> None:
    concerns = {"gpu_settings": {"changes": [{"scope": "effective"}], "needs": ["idle_gpu"]}}
    if mig_layout is not None:
        concerns["mig_layout"] = mig_layout
    hostvars = HostVars({"a": {"look": {"concerns": concerns}}, "b": {"look": {"msg": "unreachable"}}, "c": {}})
    assert needs_repartition(["c", "b", "a"], hostvars, "look") == (["a"] if drained else [])
    # One that an earlier run has left drained is finished, unless it has no layout.
    assert needs_repartition(["a", "b"], hostvars, "look", drained=["a", "b"]) == (
        ["a"] if mig_layout is not None else []
    )


def test_who_must_hear_of_a_new_layout_has_a_handler_of_its_own() -> None:
    handlers = yaml.safe_load((ROOT / "roles" / "mig_layout" / "handlers" / "main.yml").read_text())
    told = {handler["listen"]: handler["vars"]["__mig_layout_consumer"] for handler in handlers}
    assert told == {f"mig_layout {need}": f"{{{{ __mig_layout_result.effective.consumers.{need} }}}}" for need in NEEDS}


def test_a_variable_that_no_role_knows_is_named_with_the_nearest_one() -> None:
    known = {"hugepages_pools", "hugepages_transparent"}
    names = ["hugepages_pool", "hugepages_pools", "hugepages", "other_pools", "ansible_host"]
    assert unknown_variables(names, known) == {"hugepages_pool": "hugepages_pools"}


def test_typos_in_the_variables_of_the_playbooks_are_named_and_those_of_others_left_alone() -> None:
    names = [
        "gpufleet_concern_s",
        "audit_fail_on_drfit",
        "audit_log_path",
        "gpufleet_hosts",
        "drain_backnd",
        "drain_policy",
    ]
    assert unknown_variables(names, known_names()) == {
        "gpufleet_concern_s": "gpufleet_concerns",
        "audit_fail_on_drfit": "audit_fail_on_drift",
        "drain_backnd": "drain_backend",
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hugepage_pools", "hugepages_pools"),
        ("hugepage_pool", "hugepages_pools"),
        ("huge_pages_transparent", "hugepages_transparent"),
        ("nvme_queues", "nvme_scheduler_queues"),
        ("nvme_schedulers_queues", "nvme_scheduler_queues"),
        ("kernel_module_load", "kernel_modules_load"),
        ("numa_interrupts", "numa_irq_affinity_interrupts"),
        ("irq_affinity_reserved_cpus", None),
        ("gpu_setting_gpus", "gpu_settings_gpus"),
        ("mig_layouts_gpus", "mig_layout_gpus"),
        ("gpu_fleet_hosts", "gpufleet_hosts"),
        ("hugepages_pol", "hugepages_pools"),
        ("hugepages_transparnet", "hugepages_transparent"),
        ("nvidia_container_toolkit_package", None),
        ("container_toolkit_package", "container_toolkit_packages"),
        ("kubelet_config_dir", None),
        ("dcgm_version", None),
        ("kubelet_max_pods", None),
        ("swap_file_path", None),
        ("network_connections", None),
        ("nvme_cli_version", None),
        ("kernel_settings_sysctl", None),
        ("nvidia_enabled", None),
        ("nvidia_driver_version", None),
        ("container_engines", None),
        ("node_state", None),
        ("gpus", None),
        ("hugepages", None),
        ("timesync_ntp_servers", None),
    ],
)
def test_a_variable_that_is_nearly_ours_is_a_typo_and_that_of_others_is_not(name: str, meant: Optional[str]) -> None:
    assert unknown_variables([name], known_names()) == ({} if meant is None else {name: meant})


OF_OTHERS: Dict[str, List[str]] = yaml.safe_load(
    (ROOT / "tests" / "unit" / "controller" / "variables_of_others.yml").read_text(encoding="utf-8")
)
# One name for two things, in Kubespray and in DeepOps. Nothing can tell them apart, so that there must be no third.
OF_BOTH = {"drain_timeout", "reboot_timeout"}


@pytest.mark.parametrize("source", sorted(OF_OTHERS))
def test_no_variable_of_others_is_taken_for_a_typo_of_ours(source: str) -> None:
    assert unknown_variables(OF_OTHERS[source], known_names()) == {}
    assert set(OF_OTHERS[source]) & known_names() <= OF_BOTH


def test_what_others_begin_with_the_name_of_a_concern_is_known() -> None:
    theirs = [name for names in OF_OTHERS.values() for name in names]
    found = {prefix for prefix in CONCERNS if any(name.startswith(f"{prefix}_") for name in theirs)}
    assert [prefix for prefix in found if not is_shared(prefix)] == []
    assert {*validate_run.SHARED_PREFIXES, "dcgm"} <= found


def test_all_typos_of_a_run_come_at_once(tmp_path: Path) -> None:
    hosts = {name: {"ansible_connection": "local", "nvme_queues": []} for name in ("h1", "h2", "h3")}
    inventory = {"hosts": hosts, "vars": {"hugepage_pools": [], "hugepages_pol": []}}
    arguments = ("--tags", "hugepage", "--skip-tags", "nvmll", "-e", "gpufleet_concerns=hugepges,nvme_sheduler")
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.audit", *arguments, "-e", "gpufleet_detail=breif")
    (line,) = [line for line in output.splitlines() if line.startswith("fatal: ")]
    for said in (
        "variable nvme_queues (on h[1-3]): no role has such a variable. Did you mean nvme_scheduler_queues?",
        "variable hugepage_pools (on h[1-3]): no role has such a variable. Did you mean hugepages_pools?",
        "variable hugepages_pol (on h[1-3]): no role has such a variable. Did you mean hugepages_pools?",
        "by tags: there is no concern hugepage; did you mean hugepages?",
        "by skip-tags: there is no concern nvmll; did you mean nvml?",
        "by gpufleet_concerns: there is no concern hugepges; did you mean hugepages?",
        "by gpufleet_concerns: there is no concern nvme_sheduler; did you mean nvme_scheduler?",
        "must be one of brief, devices, full",
    ):
        assert said in line


def test_that_the_controller_has_no_binding_is_said_once_and_before_the_first_look() -> None:
    hosts: Dict[str, Dict[str, Any]] = {f"h{number}": {"gpu_settings_gpus": [{"ecc": "enabled"}]} for number in (1, 2)}
    hosts.update(h3={"hugepages_pools": []}, h4={"gpufleet_profile": "training", "nvml_source": "package"})
    hosts.update(h5={"gpufleet_profile": "training"}, h6={"mig_layout_gpus": []})
    assert lacking_binding(hosts, "there is no pynvml") == (
        "Cannot find nvidia-ml-py on the controller: there is no pynvml. Run pip install nvidia-ml-py there, or set "
        "nvml_file, or nvml_source: package. Until then no GPU can be checked on h[1-2,5]."
    )
    assert lacking_binding(hosts, "") is None
    assert lacking_binding({"h3": hosts["h3"]}, "there is no pynvml") is None


def setting(status: str, **values: Any) -> Dict[str, Any]:
    return {
        "object": "nvme0n1",
        "setting": "scheduler",
        "wanted": "none",
        "effective": "bfq",
        "boot": None,
        "status": status,
        **values,
    }


def result(status: str, *settings: Dict[str, Any], **values: Any) -> Dict[str, Any]:
    return {"status": status, "settings": list(settings), "conflicts": [], **values}


def test_the_table_shows_what_is_not_right_and_why_something_is_unknown() -> None:
    conflict = {
        "owner": "tuned",
        "path": "/etc/tuned/x",
        "line": 3,
        "object": "nvme1n1",
        "setting": "enabled",
        "value": "never",
        "wins": "them",
        "accepted": "",
    }
    look = {
        "concerns": {
            "hugepages": result("unknown", failure={}, msg="Cannot look."),
            "nvme_scheduler": result("drifted", setting("drifted"), setting("in_sync"), conflicts=[conflict]),
        },
        "orphaned": ["mig_layout"],
    }
    rows = rows_of("n1", look)
    assert [(row["object"], row["status"]) for row in rows] == [
        ("hugepages", "unknown"),
        ("nvme0n1", "drifted"),
        ("nvme1n1", "conflict"),
        ("mig_layout", "drifted"),
    ]
    lines = table(rows)
    assert lines[0].split() == ["NODE", "OBJECT", "SETTING", "WANTED", "IN", "EFFECT", "AT", "BOOT", "STATUS"]
    assert "    Cannot look." in lines
    assert "    tuned sets it to never in /etc/tuned/x:3, and wins" in lines
    assert next(line for line in lines if "nvme0n1" in line).split() == [
        "n1",
        "nvme0n1",
        "scheduler",
        "none",
        "bfq",
        "-",
        "drifted",
    ]


def test_a_long_value_is_cut_in_the_table() -> None:
    lines = table([{"node": "n", **setting("drifted", effective="x" * 500)}])
    assert max(len(line) for line in lines) < 160


def test_a_node_is_restored_in_an_order_in_which_nobody_loses_what_it_needs() -> None:
    everything = [entry.name for entry in REGISTRY]
    order = list(removals([*everything, "of_a_later_release"]))
    assert sorted(order) == sorted(everything)
    for entry in REGISTRY:
        assert all(
            order.index(entry.name) < order.index(name) for name in entry.registration.after if name != "node_tools"
        )
        assert all(order.index(entry.name) > order.index(name) for name in entry.registration.serves)
    assert order[-1] == "node_tools"
    assert removals(["hugepages"]) == {"hugepages": {"state": "absent"}}
    # What waits for the next boot needs the binding, and the tools, once more.
    assert list(removals(["node_tools", "nvml", "gpu_settings"], needed=False)) == ["gpu_settings"]
    assert list(removals(["node_tools", "nvml"], needed=False)) == ["nvml", "node_tools"]


def test_every_concern_has_tasks_that_give_it_back_without_its_declaration() -> None:
    for entry in REGISTRY:
        tasks = yaml.safe_load((ROOT / "roles" / entry.name / "tasks" / "absent.yml").read_text())
        assert tasks[0][f"gpufleet.node.{entry.name}"] == {"state": "absent"}
