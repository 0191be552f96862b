# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How runs end: the cause of each failure, the hosts that are counted as failed, and the result that AWX keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest

pytest.importorskip("ansible.plugins.action", reason="an action needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.failure_cause import failure_cause
from ansible_collections.gpufleet.node.plugins.filter.node_failure import node_failure
from ansible_collections.gpufleet.node.plugins.plugin_utils.failures import Failure, failures_in, sentences
from ansible_collections.gpufleet.node.plugins.plugin_utils.summary import NO_GROUPS
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
# A node whose pages are made.
WORKS = {
    "node_state": looked({PAGES: [row("pages", 8, 0, 0)]}),
    "node_state_after": RIGHT,
    PAGES: {"changed": True, "needs": [], "reboot_reasons": []},
}
# A node that is away, as Ansible says it.
AWAY = "Task failed: Cannot replay node_state: there is no answer of it."


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


# --- the end of the run has the cause of every node -------------------------------------------------------------------


def why(output: str) -> List[str]:
    """The lines below the title, which stand behind all that Ansible says of failures, right above its recap."""
    title = "\nWhy nodes fail\n"
    assert output.count(title) == 1, output
    before, _title, end = output.partition(title)
    below, recap, _rest = end.partition("PLAY RECAP")
    assert recap
    assert not re.search("fatal: |ERROR", below)
    assert "fatal: " in before
    return [line for line in below.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("away", [True, False])
def test_the_causes_of_all_nodes_are_in_one_place_behind_what_ansible_says(tmp_path: Path, away: bool) -> None:
    wrong = looked(
        {PAGES: [row("pages", 8, 0, 0, "invalid")]}, hugepages={"failure": {"code": "x"}, "msg": "Cannot a."}
    )
    refused = {**wrong, "failed": True, "msg": "hugepages: Cannot a."}
    other = {**without_toolkit(), ENGINES: {"failed": True, "msg": "Cannot b."}}
    out_of_reach: Dict[str, Any] = {"h4": {}} if away else {}
    answers = {"h1": without_toolkit(), "h2": without_toolkit(), "h3": other, "h5": {"node_state": refused}}
    inventory = fleet(tmp_path, **answers, **out_of_reach)
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", "gpufleet_batches=100%")
    assert set(why(output)) == {
        f"  h[1-2] (2): failed: container_runtime: {TOOLKIT}",
        "  h3: failed: container_runtime: Cannot b.",
        *([f"  h4: did not respond: {AWAY}"] if away else []),
        "  h5: failed: hugepages: Cannot a.",
    }
    assert said_by_ansible(output.partition("PLAY [Say how it ended]")[2]) == {
        "h1": "h1 failed, see below.",
        "h2": "h2 failed, see below.",
        "h3": "h3 failed: container_runtime: Cannot b.",
        "h5": "h5 failed: hugepages: Cannot a.",
    }
    assert set(failed_hosts(output)) == {*answers, *out_of_reach}
    assert output.endswith(f"ends with {4 if away else 2}")


def test_nodes_that_have_causes_in_common_and_others_alone_fail_with_their_own() -> None:
    both = Failure("failed", ("hugepages: a.", "nvme_scheduler: b."))
    alone = Failure("failed, and stays drained", ("hugepages: a.",))
    failures = {"h1": both, "h2": Failure("failed", ("hugepages: a.",)), "h3": alone, "h4": Failure("waits for h1")}
    assert sentences(failures) == {
        "h1": "h1 failed: nvme_scheduler: b. There is more below.",
        "h2": "h2 failed, see below.",
        "h3": "h3 failed, and stays drained: hugepages: a.",
        "h4": "h4 waits for h1",
    }
    assert both.lines == ["failed: hugepages: a.", "failed: nvme_scheduler: b."]
    assert [failure.text for failure in failures.values()] == [
        "hugepages: a. nvme_scheduler: b.",
        "hugepages: a.",
        "failed, and stays drained: hugepages: a.",
        "waits for h1",
    ]


@pytest.mark.parametrize(
    ("variables", "in_play", "failure"),
    [
        ({"gpufleet_look": RIGHT}, True, None),
        ({}, True, None),
        ({}, False, Failure("failed", ("see the output of the run",))),
        ({"gpufleet_look": RIGHT}, False, Failure("stopped responding")),
        (
            {"gpufleet_look": RIGHT, "gpufleet_drained": True},
            False,
            Failure("stopped responding, and was drained before"),
        ),
        (
            {"gpufleet_look": {"unreachable": True, "msg": " timed\nout "}},
            False,
            Failure("did not respond", ("timed out",)),
        ),
        ({"gpufleet_look": {"unreachable": True}}, False, Failure("did not respond")),
        (
            {"gpufleet_look": {"failed": True, "msg": "Cannot read it.", "unreadable": "concerns is a list"}},
            False,
            Failure("failed", ("Cannot read it.",)),
        ),
        (
            {"gpufleet_look": {**RIGHT, "refused": "hugepages: a\nmps is b.\nnvme_scheduler: c."}},
            True,
            Failure("failed", ("hugepages: a mps is b.", "nvme_scheduler: c.")),
        ),
        (
            {"gpufleet_look": RIGHT, "gpufleet_failure": "failed, and stays drained: hugepages: a.\nmps: b."},
            True,
            Failure("failed, and stays drained", ("hugepages: a.", "mps: b.")),
        ),
        ({"gpufleet_failure": "cannot be rebooted: mps is wrong."}, True, Failure("cannot be rebooted: mps is wrong.")),
        # Neither of the two hides the other.
        (
            {
                "gpufleet_look": {**RIGHT, "refused": "hugepages: a."},
                "gpufleet_failure": "failed in Kubernetes, not on the node: no response",
            },
            True,
            Failure("failed", ("hugepages: a.", "in Kubernetes, not on the node: no response")),
        ),
        (
            {
                "gpufleet_look": {"unreachable": True, "msg": "timed out"},
                "gpufleet_failure": "failed in Kubernetes, not on the node: no facts",
            },
            False,
            Failure("did not respond", ("timed out",)),
        ),
        (
            {"gpufleet_look": RIGHT, "gpufleet_no_report": "Cannot write it."},
            True,
            Failure("failed", ("Cannot write it.",)),
        ),
    ],
)
def test_why_a_node_failed_is_what_the_run_noted_or_its_look_found(
    variables: Dict[str, Any], in_play: bool, failure: Optional[Failure]
) -> None:
    found = failures_in({"h1": variables}, {"h1": variables.get("gpufleet_look")}, ["h1"] * in_play)
    assert found == ({} if failure is None else {"h1": failure})


def test_what_keeps_nodes_from_jobs_is_in_one_place_too(tmp_path: Path) -> None:
    command = {"changed": False, "rc": 0, "stdout": "", "stderr": "", "start": "now"}
    ready = {"node_state": {**RIGHT, "orphaned": []}, "command": command}
    forgotten = {**ready, "node_state": {**RIGHT, "orphaned": ["mps"]}}
    blind = {**ready, "gpu_node_info": {"failed": True, "msg": "no Python"}}
    inventory = fleet(tmp_path, h1=ready, h2=forgotten, h3=blind, h4={})
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.verify")
    below = output.partition("\nNot ready for jobs\n")[2].partition("PLAY RECAP")[0]
    assert sorted(line for line in below.splitlines() if line.startswith("  ")) == [
        "  h2: mps is declared on the node, but not in the inventory",
        "  h3: no Python",
        f"  h4: {AWAY}",
    ], output
    assert "fatal: " not in below
    assert set(failed_hosts(output)) == {"h2", "h3", "h4"}
    assert said_by_ansible(output)["h3"] == "h3 is not ready for jobs:\nno Python"


def test_a_node_out_of_reach_is_in_the_last_table_in_the_result_and_in_the_report(tmp_path: Path) -> None:
    """Also if no other node failed, so that none is left to say it."""
    inventory = fleet(tmp_path, h1=WORKS, h2={"node_state": RIGHT}, h3={}, h4={})
    inventory["vars"]["hugepages_pools"] = [{"size": "2M", "pages": 8}]
    dest = tmp_path / "report"
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", f"gpufleet_report_dest={dest}")
    table = output.partition("\nWhat is not in sync after the run\n")[2].splitlines()
    assert table[:2] == [
        f"  h[3-4] (2) did not respond: {AWAY}",
        "  2 of 4 nodes are in sync. Settings: 0 in sync.",
    ], output
    assert why(output) == [f"  h[3-4] (2): did not respond: {AWAY}"]
    kept = of_run(output)
    assert (kept["nodes_total"], kept["nodes"]["unreachable"]) == (4, ["h3", "h4"])
    assert kept["failed"] == dict.fromkeys(("h3", "h4"), f"did not respond: {AWAY}")
    document = json.loads((dest / "gpufleet-report.json").read_text(encoding="utf-8"))
    assert [(node["name"], node["status"]) for node in document["nodes"]][2:] == [
        ("h3", "unreachable"),
        ("h4", "unreachable"),
    ]
    assert document["nodes"][2]["message"] == AWAY
    assert failed_hosts(output) == {"h3": 1, "h4": 1}
    foreseen = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "--check")
    assert f"  fail     h[3-4] (2): did not respond: {AWAY}" in foreseen.splitlines(), foreseen
    assert of_run(foreseen)["failed"] == kept["failed"]


def test_a_look_that_objects_is_no_error_without_a_host(tmp_path: Path) -> None:
    wrong = looked(
        {PAGES: [row("pages", 8, 0, 0, "invalid")]}, hugepages={"failure": {"code": "x"}, "msg": "Cannot a."}
    )
    answers = {"node_state": {**wrong, "failed": True, "msg": "hugepages: Cannot a."}}
    output = ansible_playbook(tmp_path, fleet(tmp_path, a=answers), "gpufleet.node.site")
    look = output.partition("TASK [Look at the node]")[2].partition("TASK [")[0]
    assert "ok: [a]" in look
    assert "ERROR" not in look
    assert all(re.search(r"\ba failed: ", line) for line in output.splitlines() if line.startswith("[ERROR]"))


# --- groups of the playbooks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run", ["site", "site --check", "mig_repartition", "reboot", "remove", "remove --check", "device_plugin", "audit"]
)
def test_no_playbook_names_a_group_that_is_not_there(tmp_path: Path, run: str) -> None:
    playbook, *options = run.split()
    inventory = fleet(tmp_path, a={"node_state": RIGHT}, b={"node_state": RIGHT})
    arguments = (f"gpufleet.node.{playbook}", *options)
    # Ansible warns of it, unless it is to refuse that.
    output = ansible_playbook(tmp_path, inventory, *arguments, host_pattern_mismatch="error")
    assert output.endswith("ends with 0"), output
    assert "Could not match" not in output


def test_nodes_with_work_need_no_group_of_others(tmp_path: Path) -> None:
    inventory = fleet(tmp_path, a=WORKS, b={"node_state": RIGHT})
    inventory["vars"]["hugepages_pools"] = [{"size": "2M", "pages": 8}]
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", host_pattern_mismatch="error")
    assert output.endswith("ends with 0"), output
    assert "PLAY [Converge the nodes that have work]" in output
    assert "Why nodes fail" not in output


def test_the_groups_that_playbooks_make_are_in_no_report() -> None:
    playbooks = Path(__file__).resolve().parents[3] / "playbooks"
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(playbooks.rglob("*.yml")))
    made = re.findall(r"(?m)^ +groups: \[(\w+)\]$|^ +key: (\w+)$", text)
    assert made
    assert {group or key for group, key in made} <= NO_GROUPS


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


REFUSAL = "Cannot make pages on node0: the kernel has no memory there."
CHANGE = {"object": "node0", "setting": "x", "before": 0, "after": 8, "scope": "effective", "takes_effect": "now"}


def refusing(concern: str, code: str = "refused") -> Dict[str, Any]:
    """A look at a node on which the run changes something, and then stops."""
    entry = {"changes": [CHANGE], "refusals": [{"code": code, "msg": REFUSAL}]}
    return looked({concern: [row("x", 8, 0, 0)]}, **{concern: entry})


@pytest.mark.parametrize(("playbook", "concern"), [("site", PAGES), ("mig_repartition", "mig_layout")])
def test_check_mode_fails_the_nodes_on_which_the_run_would_fail(tmp_path: Path, playbook: str, concern: str) -> None:
    changes = looked({concern: [row("x", 8, 0, 0)]}, **{concern: {"changes": [CHANGE]}})
    done = {concern: {"changed": True, "needs": [], "reboot_reasons": []}}
    inventory = fleet(
        tmp_path,
        a={"node_state": refusing(concern), **done},
        b={"node_state": changes, **done},
        # What a role installs first is no failure.
        c={"node_state": refusing(concern, "no_package"), **done},
    )
    output = ansible_playbook(tmp_path, inventory, f"gpufleet.node.{playbook}", "--check")
    assert output.endswith("ends with 2"), output
    forecast, _fatal, end = output.partition("What would be done")[2].partition("fatal: ")
    assert f"  fail     a: {concern}: {REFUSAL}" in forecast.splitlines()
    assert f"  change   a,b,c (3): 1 change each: {concern} 1" in forecast.splitlines()
    assert end.startswith("[a]")
    assert said_by_ansible(output) == {"a": f"a would fail: {concern}: {REFUSAL}"}
    assert why(output) == [f"  a: would fail: {concern}: {REFUSAL}"]
    assert failed_hosts(output) == {"a": 1}
    assert of_run(output)["failed"] == {"a": f"{concern}: {REFUSAL}"}


def test_what_was_foreseen_is_no_failure_of_a_run_that_succeeds(tmp_path: Path) -> None:
    inventory = fleet(tmp_path, a={**WORKS, "node_state": refusing(PAGES)})
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site")
    assert output.endswith("ends with 0"), output
    assert of_run(output)["failed"] == {}


def test_a_wrong_declaration_hides_nothing_that_other_concerns_would_fail_with(tmp_path: Path) -> None:
    rows = {
        PAGES: [row("pages", 8, 0, 0, "invalid")],
        ENGINES: [row("runtime nvidia", 1, None, None)],
        "mps": [row("daemon", 1, None, None, "unknown")],
        "dcgm": [row("service", 1, None, None)],
        "nvml": [row("file", 1, None, None)],
        "gpu_settings": [row("ecc", 1, None, None, "unknown")],
    }
    look = looked(
        rows,
        hugepages={"failure": {"code": "declaration"}, "msg": "Cannot read the declaration."},
        container_runtime={"refusals": [{"code": "no_runtime", "msg": TOOLKIT}]},
        mps={"failure": {"code": "cannot_look"}, "msg": "Cannot ask the daemon."},
        # What another concern, or the role, brings is no failure.
        dcgm={"refusals": [{"code": "no_package", "msg": "Cannot find dcgm."}]},
        gpu_settings={"failure": {"code": "no_binding"}, "msg": "Cannot query the driver."},
    )
    look.update(waiting=["gpu_settings"], failed=True, msg="hugepages: Cannot read the declaration.")
    look["to_converge"] = list(rows)
    causes = [
        "hugepages: Cannot read the declaration.",
        "mps: Cannot ask the daemon.",
        f"container_runtime: {TOOLKIT}",
    ]
    output = ansible_playbook(tmp_path, fleet(tmp_path, a={"node_state": look}), "gpufleet.node.site", "--check")
    forecast = output.partition("What would be done\n")[2].partition("\nok: ")[0]
    assert forecast.splitlines() == [
        f"  fail     a: {' '.join(causes[:2])}",
        f"  fail     a: {causes[2]}",
    ], output
    assert why(output) == [f"  a: failed: {cause}" for cause in causes]
    assert of_run(output)["failed"] == {"a": " ".join(causes)}


def test_check_mode_calls_no_node_drained_that_was_not_before(tmp_path: Path) -> None:
    look = looked({PAGES: [row("pages", 8, 0, 0)]}, hugepages={"needs": ["idle_gpu"]})
    still = {**look, "failed": True, "msg": "hugepages: Cannot make pages."}
    drain = {"slurm_drained_info": {"changed": False, "nodes": []}, "slurm_node": {"changed": True, "owner": "ours"}}
    answers = {"node_state": look, PAGES: {"failed": True, "msg": "Cannot make pages."}, **drain}
    inventory = fleet(tmp_path, a={**answers, "node_state_after": still})
    inventory["vars"]["drain_backend"] = "slurm"
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "--check")
    assert "drain : " in output
    kept = of_run(output)
    assert (kept["drained"], kept["failed"]) == ([], {"a": "hugepages: Cannot make pages."})
    assert of_run(ansible_playbook(tmp_path, inventory, "gpufleet.node.site"))["drained"] == ["a"]


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_report_that_cannot_be_written_is_the_failure_of_one_node(tmp_path: Path, options: Sequence[str]) -> None:
    (tmp_path / "file").touch()
    look = looked({PAGES: [row("pages", 8, 0, 0)]}, hugepages={"changes": [CHANGE]})
    after = look if options else RIGHT
    inventory = fleet(tmp_path, a={**WORKS, "node_state": look, "node_state_after": after}, b={"node_state": RIGHT})
    dest = f"gpufleet_report_dest={tmp_path / 'file' / 'x'}"
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site", "-e", dest, *options)
    assert output.endswith("ends with 2"), output
    ((host, cause),) = of_run(output)["failed"].items()
    assert cause.startswith("Cannot write the report to ")
    assert (host, why(output)) == ("a", [f"  a: failed: {cause}"])
    assert said_by_ansible(output)["a"] == f"a failed: {cause}"
    assert ("  change   a: 1 change: hugepages 1" in output.splitlines()) == bool(options)


@pytest.mark.parametrize("playbook", ["mig_repartition", "reboot"])
def test_a_wrong_declaration_is_the_cause_also_where_a_playbook_has_one_of_its_own(
    tmp_path: Path, playbook: str
) -> None:
    rows = {PAGES: [row("pages", 8, 0, 0, "invalid")], "mig_layout": [row("layout", 1, None, None, "unknown")]}
    failure = {"failure": {"code": "x"}}
    look = looked(rows, hugepages={**failure, "msg": "Cannot a."}, mig_layout={**failure, "msg": "Cannot b."})
    look.update(failed=True, msg="hugepages: Cannot a.")
    inventory = fleet(tmp_path, a={"node_state": look})
    inventory["vars"]["reboot_reasons"] = ["a new kernel"]
    output = ansible_playbook(tmp_path, inventory, f"gpufleet.node.{playbook}")
    assert of_run(output)["failed"] == {"a": "hugepages: Cannot a."}
    output = ansible_playbook(tmp_path, inventory, f"gpufleet.node.{playbook}", "--check")
    assert "  fail     a: hugepages: Cannot a. mig_layout: Cannot b." in output.splitlines()
