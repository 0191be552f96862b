# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How runs end: the cause of each failure, the hosts that are counted as failed, and the result that AWX keeps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

import pytest

pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.failure_cause import failure_cause
from ansible_collections.gpufleet.node.plugins.filter.node_failure import node_failure
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import (
    ansible_playbook,
    failed_hosts,
    replaying,
    said_by_ansible,
    statistics,
)

FACTS = {"changed": False, "node": {"nvml_gpus": 0, "gpus": [], "health": None, "owners": [], "driver": None}}
ENGINES, PAGES = "container_runtime", "hugepages"
# As the role of the concern fails where there is no container toolkit.
TOOLKIT = (
    "Cannot add the runtime /usr/bin/nvidia-container-runtime to containerd: it does not exist. Install the package "
    "nvidia-container-toolkit, as the role container_toolkit does."
)
FIELDS = {
    *("schema", "playbook", "check_mode", "finished", "nodes_total", "nodes", "settings", "failed", "not_started"),
    *("drained", "perhaps_drained", "needs", "report"),
}


def row(setting: str, wanted: Any, effective: Any, boot: Any, status: str = "drifted") -> Dict[str, Any]:
    values = {"wanted": wanted, "effective": effective, "boot": boot}
    return {"object": "containerd", "setting": setting, **values, "status": status}


def looked(concerns: Mapping[str, Sequence[Dict[str, Any]]], **entries: Mapping[str, Any]) -> Dict[str, Any]:
    """An answer of node_state: the rows of each concern that are not in sync; ``entries`` are added to concerns."""
    found: Dict[str, Any] = {}
    for name, rows in concerns.items():
        found[name] = {"status": rows[0]["status"] if rows else "in_sync", "settings": list(rows)}
        found[name].update(entries.get(name, {}))
    statuses = {status: [] for status in ("in_sync", "drifted", "pending", "unknown", "invalid")}
    for name, entry in found.items():
        statuses[entry["status"]].append(name)
    lists: Dict[str, List[str]] = {"waiting": [], "orphaned": [], "managed": [], "to_converge": statuses["drifted"]}
    return {"changed": False, "concerns": found, "reboot_noted": {}, **statuses, **lists}


RIGHT = looked({PAGES: []})
DRIFTED = looked({ENGINES: [row("runtime nvidia", "/usr/bin/nvidia-container-runtime", None, None)]})
STILL = {**DRIFTED, "failed": True, "msg": "container_runtime: it is not as declared"}


def fleet(tmp_path: Path, **answers: Mapping[str, Any]) -> Dict[str, Any]:
    hosts = {name: replaying(tmp_path / name, {"gpu_node_info": FACTS, **of}) for name, of in answers.items()}
    # A node that is away: of its look there is no answer.
    return {"hosts": hosts, "vars": {"container_runtime_engines": [{"engine": "containerd"}]}}


def without_toolkit() -> Dict[str, Any]:
    return {"node_state": DRIFTED, "node_state_after": STILL, ENGINES: {"failed": True, "msg": TOOLKIT}}


def without_spaces(text: str) -> str:
    return " ".join(text.split())


# --- the cause is the last word ---------------------------------------------------------------------------------------


def test_the_message_of_the_concern_that_failed_is_the_failure_of_the_node(tmp_path: Path) -> None:
    output = ansible_playbook(tmp_path, fleet(tmp_path, a=without_toolkit()), "gpufleet.node.site")
    assert output.endswith("ends with 2")
    assert "None" not in without_spaces(output).replace("NoneType", "")
    assert said_by_ansible(output) == {"a": f"a failed: container_runtime: {TOOLKIT}"}
    assert statistics(output)["gpufleet_run"]["failed"] == {"a": f"container_runtime: {TOOLKIT}"}


def test_equal_causes_are_one_line(tmp_path: Path) -> None:
    inventory = fleet(tmp_path, **{name: without_toolkit() for name in ("h1", "h2", "h3")})
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", "gpufleet_batches=100%")
    end = output.partition("Why nodes fail")[2]
    assert f"  h[1-3] (3): failed: container_runtime: {TOOLKIT}" in end.splitlines()
    assert end.partition("PLAY RECAP")[0].count("container_runtime") == 1
    assert failed_hosts(output) == {"h1": 1, "h2": 1, "h3": 1}


def test_what_did_not_fail_is_named_by_its_differences_after_what_did() -> None:
    look = looked(
        {
            PAGES: [
                row("pages", 8, None, 8),
                row("defrag", "madvise", "madvise", None),
                row("enabled", "always", "never", "madvise"),
                row("khugepaged", None, 1, 1),
            ],
            ENGINES: [row("runtime nvidia", "/usr/bin/nvidia-container-runtime", None, None)],
        }
    )
    assert node_failure(look, {ENGINES: TOOLKIT, "mig_layout": "gone by now"}).splitlines() == [
        f"container_runtime: {TOOLKIT}",
        "hugepages: containerd pages is not set (at boot 8), wanted 8; containerd defrag is madvise, as wanted, but"
        " would be not set after a reboot; containerd enabled is never (at boot madvise), wanted always; containerd"
        " khugepaged is 1, wanted not set",
    ]
    assert node_failure(look, {ENGINES: TOOLKIT}, check_mode=True) == ""


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        ({"msg": TOOLKIT}, TOOLKIT),
        ({}, "see above"),
        ({"results": 5, "msg": "odd"}, "odd"),
        ({"results": {"failed": True}, "msg": ["odd"]}, "['odd']"),
        (None, "see above"),
        (
            {"msg": "non-zero return code", "rc": 1, "cmd": ["update-grub"], "stderr": "a\nno space left\n"},
            "update-grub ended with status 1: no space left",
        ),
        ({"msg": "non-zero return code", "rc": 3, "cmd": "true", "stdout": ""}, "true ended with status 3"),
        (
            {
                "msg": "One or more items failed",
                "results": [{"msg": "x", "failed": False}, *[{"failed": True, "msg": "no key"}] * 2],
            },
            "no key",
        ),
    ],
)
def test_the_cause_is_what_the_program_or_the_entry_of_a_loop_said(result: Any, cause: str) -> None:
    assert failure_cause(result) == cause


# --- who is counted as failed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [False, True])
def test_an_audit_fails_for_drift_only_if_it_is_to_and_then_on_the_nodes_that_have_it(
    tmp_path: Path, report: bool
) -> None:
    inventory = fleet(tmp_path, a={"node_state": RIGHT}, b={"node_state": DRIFTED}, c={"node_state": RIGHT})
    dest = ("-e", f"gpufleet_report_dest={tmp_path / 'report'}") if report else ()
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.audit", *dest)
    assert output.endswith("ends with 0"), output
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.audit", *dest, "-e", "audit_fail_on_drift=true")
    assert output.endswith("ends with 2"), output
    assert failed_hosts(output) == {"b": 1}
    assert said_by_ansible(output) == {"b": "b has drifted: container_runtime"}


def test_a_node_without_facts_is_the_one_that_fails(tmp_path: Path) -> None:
    inventory = fleet(tmp_path, a={"node_state": RIGHT}, b={"gpu_node_info": {"failed": True, "msg": "no Python"}})
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.collect", "-e", f"collect_dest={tmp_path / 'facts'}")
    assert set(failed_hosts(output)) == {"b"}, output


def test_what_nodes_say_is_never_a_template_and_odd_answers_fail_only_their_nodes(tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    text = f"{{{{ lookup('pipe', 'touch {proof}') }}}} {{% for x in y %}}{{{{ 7*191 }}}}"
    said = {"files": [{"path": text, "diff": f"---\n+++\n{text}\n"}], "reboot_reasons": [text]}
    look = looked({ENGINES: [row(text, "a", None, None)]}, container_runtime=said)
    still = {**look, "failed": True}
    few = {"concerns": {ENGINES: {"status": "drifted"}}, "orphaned": [], "failed": True, "msg": text}
    inventory = fleet(
        tmp_path,
        h1={"node_state": look, "node_state_after": {**still, "msg": text}, ENGINES: {"failed": True, "msg": text}},
        H1={"node_state": look, "node_state_after": {**still, "msg": [text]}, ENGINES: {"failed": True, "results": 7}},
        h2={"node_state": look, "node_state_after": still, ENGINES: {"failed": True, "msg": {"a": text}}},
        h3={"node_state": {"failed": True, "msg": "\n", "module_stdout": text}},
        h4={"node_state": few},
        h5={"node_state": RIGHT},
    )
    for options in ((), ("--check", "--diff")):
        output = ansible_playbook(
            tmp_path,
            inventory,
            "gpufleet.node.site",
            "-e",
            "gpufleet_max_failed=9",
            "-e",
            "gpufleet_batches=9",
            *options,
        )
        assert not proof.exists()
        assert "1337" not in output
        assert not re.search("Traceback|has no attribute|Action failed: Unknown error|Task failed: 'msg'", output), (
            output
        )
        assert set(failed_hosts(output)) == {"h1", "H1", "h2", "h3", "h4"}
        failed = of_run(output)["failed"]
        assert set(failed) == {"h1", "H1", "h2", "h3", "h4"}
        assert failed["h1"].endswith(text)


# --- the result for machines ------------------------------------------------------------------------------------------


def of_run(output: str) -> Dict[str, Any]:
    kept: Dict[str, Any] = statistics(output)["gpufleet_run"]
    assert set(kept) == FIELDS
    return kept


def test_the_result_names_what_failed_what_waits_and_what_was_not_started(tmp_path: Path) -> None:
    waits = looked({PAGES: [row("pages", 8, 0, 8, "pending")]}, hugepages={"needs": ["reboot"]})
    drained = {"slurm_drained_info": {"changed": False, "nodes": [{"name": "h1"}]}, "slurm_node": {"changed": True}}
    h1 = {**without_toolkit(), **drained}
    inventory = fleet(tmp_path, h1=h1, h2=without_toolkit(), h3={"node_state": waits}, h4={})
    inventory["vars"].update(drain_backend="slurm", drain_slurm_host="h1")
    report = ("-e", f"gpufleet_report_dest={tmp_path / 'report'}", "-e", "gpufleet_report_formats=json")
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", *report)
    kept = of_run(output)
    assert (kept["schema"], kept["playbook"], kept["check_mode"], kept["finished"]) == (1, "site", False, True)
    assert kept["nodes_total"] == 4
    assert {status: names for status, names in kept["nodes"].items() if names} == {
        "drifted": ["h1", "h2"],
        "pending": ["h3"],
        "unreachable": ["h4"],
    }
    assert sorted(kept["failed"]) == ["h1", "h4"]
    assert kept["failed"]["h1"] == f"failed, and stays drained: container_runtime: {TOOLKIT}"
    assert "there is no answer" in kept["failed"]["h4"]
    assert (kept["not_started"], kept["drained"], kept["perhaps_drained"]) == (["h2"], ["h1"], [])
    assert kept["needs"] == {"reboot": ["h3"]}
    assert kept["report"] == [str(tmp_path / "report" / "gpufleet-report.json")]
    assert (
        "  not started: h2, because too many nodes failed: h1. Fix the cause, then run it again" in output.splitlines()
    )


@pytest.mark.parametrize(
    ("playbook", "failed"),
    [
        ("mig_repartition", {}),
        (
            "reboot",
            {"a": f"cannot be rebooted: {ENGINES} would not be in sync afterwards. Run gpufleet.node.site first."},
        ),
        (
            "remove",
            {
                "a": "has gpu_fans, which this release does not know: run gpufleet.node.remove of the release that "
                "declared it."
            },
        ),
        ("device_plugin", {}),
    ],
)
def test_every_playbook_that_changes_something_has_a_result(
    tmp_path: Path, playbook: str, failed: Dict[str, str]
) -> None:
    look = {**DRIFTED, "managed": ["gpu_fans"]}
    inventory = fleet(tmp_path, a={"node_state": look}, b={"node_state": RIGHT})
    inventory["vars"]["reboot_reasons"] = ["a new kernel"]
    inventory["hosts"]["b"]["reboot_allowed"] = False
    kept = of_run(ansible_playbook(tmp_path, inventory, f"gpufleet.node.{playbook}"))
    assert (kept["playbook"], kept["finished"], kept["failed"]) == (playbook, True, failed)


def test_a_run_that_breaks_off_says_so(tmp_path: Path) -> None:
    """Ansible ends a run where all hosts of a batch are out of reach."""
    inventory = fleet(tmp_path, a={"node_state": DRIFTED}, b={"node_state": DRIFTED})
    for name in "ab":
        (tmp_path / name / "gpu_node_info.json").unlink()
    kept = of_run(ansible_playbook(tmp_path, inventory, "gpufleet.node.site"))
    assert kept["finished"] is False


def test_the_shape_of_the_result_is_documented() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "report.md").read_text(encoding="utf-8")
    section = text.partition("## gpufleet_run")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE)) == FIELDS


# --- what is foreseen -------------------------------------------------------------------------------------------------


def test_what_changes_on_a_node_is_foreseen_although_one_of_its_concerns_fails(tmp_path: Path) -> None:
    change = {"object": "node0", "setting": "2M pages", "before": 0, "after": 8, "scope": "effective"}
    fails = {"failure": {"code": "refused"}, "msg": TOOLKIT, "settings": [], "changes": []}
    pages = {"changes": [{**change, "takes_effect": "now"}]}
    rows = {ENGINES: [row("runtime nvidia", 1, None, None)], PAGES: [row("pages", 8, 0, 0)]}
    look = {**looked(rows, container_runtime=fails, hugepages=pages), "to_converge": [PAGES]}
    after = {**look, "failed": True, "msg": f"container_runtime: {TOOLKIT}"}
    answers = {"node_state": look, "node_state_after": after, PAGES: {"changed": True}}
    inventory = fleet(tmp_path, a=answers)
    inventory["vars"]["hugepages_pools"] = [{"size": "2M", "pages": 8}]
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "--check")
    lines = output.partition("What would be done")[2].splitlines()
    assert lines[1:3] == ["  change   a: 1 change: hugepages 1", f"  fail     a: container_runtime: {TOOLKIT}"], output
    assert (statistics(output)["gpufleet_run"]["check_mode"], failed_hosts(output)) == (True, {"a": 1})
