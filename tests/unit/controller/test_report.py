# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as a value, and as JSON, JUnit XML and metrics. The page has a file of its own."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple
from xml.etree import ElementTree

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import PARTS
from ansible_collections.gpufleet.node.plugins.plugin_utils.report import as_json, as_junit, as_prometheus
from ansible_collections.gpufleet.node.plugins.plugin_utils.report.model import Host, Report, ReportNode, build
from ansible_collections.gpufleet.node.plugins.plugin_utils.summary import summarise
from ansible_collections.gpufleet.node.tests.unit.controller.report_fleet import (
    GENERATED,
    JOB_CPUS,
    SYSTEM_CPUS,
    Kind,
    divided,
    fleet,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.controller.report_fleet",)

ROOT = Path(__file__).resolve().parents[3]
SECONDS_FOR_A_THOUSAND = 12.0
OUT_OF_REACH = {"unreachable": True, "msg": "Failed to connect to the host via ssh: timed out"}


def report(**hosts: Host) -> Report:
    return build(hosts, title="Audit", generated=GENERATED)


def row(setting: str, status: str = "drifted", **values: Any) -> Dict[str, Any]:
    return {"object": "nvme0n1", "setting": setting, "wanted": 1, "effective": 2, "boot": 1, "status": status, **values}


def concern(status: str, *settings: Dict[str, Any], **values: Any) -> Dict[str, Any]:
    lists: Dict[str, List[Any]] = {
        name: [] for name in ("changes", "needs", "unmanaged", "conflicts", "reboot_reasons")
    }
    return {
        "status": status,
        "settings": list(settings),
        "settings_in_sync": 0,
        "unmanaged_total": 0,
        **lists,
        **values,
    }


def looked(orphaned: Sequence[str] = (), **concerns: Dict[str, Any]) -> Host:
    return Host({"concerns": concerns, "orphaned": list(orphaned)})


def with_info(kind: Kind, **parts: Any) -> Host:
    """The recorded machine, as declared, with other facts in some parts."""
    return Host(kind.in_sync, {"node": {**copy.deepcopy(kind.info["node"]), **parts}})


def only(report_: Report) -> ReportNode:
    (node,) = report_.nodes
    return node


# --- the value --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (looked(hugepages=concern("in_sync")), "in_sync"),
        (looked(hugepages=concern("pending", row("x", "pending"))), "pending"),
        (looked(hugepages=concern("drifted", row("x")), nvml=concern("pending", row("y", "pending"))), "drifted"),
        (
            looked(hugepages=concern("unknown", failure={}, msg="Cannot look."), nvml=concern("drifted", row("x"))),
            "unknown",
        ),
        # Nothing is converged on a node whose inventory is wrong.
        (
            looked(hugepages=concern("invalid", failure={}, msg="No."), nvml=concern("unknown", failure={}, msg="No.")),
            "invalid",
        ),
        # A step without a setting is something that differs too.
        (looked(hugepages=concern("drifted")), "drifted"),
        (looked(["mig_layout"], hugepages=concern("in_sync")), "drifted"),
        (Host(OUT_OF_REACH), "unreachable"),
        (Host(), "unreachable"),
    ],
)
def test_a_node_is_called_by_the_worst_thing_found_on_it(host: Host, status: str) -> None:
    found = report(n1=host)
    assert only(found).status == status
    assert found.summary["nodes"][status] == ["n1"]
    assert sum(len(names) for names in found.summary["nodes"].values()) == found.summary["nodes_total"] == 1


def test_a_node_without_an_answer_says_why() -> None:
    nodes = report(n1=Host(OUT_OF_REACH), n2=Host()).nodes
    assert [node.message for node in nodes] == [OUT_OF_REACH["msg"], "it did not respond"]
    assert only(report(n1=looked())).message is None


def test_facts_that_are_not_there_say_why() -> None:
    assert only(report(n1=looked())).facts_missing == "gpu_node_info was not asked"
    failed = Host(looked().look, {"failed": True, "msg": "no Python"})
    assert only(report(n1=failed)).facts_missing == "no Python"


def test_a_concern_that_the_inventory_no_longer_declares_is_one_that_differs() -> None:
    found = report(n1=looked(["mig_layout"], hugepages=concern("in_sync")))
    assert [(one.name, one.status) for one in only(found).concerns] == [
        ("hugepages", "in_sync"),
        ("mig_layout", "drifted"),
    ]
    assert found.concerns == ("hugepages", "mig_layout")


def test_settings_that_are_right_are_there_where_the_look_has_them() -> None:
    node = only(report(n1=looked(hugepages=concern("drifted", row("a", "in_sync"), row("b"), settings_in_sync=1))))
    assert [setting["setting"] for setting in node.concerns[0].settings] == ["b", "a"]


def test_the_same_thing_wrong_on_many_nodes_is_one_finding() -> None:
    here = looked(nvme_scheduler=concern("drifted", row("scheduler"), row("scheduler", object="nvme1n1")))
    there = looked(nvme_scheduler=concern("drifted", row("scheduler"), row("nr_requests", effective=3)))
    findings = report(n1=here, n2=there).findings
    assert [(one.setting, one.objects, one.nodes) for one in findings] == [
        ("scheduler", ("nvme0n1", "nvme1n1"), ("n1", "n2")),
        ("nr_requests", ("nvme0n1",), ("n2",)),
    ]


def test_interrupts_are_one_finding_whatever_their_cpus() -> None:
    rows = [row(f"interrupt {number}", effective=number, wanted=number + 1) for number in range(9)]
    (finding,) = report(n1=looked(numa_irq_affinity=concern("drifted", *rows))).findings
    assert (finding.setting, finding.wanted, finding.effective) == ("interrupt (many)", None, None)


def test_findings_begin_with_the_worst() -> None:
    hosts = {
        "n1": looked(hugepages=concern("pending", row("a", "pending")), nvml=concern("unknown", failure={}, msg="No.")),
        "n2": looked(hugepages=concern("pending", row("a", "pending")), nvml=concern("drifted", row("b"))),
    }
    assert [one.status for one in report(**hosts).findings] == ["unknown", "drifted", "pending"]


def outdated(kind: Kind, **driver: Any) -> Host:
    return with_info(kind, driver={**kind.info["node"]["driver"], **driver})


def test_versions_are_compared_among_nodes_with_the_same_gpus(kinds: Tuple[Kind, ...]) -> None:
    hgx, single = with_info(kinds[0]), with_info(kinds[1])
    found = report(n1=outdated(kinds[0], version="550.1"), n2=hgx, n3=hgx, n4=single)
    groups = {group.name: group for group in found.skew}
    assert list(groups) == ["8 x NVIDIA H100 80GB HBM3", "1 x NVIDIA L40S"]
    (skewed,) = [part for group in found.skew for part in group.components if part.skewed]
    assert (skewed.component, [(one.version, one.nodes) for one in skewed.versions]) == (
        "driver",
        [("550.54.15", ("n2", "n3")), ("550.1", ("n1",))],
    )
    assert found.summary["skew"] == [
        {
            "group": "8 x NVIDIA H100 80GB HBM3",
            "component": "driver",
            "of": "",
            "versions": {"550.54.15": 2, "550.1": 1},
        }
    ]


def test_firmware_is_compared_by_what_it_belongs_to(kinds: Tuple[Kind, ...]) -> None:
    firmware = copy.deepcopy(kinds[0].info["node"]["firmware"])
    for drive in firmware["nvme"]:
        drive.update(model="another drive", firmware="1")
    found = report(n1=with_info(kinds[0]), n2=with_info(kinds[0], firmware=firmware))
    assert found.summary["skew"] == []
    (group,) = found.skew
    of_drives = [part for part in group.components if part.component == "NVMe firmware"]
    assert [(part.of, part.missing) for part in of_drives] == [
        ("SAMSUNG MZQL23T8HCLS-00A07", ()),
        ("another drive", ()),
    ]


def test_who_does_not_tell_a_version_is_named(kinds: Tuple[Kind, ...]) -> None:
    silent = outdated(kinds[0], cuda_version=None)
    (group,) = report(n1=with_info(kinds[0]), n2=silent).skew
    assert {part.component: part.missing for part in group.components if part.missing} == {"CUDA": ("n2",)}


def test_a_sick_gpu_is_in_the_summary_with_what_is_wrong(kinds: Tuple[Kind, ...]) -> None:
    health = copy.deepcopy(kinds[0].info["node"]["health"])
    health["gpus"][3].update(healthy=False, problems=["a row of its memory could not be remapped"])
    health["gpus"][4].update(healthy=None)
    found = report(n1=with_info(kinds[0], health=health), n2=with_info(kinds[0]))
    assert found.summary["sick_gpus"] == [
        {
            "node": "n1",
            "index": 3,
            "pci_address": "0000:61:00.0",
            "problems": ["a row of its memory could not be remapped"],
        }
    ]


def test_a_sick_port_is_in_the_summary_the_metrics_and_the_cases(kinds: Tuple[Kind, ...]) -> None:
    network = copy.deepcopy(kinds[0].info["node"]["network"])
    network["ports"][3].update(healthy=False, problems=["it has lost its link (polling)"])
    found = report(n1=with_info(kinds[0], network=network), n2=with_info(kinds[0]))
    name = network["ports"][3]["name"]
    assert found.summary["sick_ports"] == [
        {"node": "n1", "name": name, "pci_address": "0000:40:00.0", "problems": ["it has lost its link (polling)"]}
    ]
    samples = samples_of(as_prometheus.render(found))
    assert [samples["gpufleet_node_sick_ports", f'node="{node}"'] for node in ("n1", "n2")] == [1, 0]
    failed = {key: case[0].text for key, case in cases_of(as_junit.render(found)).items() if len(case)}
    assert failed == {("n1", "ports"): f"port {name}: it has lost its link (polling)"}


def test_a_link_that_could_be_better_is_in_the_summary(kinds: Tuple[Kind, ...]) -> None:
    found = report(n1=with_info(kinds[0])).summary["degraded_links"]
    assert [(link["node"], link["kind"], list(link["causes"])) for link in found] == [("n1", "nvme", ["slow"])]


def test_mig_instances_and_huge_pages_are_facts_of_the_report(kinds: Tuple[Kind, ...]) -> None:
    gpus, memory = (copy.deepcopy(kinds[0].info["node"][name]) for name in ("gpus", "memory"))
    instance = {"profile": "3g.40gb", "start": 4, "size": 4, "compute_instances": [{}]}
    gpus[0]["mig"].update(current=True, instances=[instance])
    memory["hugepages"][0].update(pages=512, free=500)
    facts = only(report(n1=with_info(kinds[0], gpus=gpus, memory=memory))).facts
    assert facts is not None
    assert [(one.profile, one.start, one.size, one.compute_instances) for one in facts.gpus[0].instances] == [
        ("3g.40gb", 4, 4, 1)
    ]
    assert [numa.hugepages for numa in facts.numa] == [((2048, 512, 500),), ()]


@pytest.mark.parametrize("part", [*sorted(PARTS), "system"])
def test_a_part_of_the_facts_may_be_null_or_not_there(part: str, kinds: Tuple[Kind, ...]) -> None:
    for kind in kinds:
        nulled = with_info(kind, **{part: None})
        missing = Host(
            kind.in_sync, {"node": {name: kind.info["node"][name] for name in kind.info["node"] if name != part}}
        )
        for host in (nulled, missing):
            found = report(n1=host)
            assert only(found).facts is not None
            as_json.render(found)


def fields(value: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Tuple[Any, ...], str]]:
    """Where an object has a field."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield path, name
            yield from fields(entry, (*path, name))
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from fields(entry, (*path, number))


def test_any_field_of_the_facts_may_be_null(kinds: Tuple[Kind, ...]) -> None:
    # What things are called by, and where they are, gpu_node_info has always.
    never = {
        "kind",
        "pci_address",
        "gpu",
        "nic",
        "node",
        "size_kb",
        "start",
        "size",
        "xid",
        "count",
        "irq",
        "unavailable",
    }
    info = kinds[1].info["node"]
    for path, name in fields(info):
        if name in never or not path:
            continue
        changed = copy.deepcopy(info)
        place: Any = changed
        for step in path:
            place = place[step]
        place[name] = None
        build({"n1": Host(kinds[1].in_sync, {"node": changed})}, title="Audit", generated=GENERATED)


def test_the_table_and_the_report_count_the_same(kinds: Tuple[Kind, ...]) -> None:
    hosts = fleet(kinds, 60)
    summary = summarise({name: host.look for name, host in hosts.items()})
    found = report(**hosts).summary
    # The report tells apart what was never converged, which for the table differs.
    for names in (found["nodes"], found["settings"]):
        absent = names.pop("not_installed")
        names["drifted"] += absent
    assert {status: sorted(names) for status, names in found["nodes"].items()} == {
        status: sorted(names) for status, names in summary.nodes.items()
    }
    assert found["settings"] == summary.counts


# --- weight, and what was never converged -----------------------------------------------------------------------------

NEVER = row("declaration", object="/etc/gpufleet/declared.d/x.json", wanted="as declared", effective=None, boot=None)
OUTDATED = {**NEVER, "effective": "another declaration", "boot": "another declaration"}


def test_findings_that_endanger_jobs_come_before_bookkeeping_and_what_was_never_converged() -> None:
    hosts = {
        f"h{number:03}": looked(
            hugepages=concern("drifted", OUTDATED),
            nvme_scheduler=concern("drifted", NEVER, row("scheduler"), row("read_ahead_kb")),
        )
        for number in range(1, 21)
    }
    hosts["h007"] = looked(gpu_settings=concern("drifted", row("power_limit_watts", object="gpu0")))
    found = report(**hosts).findings
    assert [(one.kind, one.concern, one.setting, one.status, len(one.nodes)) for one in found] == [
        ("drift", "gpu_settings", "power_limit_watts", "drifted", 1),
        ("bookkeeping", "hugepages", "own files", "drifted", 19),
        ("not_installed", "nvme_scheduler", "read_ahead_kb", "not_installed", 19),
        ("not_installed", "nvme_scheduler", "scheduler", "not_installed", 19),
        ("not_installed", "nvme_scheduler", "own files", "not_installed", 19),
    ]
    others = ("h[001-006,008-020]",)
    assert [one.ranges for one in found] == [("h007",), *[others] * 4]


def test_a_first_audit_says_of_every_setting_what_is_wanted_and_found() -> None:
    new = looked(
        hugepages=concern("drifted", NEVER, row("pages", wanted=8, effective=0, boot=0)),
        nvml=concern("drifted", {**NEVER, "object": "/etc/gpufleet/declared.d/nvml.json"}),
    )
    found = report(**{f"h{number}": new for number in (1, 2, 3)}).findings
    assert [(one.setting, one.wanted, one.effective, one.boot, one.ranges) for one in found] == [
        ("pages", 8, 0, 0, ("h[1-3]",)),
        ("own files", None, None, None, ("h[1-3]",)),
    ]
    assert found[1].concerns == ("hugepages", "nvml")


def test_a_cause_that_keeps_several_concerns_from_being_looked_at_is_one_finding() -> None:
    def lost(*names: str, why: str = "Cannot query the NVIDIA driver: it did not respond.") -> Host:
        return looked(**{name: concern("unknown", failure={}, msg=why) for name in names})

    found = report(
        h1=lost("mig_layout", "gpu_settings"),
        h2=lost("gpu_settings"),
        h3=lost("gpu_settings", why="Cannot query the NVIDIA driver: it is not loaded."),
    ).findings
    assert [(one.concern, one.concerns, one.ranges) for one in found] == [
        ("mig_layout", ("mig_layout", "gpu_settings"), ("h[1-2]",)),
        ("gpu_settings", ("gpu_settings",), ("h3",)),
    ]


def test_what_is_wrong_now_comes_before_what_is_wrong_at_the_next_boot() -> None:
    later = row("a", wanted=1, effective=1, boot=None)
    hosts = {f"n{number}": looked(hugepages=concern("drifted", later)) for number in range(3)}
    hosts["n3"] = looked(hugepages=concern("drifted", row("b")))
    assert [one.setting for one in report(**hosts).findings] == ["b", "a"]


def test_what_was_never_converged_has_a_word_and_a_count_of_its_own_in_every_form() -> None:
    new = looked(hugepages=concern("drifted", NEVER, row("pages")), nvml=concern("in_sync"))
    both = looked(hugepages=concern("drifted", NEVER, row("pages")), nvml=concern("drifted", row("binding")))
    found = report(new=new, both=both, drifted=looked(hugepages=concern("drifted", row("pages"))))
    nodes = found.summary["nodes"]
    assert (nodes["not_installed"], nodes["drifted"]) == (["new"], ["both", "drifted"])
    assert (found.summary["settings"]["not_installed"], found.summary["settings"]["drifted"]) == (4, 2)
    document = json.loads(as_json.render(found))
    statuses = {node["name"]: [one["status"] for one in node["concerns"]] for node in document["nodes"]}
    assert statuses == {
        "both": ["not_installed", "drifted"],
        "drifted": ["drifted"],
        "new": ["not_installed", "in_sync"],
    }
    samples = samples_of(as_prometheus.render(found))
    assert samples["gpufleet_nodes", 'status="not_installed"'] == 1
    assert samples["gpufleet_settings", 'status="not_installed"'] == 4
    assert samples["gpufleet_concern_status", 'node="new",concern="hugepages",status="not_installed"'] == 1
    failed = cases_of(as_junit.render(found))["new", "hugepages"][0]
    assert failed.get("message") == "not installed: declared, and never converged (2 settings)"
    other = cases_of(as_junit.render(found))["drifted", "hugepages"][0]
    assert other.get("message") == "1 setting not in sync"


def test_what_nobody_can_set_is_counted_in_every_form_and_is_no_fault() -> None:
    none = {"object": "NVIDIA GPUs", "setting": "driver", "reason": "there is none on the PCI bus"}
    bare = concern("in_sync", unmanaged=[none], unmanaged_total=1)
    found = report(n1=looked(gpu_settings=bare, mig_layout=bare), n2=looked(hugepages=concern("in_sync")))
    assert (found.summary["nodes"]["in_sync"], found.summary["settings"]["unmanaged"]) == (["n1", "n2"], 2)
    assert json.loads(as_json.render(found))["summary"]["settings"]["unmanaged"] == 2
    assert samples_of(as_prometheus.render(found))["gpufleet_settings", 'status="unmanaged"'] == 2
    one, other = ElementTree.fromstring(as_junit.render(found))
    assert [(entry.get("name"), entry.get("value")) for entry in one[0]] == [("unmanaged", "2")]
    assert (one[0].tag, other.find("properties")) == ("properties", None)
    assert (one.get("tests"), one.get("failures"), one.get("errors")) == ("3", "0", "0")


# --- JSON -------------------------------------------------------------------------------------------------------------


def documented() -> Dict[str, Set[str]]:
    """The names in each row of the table of docs/report.md, by the path of the row."""
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    text = text[text.index("## gpufleet-report.json") : text.index("## gpufleet-report.junit.xml")]
    rows = re.findall(r"^\| `([a-z_\[\].]+)` \| (.*) \|$", text, flags=re.MULTILINE)
    return {path: set(re.findall(r"`([a-z_]+)`", names)) for path, names in rows}


# Their keys are data.
OPEN = ("nodes", "settings", "counters", "versions")


def found_fields(value: Any, rows: Mapping[str, Set[str]], path: str = "") -> Iterator[Tuple[str, str]]:
    """Every field of a document with the row that it belongs to."""
    if isinstance(value, list):
        for entry in value:
            yield from found_fields(entry, rows, path if path.endswith("[]") else f"{path}[]")
    elif isinstance(value, dict):
        row_ = path
        while row_ and row_ not in rows:
            row_ = row_.rpartition(".")[0]
        for name, entry in value.items():
            below = f"{path}.{name}" if path else name
            if path:
                yield row_, name
            closed = name not in OPEN or isinstance(entry, list)
            yield from found_fields(entry if closed else None, rows, below)


def test_every_field_of_the_json_is_documented_and_no_other(kinds: Tuple[Kind, ...]) -> None:
    document = json.loads(as_json.render(report(**fleet(kinds, 120), **divided(kinds))))
    rows = documented()
    assert document["schema"] == 1
    parts = ["schema", "version", "summary", "concerns", "nodes", "findings", "skew", "cpu_divisions"]
    assert list(document) == parts
    found: Dict[str, Set[str]] = {}
    for place, name in found_fields(document, rows):
        found.setdefault(place, set()).add(name)
    of_a_sick_gpu = {
        "node",
        "index",
        "name",
        "pci_address",
        "problems",
        "kind",
        "causes",
        "group",
        "component",
        "of",
        "versions",
    }
    assert found["summary"] - of_a_sick_gpu == rows["summary"]
    for place, names in found.items():
        if place not in ("summary", "nodes[].interrupts[]"):
            assert names == rows[place] - {"gpu", "nic", "nvme"}, place


def test_the_json_has_a_line_for_each_node(kinds: Tuple[Kind, ...]) -> None:
    lines = as_json.render(report(n1=with_info(kinds[0]), n2=looked())).splitlines()
    assert [line[:13] for line in lines if line.startswith('{"name":"n')] == ['{"name":"n1",', '{"name":"n2",']


# --- JUnit ------------------------------------------------------------------------------------------------------------


def cases_of(text: str) -> Dict[Tuple[Optional[str], Optional[str]], ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}


def test_what_differs_is_a_failure_what_is_unknown_an_error_and_what_waits_is_skipped() -> None:
    host = looked(
        hugepages=concern("pending", row("pages", "pending"), needs=["reboot"]),
        nvme_scheduler=concern("drifted", row("scheduler", wanted="none", effective="bfq")),
        nvml=concern("unknown", failure={}, msg="Cannot look."),
        mig_layout=concern("invalid", failure={}, msg="Cannot read the declaration."),
        kernel_modules=concern("in_sync"),
    )
    cases = cases_of(as_junit.render(report(n1=host, n2=Host(OUT_OF_REACH))))
    verdicts = {name: [child.tag for child in case] for name, case in cases.items()}
    assert verdicts == {
        ("n1", "answer"): [],
        ("n1", "hugepages"): ["skipped"],
        ("n1", "nvme_scheduler"): ["failure"],
        ("n1", "nvml"): ["error"],
        ("n1", "mig_layout"): ["error"],
        ("n1", "kernel_modules"): [],
        ("n2", "answer"): ["error"],
    }
    assert cases["n1", "hugepages"][0].get("message") == "waits for reboot"
    assert cases["n1", "nvml"][0].get("message") == "Cannot look."
    assert "scheduler  none    bfq" in (cases["n1", "nvme_scheduler"][0].text or "")


def test_the_counts_of_the_suites_are_those_of_their_cases(kinds: Tuple[Kind, ...]) -> None:
    root = ElementTree.fromstring(as_junit.render(report(**fleet(kinds, 120))))
    for suite in [root, *root.iter("testsuite")]:
        tags = [child.tag for case in suite.iter("testcase") for child in case]
        assert [int(suite.get(name, "")) for name in ("tests", "failures", "errors", "skipped")] == [
            len(list(suite.iter("testcase"))),
            *(tags.count(tag) for tag in ("failure", "error", "skipped")),
        ]
    assert {child.tag for case in root.iter("testcase") for child in case} == {"failure", "error", "skipped"}


def test_a_sick_gpu_and_other_versions_are_failures(kinds: Tuple[Kind, ...]) -> None:
    health = copy.deepcopy(kinds[0].info["node"]["health"])
    health["gpus"][0].update(healthy=False, problems=["a problem"])
    hosts = {"n1": with_info(kinds[0], health=health), "n2": with_info(kinds[0]), "n3": outdated(kinds[0], version="1")}
    cases = cases_of(as_junit.render(report(**hosts)))
    failed = {name: case[0].text for name, case in cases.items() if len(case)}
    assert failed == {
        ("n1", "health"): "GPU 0 (0000:1b:00.0): a problem",
        ("versions of 8 x NVIDIA H100 80GB HBM3", "driver"): "550.54.15: 2 nodes\n1: 1 node",
    }


def test_what_xml_cannot_hold_is_replaced() -> None:
    nasty = 'a\x00\x1b[31m\ud800<&>"\n]]>'
    root = ElementTree.fromstring(as_junit.render(report(**{nasty: Host({"msg": nasty})})).encode())
    (suite,) = root
    assert suite.get("name") == 'a\ufffd\ufffd[31m\ufffd<&>"\n]]>'


# --- metrics ----------------------------------------------------------------------------------------------------------

# https://prometheus.io/docs/instrumenting/exposition_formats/
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"([a-z][a-z_]*)(?:\{{((?:{LABEL})(?:,{LABEL})*)\}})? (-?[0-9]+(?:\.[0-9]+)?)")


def samples_of(text: str) -> Dict[Tuple[str, str], float]:
    """The samples by name and labels; fails on what the format does not allow."""
    found: Dict[Tuple[str, str], float] = {}
    families: List[str] = []
    assert text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in families, f"{name} is in two places"
            families.append(name)
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {families[-1]} gauge"
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == families[-1]
            assert (match[1], match[2] or "") not in found, f"twice: {line}"
            found[match[1], match[2] or ""] = float(match[3])
    return found


def test_the_metrics_follow_the_format_and_say_what_the_report_says(kinds: Tuple[Kind, ...]) -> None:
    found = report(**fleet(kinds, 60))
    samples = samples_of(as_prometheus.render(found))
    assert samples["gpufleet_report_timestamp_seconds", ""] == 1767323045
    for status, names in found.summary["nodes"].items():
        assert samples["gpufleet_nodes", f'status="{status}"'] == len(names)
        for name in names:
            assert samples["gpufleet_node_status", f'node="{name}",status="{status}"'] == 1
    assert sum(value for (name, _labels), value in samples.items() if name == "gpufleet_node_status") == 60
    assert sum(value for (name, _labels), value in samples.items() if name == "gpufleet_node_sick_gpus") == len(
        found.summary["sick_gpus"]
    )
    assert {name for name, _labels in samples} == {metric.name for metric in as_prometheus.metrics(found)}


def test_every_metric_is_documented(kinds: Tuple[Kind, ...]) -> None:
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    names = {metric.name for metric in as_prometheus.metrics(report(n1=with_info(kinds[0])))}
    assert set(re.findall(r"`(gpufleet_(?!report_(?:dest|formats|headers|title))[a-z_]+)`", text)) >= names


def test_a_label_is_escaped() -> None:
    samples = samples_of(as_prometheus.render(report(**{'a"b\\c\nd': looked()})))
    assert samples["gpufleet_node_reboot_required", 'node="a\\"b\\\\c\\nd"'] == 0


def test_a_fleet_without_nodes_has_a_report_in_every_form() -> None:
    empty = report()
    assert json.loads(as_json.render(empty))["nodes"] == []
    assert ElementTree.fromstring(as_junit.render(empty)).get("tests") == "0"
    assert samples_of(as_prometheus.render(empty))["gpufleet_nodes", 'status="in_sync"'] == 0


# --- speed ------------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_the_report_on_a_thousand_nodes_takes_seconds(thousand: Dict[str, Host]) -> None:
    def write() -> None:
        found = report(**thousand)
        for writer in (as_json, as_junit, as_prometheus):
            writer.render(found)

    assert quickest(write, attempts=1) < SECONDS_FOR_A_THOUSAND * PATIENCE


# --- whose the CPUs are -----------------------------------------------------------------------------------------------


def test_nodes_that_divide_the_same_cpus_alike_are_told_once(kinds: Tuple[Kind, ...]) -> None:
    found = report(**divided(kinds)).cpu_divisions
    assert [one.nodes for one in found] == [("n1", "n2", "n3"), ("n4",), ("n5",)]
    assert found[0].ranges == ("n[1-3]",)
    # Only one sends interrupts where the kernel keeps everything else away.
    assert [one.stray for one in found] == [("n3",), (), ()]
    first, second = found[0].numa
    assert (first.node, first.cpus, second.cpus) == (0, "0-55,112-167", "56-111,168-223")
    assert [(one.kind, one.name, one.cpus) for one in first.owners] == [
        ("system", "system.slice", "0-1,112-113"),
        ("isolated", "isolcpus", "2-55,114-167"),
        ("isolated", "nohz_full", "2-55,114-167"),
        ("gpu", "gpu-0.slice", "2-55"),
        ("gpu", "gpu-1.slice", "2-55"),
    ]
    assert {one.kind: one.cpus for one in first.interrupts}["nic"] == "0,3"
    (whole,) = found[2].numa
    assert (whole.node, [one.cpus for one in whole.owners]) == (None, ["2-3"])


def test_the_owners_of_cpus_of_a_node_are_among_its_facts(kinds: Tuple[Kind, ...]) -> None:
    document = json.loads(as_json.render(report(**divided(kinds))))
    facts = {node["name"]: node["facts"]["cpu_owners"] for node in document["nodes"]}
    assert facts["n1"][:2] == [
        {"kind": "system", "name": "system.slice", "cpus": SYSTEM_CPUS},
        {"kind": "isolated", "name": "isolcpus", "cpus": JOB_CPUS},
    ]
    assert facts["n6"] == []
    assert [division["nodes"] for division in document["cpu_divisions"]] == [["n1", "n2", "n3"], ["n4"], ["n5"]]


def test_a_fleet_that_divides_nothing_has_no_division(kinds: Tuple[Kind, ...]) -> None:
    assert report(**fleet(kinds, 20)).cpu_divisions == ()
