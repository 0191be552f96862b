# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node whose answer is malformed: it is named, and the report of all others is what it would be without it."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from xml.etree import ElementTree

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._node.compressed import compress
from ansible_collections.gpufleet.node.plugins.plugin_utils import fleet_facts
from ansible_collections.gpufleet.node.plugins.plugin_utils.report import as_html, as_json, as_junit, as_prometheus
from ansible_collections.gpufleet.node.plugins.plugin_utils.report.model import Host, Report, build
from ansible_collections.gpufleet.node.plugins.plugin_utils.summary import summarise
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, replaying
from ansible_collections.gpufleet.node.tests.unit.controller.report_fleet import GENERATED
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]
LOOKS = {path.stem: path for path in sorted((ROOT / "tests" / "bench" / "scale" / "answers").glob("*.json"))}
FACTS = {path.stem: path for path in sorted((ROOT / "tests" / "nodes" / "expected").glob("*.json"))}
BAD = "bad"
Step = Any


def recorded(paths: Mapping[str, Path], name: str) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(paths[name].read_text(encoding="utf-8"))
    return found


def drifted() -> Dict[str, Any]:
    """A recorded answer with something of every kind in it."""
    look = recorded(LOOKS, "hgx-2socket")
    row = {"object": "nvme0n1", "setting": "scheduler", "wanted": "none", "effective": "bfq", "boot": None}
    conflict = {"owner": "tuned", "path": "/etc/tuned", "line": 3, "object": "nvme0n1", "setting": "x", "value": "1"}
    conflict |= {"wins": "them", "accepted": ""}
    device = {"device": "ens1", "pci_address": "0000:17:00.0", "numa_node": 0, "interrupts": 17}
    device |= {"wanted": "0-15", "effective": "0-15,32", "elsewhere": 1, "unmanaged": {"the kernel places it": 16}}
    first, second = list(look["concerns"].values())[:2]
    first.update(status="drifted", settings=[{**row, "status": "drifted"}], conflicts=[conflict], devices=[device])
    first.update(needs=["reboot"], reboot_reasons=["a reason"], unmanaged_total=1)
    first["unmanaged"] = [{"object": "a", "setting": "b", "reason": "c"}]
    second.update(status="unknown", msg="Cannot look.", failure={"code": "cannot_look"})
    look["orphaned"] = ["mig_layout"]
    return look


@cache
def others() -> Dict[str, Host]:
    """Three nodes that are well."""
    facts = {"n1": "hgx-2socket", "n2": "single-socket", "n3": "grace"}
    return {
        "n1": Host(drifted(), {"node": recorded(FACTS, facts["n1"])}, ["a"]),
        "n2": Host(recorded(LOOKS, "single-socket"), {"compressed": compress(recorded(FACTS, facts["n2"]))}, ["b"]),
        "n3": Host({"unreachable": True, "msg": "timed out"}, {"node": recorded(FACTS, facts["n3"])}, []),
    }


def report(hosts: Mapping[str, Host]) -> Report:
    return build(hosts, title="Audit", generated=GENERATED)


# --- what is said of the others ---------------------------------------------------------------------------------------


def strict(text: str) -> Any:
    """JSON that any reader takes: without NaN, which JSON.parse refuses."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def page_of(found: Report) -> Dict[str, Dict[str, Any]]:
    """What the page has of each node: its line and its details."""
    (packed,) = re.findall(r'id="data">([^<]*)<', as_html.render(found))
    lines = gzip.decompress(base64.b64decode(packed)).decode().split("\n")
    fleet, alike = strict(lines[0]), strict(lines[1])
    nodes = {}
    for node, line in zip(fleet["nodes"], lines[2:]):
        searched, _tab, text = line.partition("\t")
        detail = strict(text)
        detail |= {name: alike[number] for name, number in detail.pop("alike").items()}
        cells = {name: status for name, status in zip(fleet["concerns"], node.pop("cells")) if status != "."}
        nodes[node["name"]] = {**node, "cells": cells, "searched": searched, "detail": detail}
    return nodes


def forms(hosts: Mapping[str, Host]) -> Dict[str, Dict[str, str]]:
    """What each form of the report, the table of the audit and ``collect`` have of each node, as text."""
    found = report(hosts)
    document = as_json.render(found)
    lines = strict(document)
    root = ElementTree.fromstring(as_junit.render(found))
    suites = {suite.get("name", ""): ElementTree.tostring(suite, encoding="unicode").strip() for suite in root}
    metrics = as_prometheus.render(found).splitlines()
    summary = summarise({name: host.look for name, host in hosts.items()})
    collected = fleet_facts.document(
        {name: host.info for name, host in hosts.items()}, dict.fromkeys(hosts, ()), generated=GENERATED
    )
    pages = page_of(found)
    assert [node["name"] for node in lines["nodes"]] == sorted(hosts) == list(pages)
    strict(as_json.by_lines(collected))
    return {
        name: {
            "json": next(line for line in document.splitlines() if line.startswith(f'{{"name":"{name}",')).rstrip(","),
            "html": json.dumps(pages[name], sort_keys=True),
            "junit": suites[name],
            "prometheus": "\n".join(line for line in metrics if f'node="{name}"' in line),
            "table": json.dumps([summary.rows.get(name), summary.devices.get(name)]),
            "status": next(status for status, names in summary.nodes.items() if name in names),
            "collect": as_json.compact(node),
        }
        for name, node in zip(hosts, collected["nodes"])
    }


@cache
def alone() -> Dict[str, Dict[str, str]]:
    return forms(others())


def touched(written: Mapping[str, Mapping[str, str]]) -> List[str]:
    """In which forms which of the others are not what they are without the bad one."""
    return [f"{name}: {form}" for name, its in alone().items() for form in its if written[name][form] != its[form]]


# --- answers that are malformed ---------------------------------------------------------------------------------------


def deep(levels: int = 5000) -> Any:
    value: Any = 1
    for _level in range(levels):
        value = [value]
    return value


def replaced(value: Any, path: Sequence[Step], new: Any) -> Any:
    """A copy with something else at a place of it."""
    if not path:
        return new
    changed = copy.copy(value)
    # What is empty in an answer is not there.
    changed[path[0]] = replaced(value[path[0]], path[1:], new) if path[1:] else new
    return changed


FIRST = "concerns", "hugepages"
MALFORMED_LOOKS: List[Tuple[Tuple[Step, ...], Any, str]] = [
    (("concerns",), [], "concerns is a list, and not a mapping"),
    (("concerns",), None, "concerns is missing"),
    (("concerns", "hugepages"), "x", "concerns.hugepages is a string, and not a mapping"),
    (("concerns",), {"nonsense": {}}, "concerns.nonsense is not known"),
    ((*FIRST, "settings"), {"a": 1}, "concerns.hugepages.settings is a mapping, and not a list"),
    ((*FIRST, "settings"), [None], "concerns.hugepages.settings[0] is missing"),
    (
        (*FIRST, "status"),
        "fine",
        "concerns.hugepages.status is 'fine', and not one of in_sync, pending, drifted, unknown, invalid",
    ),
    ((*FIRST, "settings_in_sync"), "12", "concerns.hugepages.settings_in_sync is a string, and not a whole number"),
    ((*FIRST, "settings_in_sync"), 10**30, "concerns.hugepages.settings_in_sync is a number with more than 64 bits"),
    ((*FIRST, "settings_in_sync"), True, "concerns.hugepages.settings_in_sync is a boolean, and not a whole number"),
    ((*FIRST, "reboot_reasons"), deep(), "concerns.hugepages.reboot_reasons[0] is a list, and not a string"),
    ((*FIRST, "changes"), 3, "concerns.hugepages.changes is a number, and not a list"),
    ((*FIRST, "changes"), [{"scope": "effective"}], "concerns.hugepages.changes[0].takes_effect is missing"),
    (FIRST, {"status": "unknown"}, "concerns.hugepages.msg is missing"),
    (("orphaned",), ["x" * 10**6], "orphaned[0] has 1000000 characters, more than 65536"),
]
MALFORMED_FACTS: List[Tuple[Tuple[Step, ...], Any, str]] = [
    (("gpus", 3, "pci_address"), None, "gpus[3].pci_address is missing"),
    (("gpus", 3), [], "gpus[3] is a list, and not a mapping"),
    (("gpus",), {"a": 1}, "gpus is a mapping, and not a list"),
    (("gpus", 0, "model"), ["x"], "gpus[0].model is a list, and not a string"),
    (("gpus", 0, "temperature_celsius"), "28", "gpus[0].temperature_celsius is a string, and not a whole number"),
    (("gpus", 0, "power", "draw_watts"), float("nan"), "gpus[0].power.draw_watts is not a number"),
    (
        ("topology", "nodes", 1, "cpus"),
        "0-4294967295",
        "topology.nodes[1].cpus is '0-4294967295', and not a list of CPUs",
    ),
    (("health", "gpus", 0, "problems"), "none", "health.gpus[0].problems is a string, and not a list"),
    (("driver", "version"), "5" * 10**6, "driver.version has 1000000 characters, more than 65536"),
    (("system",), "linux", "system is a string, and not a mapping"),
]


@pytest.mark.parametrize(("path", "new", "where"), MALFORMED_LOOKS)
def test_a_malformed_look_is_a_finding_of_its_node(path: Tuple[Step, ...], new: Any, where: str) -> None:
    look = recorded(LOOKS, "hgx-2socket")
    assert "hugepages" in look["concerns"]
    hosts = {**others(), BAD: Host(replaced(look, path, new), {"node": recorded(FACTS, "single-socket")})}
    found = report(hosts)
    (finding,) = [one for one in found.findings if BAD in one.nodes]
    message = f"its answer is malformed: {where}"
    assert (finding.status, finding.note, finding.nodes) == ("unknown", message, (BAD,))
    assert found.summary["nodes"]["unknown"] == [BAD, "n1"]
    written = forms(hosts)
    for form in ("json", "html", "junit", "table"):
        assert message in written[BAD][form], form
    assert f'gpufleet_node_status{{node="{BAD}",status="unknown"}} 1' in written[BAD]["prometheus"]
    assert f'gpufleet_node_unreadable_answers{{node="{BAD}"}} 1' in written[BAD]["prometheus"]
    # What the GPUs of the node say is another answer.
    assert "NVIDIA L40S" in written[BAD]["json"]
    assert touched(written) == []


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("path", "new", "where"), MALFORMED_FACTS)
def test_malformed_facts_are_a_finding_of_their_node(
    path: Tuple[Step, ...],
    new: Any,
    where: str,
    compressed: bool,
) -> None:
    facts = replaced(recorded(FACTS, "hgx-2socket"), path, new)
    info = {"compressed": compress(facts)} if compressed else {"node": facts}
    hosts = {**others(), BAD: Host(recorded(LOOKS, "hgx-2socket"), info)}
    found = report(hosts)
    (finding,) = [one for one in found.findings if BAD in one.nodes]
    message = f"its facts could not be read: {where}"
    assert (finding.concern, finding.status, finding.note) == ("facts", "unknown", message)
    # Its settings are known all the same.
    assert BAD in found.summary["nodes"]["in_sync"]
    written = forms(hosts)
    for form in ("json", "html", "junit", "collect"):
        assert message in written[BAD][form], form
    assert f'gpufleet_node_unreadable_answers{{node="{BAD}"}} 1' in written[BAD]["prometheus"]
    assert touched(written) == []


@pytest.mark.parametrize(
    ("new", "where"),
    [
        (deep(), f"driver.services{'[0]' * 30} is nested more than 32 levels deep"),
        (float("inf"), "driver.services is not a number"),
        (10**30, "driver.services is a number with more than 64 bits"),
    ],
)
def test_collect_leaves_out_a_node_with_anything_that_cannot_be_written(new: Any, where: str) -> None:
    """The report shows nothing of it, and does not ask."""
    bad = {"node": replaced(recorded(FACTS, "hgx-2socket"), ("driver", "services"), new)}
    hosts = {**others(), BAD: Host(recorded(LOOKS, "hgx-2socket"), bad)}
    written = forms(hosts)
    assert f'"facts":null,"facts_missing":"its facts could not be read: {where}"' in written[BAD]["collect"]
    assert [one for one in report(hosts).findings if BAD in one.nodes] == []
    assert touched(written) == []


@pytest.mark.parametrize(
    "info",
    [
        {"compressed": 42},
        {"compressed": ["x"]},
        {"compressed": "x"},
        {"compressed": base64.b64encode(zlib.compress(b"[1, 2")).decode()},
        {"compressed": base64.b64encode(zlib.compress(b"9" * 5000)).decode()},
        {"node": 3},
        {"node": [1]},
        {"node": {"gpus": 7}, "msg": {}},
    ],
)
def test_what_is_in_the_place_of_facts_costs_the_facts_of_that_node_alone(info: Dict[str, Any]) -> None:
    written = forms({**others(), BAD: Host(recorded(LOOKS, "hgx-2socket"), info)})
    assert "its facts could not be read: " in written[BAD]["json"]
    assert touched(written) == []


@pytest.mark.parametrize("message", [None, 7, ["x"], {"a": 1}, deep(), "m" * 10**6])
def test_a_reason_that_is_no_text_costs_the_reason_alone(message: Any) -> None:
    written = forms({**others(), BAD: Host({"failed": True, "msg": message}, {"msg": message})})
    assert len(written[BAD]["json"]) < 200_000
    assert touched(written) == []


# --- runs of the playbooks --------------------------------------------------------------------------------------------


def fleet_with_a_bad_node(tmp_path: Path) -> Dict[str, Any]:
    """Two nodes that a playbook can run against; both answers of one of them are malformed."""
    look, facts = recorded(LOOKS, "hgx-2socket"), {"node": recorded(FACTS, "hgx-2socket")}
    good = {"node_state": look, "gpu_node_info": facts}
    bad = {
        "node_state": replaced(look, ("concerns", "hugepages", "settings"), {"a": 1}),
        "gpu_node_info": replaced(facts, ("node", "gpus", 0, "pci_address"), None),
    }
    return {"hosts": {BAD: replaying(tmp_path / BAD, bad), "good": replaying(tmp_path / "good", good)}}


def test_an_audit_names_a_malformed_answer_and_reports_the_other_nodes(tmp_path: Path) -> None:
    inventory, dest = fleet_with_a_bad_node(tmp_path), tmp_path / "reports"
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.audit", "-e", f"gpufleet_report_dest={dest}")
    where = "concerns.hugepages.settings is a mapping, and not a list"
    assert f"Cannot read the answer of the node: {where}" in output
    assert f"    its answer is malformed: {where}" in output
    assert "Traceback" not in output
    assert re.search(r"bad +: .* failed=1", output)
    assert re.search(r"good +: .* failed=0", output)
    document = json.loads((dest / "gpufleet-report.json").read_text(encoding="utf-8"))
    assert [(node["status"], node["message"]) for node in document["nodes"]] == [
        ("unknown", f"its answer is malformed: {where}"),
        ("in_sync", None),
    ]
    assert sorted(path.name for path in dest.iterdir()) == sorted(
        ["gpufleet-report.json", "gpufleet-report.html", "gpufleet-report.junit.xml", "gpufleet.prom"]
    )


def test_site_does_nothing_to_a_node_whose_answer_is_malformed(tmp_path: Path) -> None:
    output = ansible_playbook(tmp_path, fleet_with_a_bad_node(tmp_path), "gpufleet.node.site")
    assert "Cannot read the answer of the node: concerns.hugepages.settings is a mapping" in output
    assert re.search(r"good +: .* failed=0", output)
    assert "Traceback" not in output


def test_collect_says_which_facts_are_malformed(tmp_path: Path) -> None:
    inventory, dest = fleet_with_a_bad_node(tmp_path), tmp_path / "facts"
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.collect", "-e", f"collect_dest={dest}")
    assert f"Wrote the facts of 1 of 2 nodes to {dest}/gpufleet-facts.json." in output
    document = json.loads((dest / "gpufleet-facts.json").read_text(encoding="utf-8"))
    bad, good = document["nodes"]
    assert bad["facts_missing"] == "its facts could not be read: gpus[0].pci_address is missing"
    assert good["facts"] == recorded(FACTS, "hgx-2socket")


# --- answers that are changed anywhere --------------------------------------------------------------------------------


def places(value: Any, path: Tuple[Step, ...] = ()) -> Iterator[Tuple[Step, ...]]:
    """Every place of a value, itself among them."""
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, entry in steps:
        yield from places(entry, (*path, step))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**40, -1, float("nan"), float("inf"), 1e308, "\udcff", "\x00", "</script>", "0-9999999999"]),
    st.text(max_size=8),
    st.sampled_from(["", "in_sync", "x" * 100_000]),
    st.builds(deep, st.sampled_from([3, 5000])),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers()), max_size=3),
)
LOOK_PLACES = [(None, path) for path in places(drifted())]
FACT_PLACES = [(name, path) for name in FACTS for path in places(recorded(FACTS, name))]


@settings(max_examples=150, deadline=None)
@given(where=st.one_of(st.sampled_from(LOOK_PLACES), st.sampled_from(FACT_PLACES)), new=ODD)
def test_an_answer_may_be_anything_anywhere(where: Tuple[Optional[str], Tuple[Step, ...]], new: Any) -> None:
    kind, path = where
    look, facts = drifted(), recorded(FACTS, kind or "hgx-2socket")
    if kind is None:
        look = replaced(look, path, new)
    else:
        facts = replaced(facts, path, new)
    # What Ansible registers is a mapping, or nothing.
    bad = Host(look if isinstance(look, dict) else {}, {"node": facts})
    written = forms({**others(), BAD: bad})
    assert touched(written) == []
