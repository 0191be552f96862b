# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices that pods share: one file for all nodes, of which some entries are ours and others somebody else's."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.cluster import ANNOTATION
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.order import Place
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.rdma import DIGEST, parse_reader
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.rdma_configuration import (
    meaning,
    parse_document,
)
from ansible_collections.gpufleet.node.tests.kubernetes.plugin_cluster import rdma_daemonset
from ansible_collections.gpufleet.node.tests.unit.procedures.device_plugin.plugin_machine import Machine

PLACE = "kube-system/rdma-devices"
FILES = "/api/v1/namespaces/kube-system/configmaps"
DAEMONSET = "/apis/apps/v1/namespaces/kube-system/daemonsets/rdma-shared-dp-ds"
CONNECTX7 = {"vendors": "15b3", "deviceIDs": "1021", "drivers": "mlx5_core", "ifNames": "ibp24s0"}
A: Dict[str, Any] = {"name": "hca_a", "hca_max": 64, "selectors": {"vendors": ["15b3"], "device_ids": ["1021"]}}
B: Dict[str, Any] = {"name": "hca_b", "hca_max": 8, "selectors": {"if_names": ["eth9"]}}
ENTRY = {
    "resourceName": "hca_a",
    "resourcePrefix": "rdma",
    "rdmaHcaMax": 64,
    "selectors": {"vendors": ["15b3"], "deviceIDs": ["1021"]},
}
NODE = {"name": "h100-1", "fact_labels": False, "rdma_resources": [A]}
SECOND = {**NODE, "name": "h100-2"}
# As somebody has written it, with an old word and the plugin's defaults left out.
THEIRS = """{
  "periodicUpdateInterval": 300,
  "configList": [{"resourceName": "hca_old",
                  "rdmaHcaMax": 1000, "devices": ["ib0", "ib1"]}]
}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, monkeypatch)
    made.rdma = rdma_daemonset()
    made.adapters = {name: [CONNECTX7] for name in made.nodes}
    return made


def through(result: Dict[str, Any]) -> Dict[str, Any]:
    assert "failed" not in result, result
    return result


def written(machine: Machine) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(machine.config_maps["rdma-devices"]["data"]["config.json"])
    return found


def somebody_elses(machine: Machine, text: str = THEIRS, **metadata: Any) -> None:
    machine.config_maps["rdma-devices"] = {
        "metadata": {"name": "rdma-devices", "resourceVersion": "1", **metadata},
        "data": {"config.json": text},
    }


def shares(machine: Machine, node: str) -> Dict[str, str]:
    found = machine.nodes[node]["status"]["allocatable"]
    return {name: number for name, number in found.items() if name.startswith("rdma/")}


def test_the_file_is_written_and_the_kubelets_offer_the_shares(machine: Machine) -> None:
    machine.slow = 2
    result = through(machine.run(NODE, SECOND))
    assert (result["changed"], result["pending"]) == (True, [])
    assert written(machine) == {"configList": [ENTRY]}
    assert shares(machine, "h100-1") == shares(machine, "h100-2") == {"rdma/hca_a": "64"}
    assert result["rdma"] == {"config_map": PLACE, "resources": ["hca_a"], "owner": "", "left": ""}
    # Nothing is said to the device plugin, which needs no file then.
    assert set(machine.config_maps) == {"rdma-devices"}
    assert machine.changes == [
        f"POST {FILES}",
        f"PATCH {DAEMONSET}",
        "PATCH /api/v1/nodes/h100-1",
        "PATCH /api/v1/nodes/h100-2",
    ]
    assert "h100-1 RDMA resources: hca_a" in result["diff"]["after"]


def test_a_second_run_changes_nothing(machine: Machine) -> None:
    through(machine.run(NODE, SECOND))
    machine.requests.clear()
    result = through(machine.run(NODE, SECOND))
    assert (result["changed"], machine.requests) == (False, [])


def test_check_mode_predicts_it_and_sends_nothing(machine: Machine) -> None:
    result = through(machine.run(NODE, check_mode=True))
    assert (result["changed"], machine.requests) == (True, [])
    assert f"{PLACE} resource hca_a: {json.dumps(ENTRY)}" in result["diff"]["after"]


def test_a_change_brings_the_plugin_to_read_its_file_again(machine: Machine) -> None:
    through(machine.run(NODE))
    result = through(machine.run({**NODE, "rdma_resources": [{**A, "hca_max": 100}]}))
    assert result["pending"] == []
    assert shares(machine, "h100-1") == {"rdma/hca_a": "100"}
    assert machine.changes[-2:] == [f"PATCH {FILES}/rdma-devices", f"PATCH {DAEMONSET}"]


def test_pods_may_be_left_to_others_and_the_node_is_pending_until_then(machine: Machine) -> None:
    through(machine.run(NODE))
    more = {**NODE, "rdma_resources": [{**A, "hca_max": 100}]}
    machine.requests.clear()
    result = through(machine.run(more, rdma_restart=False, timeout=0))
    assert machine.changes == [f"PATCH {FILES}/rdma-devices"]
    (pending,) = result["pending"]
    assert pending == {
        "name": "h100-1",
        "config": "",
        "expected": {"rdma/hca_a": 100},
        "allocatable": {"rdma/hca_a": 64},
    }
    # Somebody else does: kubectl rollout restart.
    assert machine.rdma is not None
    machine.rdma["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now"
    assert through(machine.run(more, rdma_restart=False))["pending"] == []


def test_a_node_without_such_a_device_is_pending(machine: Machine) -> None:
    machine.adapters["h100-2"] = []
    (pending,) = through(machine.run(NODE, SECOND, timeout=0))["pending"]
    assert (pending["name"], pending["allocatable"]) == ("h100-2", {})


def test_a_resource_of_nodes_that_are_not_in_the_run_stays(machine: Machine) -> None:
    through(machine.run(NODE, SECOND))
    through(machine.run({**NODE, "rdma_resources": [B]}, timeout=0))
    assert [one["resourceName"] for one in written(machine)["configList"]] == ["hca_a", "hca_b"]
    through(machine.run({**SECOND, "rdma_resources": [B]}, timeout=0))
    assert [one["resourceName"] for one in written(machine)["configList"]] == ["hca_b"]
    assert shares(machine, "h100-1")["rdma/hca_a"] == "0"
    note = json.loads(machine.nodes["h100-1"]["metadata"]["annotations"][ANNOTATION])
    assert note == {"rdma": ["hca_b"]}


def test_absent_leaves_the_file_to_a_daemonset_that_reads_it_and_removes_it_after_that(machine: Machine) -> None:
    before = machine.state()
    through(machine.run(NODE, SECOND))
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert written(machine) == {"configList": [ENTRY]}
    result = through(machine.run({"name": "h100-2"}, state="absent"))
    assert result["rdma"]["left"] == f"the ConfigMap {PLACE} is read by rdma-shared-dp-ds"
    assert machine.rdma_log == []
    machine.rdma = None
    result = through(machine.run({"name": "h100-2"}, state="absent"))
    assert (machine.state(), result["rdma"]["left"]) == (before, "")
    machine.requests.clear()
    assert through(machine.run({"name": "h100-2"}, state="absent"))["changed"] is False


def test_a_node_that_declares_nothing_any_more_is_as_one_that_is_absent(machine: Machine) -> None:
    through(machine.run(NODE))
    machine.rdma = None
    through(machine.run({**NODE, "rdma_resources": []}))
    assert machine.config_maps == {}
    assert ANNOTATION not in machine.nodes["h100-1"]["metadata"]["annotations"]


# --- the file of somebody else ----------------------------------------------------------------------------------------


def test_entries_of_others_stay_and_absent_restores_their_file_byte_for_byte(machine: Machine) -> None:
    somebody_elses(machine, labels={"app.kubernetes.io/managed-by": "Helm"})
    before, daemonset = machine.state(), copy.deepcopy(machine.rdma)
    result = through(machine.run({**NODE, "rdma_update_interval": 30}))
    theirs = json.loads(THEIRS)
    assert written(machine) == {"periodicUpdateInterval": 30, "configList": [*theirs["configList"], ENTRY]}
    assert result["rdma"]["owner"] == "Helm"
    assert machine.rdma != daemonset
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert machine.state() == before
    assert machine.rdma is not None
    assert machine.rdma["spec"]["template"]["metadata"]["annotations"] == {}


def test_what_others_add_meanwhile_stays_as_well(machine: Machine) -> None:
    somebody_elses(machine)
    through(machine.run({**NODE, "rdma_update_interval": 30}))
    changed = written(machine)
    changed["configList"].insert(0, {"resourceName": "new", "rdmaHcaMax": 1, "selectors": {"drivers": ["x"]}})
    changed["periodicUpdateInterval"] = 45
    machine.config_maps["rdma-devices"]["data"]["config.json"] = json.dumps(changed)
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert written(machine) == {
        "periodicUpdateInterval": 45,
        "configList": [changed["configList"][0], *json.loads(THEIRS)["configList"]],
    }


def test_an_entry_that_means_the_same_is_left_to_whom_it_belongs(machine: Machine) -> None:
    somebody_elses(machine)
    machine.adapters["h100-1"] = [{"ifNames": "ib0"}]
    node = {**NODE, "rdma_resources": [{"name": "hca_old", "hca_max": 1000, "selectors": {"if_names": ["ib1", "ib0"]}}]}
    result = through(machine.run({**node, "rdma_update_interval": 300}))
    assert machine.changes == ["PATCH /api/v1/nodes/h100-1"]
    assert (result["rdma"]["resources"], result["pending"]) == ([], [])
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert machine.config_maps["rdma-devices"]["data"]["config.json"] == THEIRS


def test_an_interval_alone_is_ours_until_nobody_declares_a_resource(machine: Machine) -> None:
    somebody_elses(machine)
    node = {**NODE, "rdma_resources": [{"name": "hca_old", "hca_max": 1000, "selectors": {"if_names": ["ib1", "ib0"]}}]}
    through(machine.run({**node, "rdma_update_interval": 0}, timeout=0))
    assert written(machine)["periodicUpdateInterval"] == 0
    through(machine.run(node, timeout=0))
    assert written(machine)["periodicUpdateInterval"] == 0
    through(machine.run({**node, "rdma_resources": []}))
    assert machine.config_maps["rdma-devices"]["data"]["config.json"] == THEIRS


def test_an_entry_of_ours_that_somebody_changes_is_put_right_and_with_absent_theirs(machine: Machine) -> None:
    somebody_elses(machine)
    through(machine.run(NODE))
    text = machine.config_maps["rdma-devices"]["data"]["config.json"]
    data = machine.config_maps["rdma-devices"]["data"]
    data["config.json"] = text.replace("64", "7")
    result = through(machine.run(NODE))
    assert (result["changed"], data["config.json"]) == (True, text.replace("64", "7"))
    data = machine.config_maps["rdma-devices"]["data"]
    assert data["config.json"] == text
    data["config.json"] = text.replace("64", "7")
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert machine.config_maps["rdma-devices"]["data"]["config.json"] == text.replace("64", "7")
    assert ANNOTATION not in machine.config_maps["rdma-devices"]["metadata"]["annotations"]


def test_a_config_map_of_ours_with_an_entry_of_others_is_left(machine: Machine) -> None:
    through(machine.run(NODE))
    document = written(machine)
    document["configList"].append({"resourceName": "new", "rdmaHcaMax": 1, "selectors": {"drivers": ["x"]}})
    machine.config_maps["rdma-devices"]["data"]["config.json"] = json.dumps(document)
    result = through(machine.run({"name": "h100-1"}, state="absent"))
    assert [one["resourceName"] for one in written(machine)["configList"]] == ["new"]
    assert result["rdma"]["left"] == f"the ConfigMap {PLACE} has resources of others: new"


def test_a_file_that_changes_at_that_moment_is_not_written_over(machine: Machine) -> None:
    somebody_elses(machine)
    asked = machine.answer

    def answer(method: str, path: str, query: Any, body: Any) -> Any:
        if method == "PATCH" and path.endswith("configmaps/rdma-devices"):
            machine.config_maps["rdma-devices"]["metadata"]["resourceVersion"] = "77"
        return asked(method, path, query, body)

    machine.answer = answer  # type: ignore[method-assign]
    result = machine.run(NODE)
    assert result["msg"].startswith(f"Cannot change {PLACE} in Kubernetes: Operation cannot be fulfilled on configmaps")
    assert (machine.requests, machine.config_maps["rdma-devices"]["data"]["config.json"]) == ([], THEIRS)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "cause"),
    [
        ({"hca_max": 0}, "hca_max of hca_a is 0, and must be from 1 to 209715"),
        ({"hca_max": -1}, "hca_max of hca_a is -1, and must be from 1 to 209715"),
        ({"hca_max": 209716}, "hca_max of hca_a is 209716, and must be from 1 to 209715"),
        ({"name": "hca-a"}, "hca-a is not the name of an RDMA resource: it must be up to 63 letters, digits and _"),
        ({"name": "_a"}, "_a is not the name of an RDMA resource"),
        ({"name": ""}, " is not the name of an RDMA resource"),
        ({"name": "a" * 64}, f"{'a' * 64} is not the name of an RDMA resource"),
        ({"prefix": "Rdma/x"}, "Rdma/x is not the prefix of a resource: it must be a domain, such as rdma"),
        ({"prefix": ""}, " is not the prefix of a resource"),
        ({"prefix": "node.kubernetes.io"}, "the prefix node.kubernetes.io belongs to Kubernetes"),
        ({"selectors": {}}, "the RDMA resource hca_a has no selectors, and would be of no device"),
        ({"selectors": {"vendors": []}}, "the RDMA resource hca_a has no selectors, and would be of no device"),
        (
            {"selectors": {"vendors": ["0x15b3"]}},
            "vendors of hca_a has '0x15b3', which matches no device: it must be four hexadecimal digits",
        ),
        ({"selectors": {"device_ids": ["101D"]}}, "device_ids of hca_a has '101D', which matches no device"),
        (
            {"selectors": {"if_names": ["a/b"]}},
            "if_names of hca_a has 'a/b', which is not the name of a network interface",
        ),
        ({"selectors": {"if_names": ["x" * 16]}}, f"if_names of hca_a has '{'x' * 16}'"),
        ({"selectors": {"drivers": [""]}}, "drivers of hca_a has an empty string"),
    ],
)
def test_what_the_plugin_would_not_take_is_refused_before_the_cluster_is_asked(
    machine: Machine, resource: Dict[str, Any], cause: str
) -> None:
    result = machine.run({**NODE, "rdma_resources": [{**A, **resource}]})
    assert result["msg"].startswith(f"Cannot configure the RDMA devices of h100-1: {cause}"), result["msg"]
    assert (machine.looks, machine.requests) == (0, [])


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            {"rdma_resources": [A, {**A, "prefix": "x"}]},
            {},
            "h100-1: the RDMA resource hca_a is named twice, which the plugin refuses whatever their prefixes",
        ),
        (
            {"rdma_resources": [A]},
            {"rdma_resources": [{**A, "hca_max": 65}]},
            "h100-1, h100-2: the RDMA resource hca_a is not declared alike on all of them, and one file serves all",
        ),
        (
            {"rdma_resources": [A], "rdma_update_interval": -1},
            {},
            "h100-1: rdma_update_interval is -1, and must be from 0 to 86400",
        ),
        (
            {"rdma_resources": [A], "rdma_update_interval": 86401},
            {},
            "h100-1: rdma_update_interval is 86401, and must be from 0 to 86400",
        ),
        (
            {"rdma_resources": [A], "rdma_update_interval": 30},
            {"rdma_resources": [A], "rdma_update_interval": 60},
            "h100-1, h100-2: rdma_update_interval is not the same on all of them (30, 60), and one file serves all",
        ),
    ],
)
def test_nodes_that_do_not_agree_are_named(
    machine: Machine, first: Dict[str, Any], second: Dict[str, Any], said: str
) -> None:
    result = machine.run({"name": "h100-1", **first}, {"name": "h100-2", **second})
    assert result["msg"].startswith(f"Cannot configure the RDMA devices of {said}"), result["msg"]
    assert (machine.looks, machine.requests) == (0, [])


def no_plugin(machine: Machine) -> None:
    machine.rdma = None


def of_the_operator(machine: Machine) -> None:
    owner = {"kind": "NicClusterPolicy", "name": "nic-cluster-policy", "controller": True}
    somebody_elses(machine, ownerReferences=[owner])


def another_one(machine: Machine) -> None:
    somebody_elses(machine, THEIRS.replace("hca_old", "hca_a"))


def no_json(machine: Machine) -> None:
    somebody_elses(machine, "{nonsense")


def damaged(machine: Machine) -> None:
    somebody_elses(machine, annotations={ANNOTATION: '{"entries": 1}'})


@pytest.mark.parametrize(
    "note",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"entries": {}, "interval": "78", "found": null}',
        '{"entries": {}, "interval": {"7": 1, "8": 2}, "found": null}',
        '{"entries": {}, "interval": null, "found": 7}',
        '{"entries": {"a": 7}, "interval": null, "found": null}',
    ],
)
def test_a_damaged_annotation_is_named_whatever_is_wrong_with_it(machine: Machine, note: str) -> None:
    somebody_elses(machine, annotations={ANNOTATION: note})
    before = machine.state()
    assert f"its annotation {ANNOTATION} is damaged" in machine.run(NODE)["msg"]
    assert (machine.requests, machine.state()) == ([], before)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (
            no_plugin,
            "Cannot configure the RDMA devices of h100-1: no DaemonSet in the namespace kube-system reads the "
            "ConfigMap rdma-devices. Install the RDMA shared device plugin, or set rdma_namespace and "
            "rdma_config_map to those that it has.",
        ),
        (
            of_the_operator,
            f"Cannot configure the RDMA devices of h100-1: the ConfigMap {PLACE} is made from the NicClusterPolicy "
            "nic-cluster-policy, which would undo it. Declare them there, or set rdma_config_map to that of another "
            "DaemonSet of the RDMA shared device plugin.",
        ),
        (
            another_one,
            f"Cannot configure the RDMA devices of h100-1: the resource hca_a is in {PLACE} already, as someone "
            "else has "
            'declared it (found {"resourceName": "hca_a", "rdmaHcaMax": 1000, "devices": ["ib0", "ib1"]}, wanted '
            f"{json.dumps(ENTRY)}). Declare it as it is there, choose another name, or remove it there.",
        ),
        (
            no_json,
            f"Cannot read config.json of {PLACE}: it is not a file of the RDMA plugin (found {{nonsense). Correct it "
            "there; nothing was written.",
        ),
        (
            damaged,
            f"Cannot read what this collection has set on the ConfigMap {PLACE}: its annotation {ANNOTATION} is "
            'damaged (found {"entries": 1}). Remove the annotation; what it names then stays as it is.',
        ),
    ],
)
def test_what_this_cluster_cannot_have_is_refused_before_anything_changes(
    machine: Machine, prepare: Any, said: str
) -> None:
    prepare(machine)
    before = machine.state()
    assert machine.run(NODE)["msg"] == said
    assert (machine.requests, machine.state()) == ([], before)


def test_a_file_that_the_operator_makes_may_say_what_is_declared(machine: Machine) -> None:
    of_the_operator(machine)
    machine.config_maps["rdma-devices"]["data"]["config.json"] = json.dumps({"configList": [ENTRY]})
    assert through(machine.run(NODE))["pending"] == []
    assert machine.changes == ["PATCH /api/v1/nodes/h100-1"]


@pytest.mark.parametrize("option", ["rdma_namespace", "rdma_config_map"])
def test_a_name_that_would_be_another_request_is_refused(machine: Machine, option: str) -> None:
    assert machine.run(NODE, **{option: "a/b"})["msg"] == (
        f"Cannot use {option}: it must be a name in Kubernetes (found a/b)."
    )


def test_the_two_plugins_cannot_have_one_config_map(machine: Machine) -> None:
    result = machine.run(NODE, namespace="kube-system", config_map="rdma-devices")
    assert result["msg"].startswith("Cannot use rdma_config_map: it must be another ConfigMap than that of the device")


@pytest.mark.parametrize(
    ("forbidden", "right"),
    [
        (f"GET {FILES}", "get, create, patch and delete configmaps"),
        ("GET /apis/apps/v1/namespaces/kube-system", "list daemonsets"),
        (f"POST {FILES}", "create configmaps"),
        (f"PATCH {DAEMONSET}", "patch daemonsets"),
    ],
)
def test_a_right_that_is_missing_is_named(machine: Machine, forbidden: str, right: str) -> None:
    machine.forbidden = forbidden
    result = machine.run(NODE)
    assert result["failure"]["hint"] == f"its user needs permission to {right}"
    machine.forbidden = "nothing"
    assert through(machine.run(NODE))["pending"] == []


@pytest.mark.parametrize("forbidden", [f"GET {FILES}", "GET /apis/apps/v1/namespaces/kube-system"])
def test_who_shares_no_rdma_devices_needs_no_right_for_them(machine: Machine, forbidden: str) -> None:
    through(machine.run(NODE))
    machine.forbidden = forbidden
    assert through(machine.run({"name": "h100-2", "labels": {"a": "b"}}))["changed"]
    assert written(machine) == {"configList": [ENTRY]}


# --- the file ---------------------------------------------------------------------------------------------------------


def test_entries_mean_the_same_whatever_they_leave_to_the_plugin() -> None:
    old = {"resourceName": "a", "rdmaHcaMax": 5, "devices": ["ib1", "ib0"]}
    new = {**old, "resourcePrefix": "rdma", "selectors": {"ifNames": ["ib0", "ib1"], "vendors": []}, "devices": []}
    assert meaning(old) == meaning(new)
    assert meaning(old) != meaning({**old, "resourcePrefix": "other"})
    # The plugin takes no devices beside selectors, so they do not count.
    assert meaning({**old, "selectors": {"vendors": ["15b3"]}}) != meaning(old)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "null",
        '{"configList": 5}',
        '{"configList": {"a": 1}}',
        '{"configList": [1]}',
        '{"configList": [{}]}',
        '{"configList": [{"resourceName": 1}]}',
        '{"configList": [{"resourceName": "a", "selectors": "x"}]}',
        '{"configList": [{"resourceName": "a", "selectors": {"vendors": [[]]}}]}',
    ],
)
def test_what_is_no_file_of_the_plugin_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(CannotLook, match="it is not a file of the RDMA plugin"):
        parse_document(text, "there")


@pytest.mark.parametrize("answer", [{}, {"spec": None}, [], {"spec": {"template": {"spec": {"volumes": [1]}}}}])
def test_what_is_no_daemonset_is_not_taken_for_one(answer: Any) -> None:
    with pytest.raises(CannotLook, match="it returned something else"):
        parse_reader(answer, Place("n", "c"))


def test_the_digest_of_the_file_is_on_the_pods_that_read_it(machine: Machine) -> None:
    through(machine.run(NODE))
    assert machine.rdma is not None
    digest = machine.rdma["spec"]["template"]["metadata"]["annotations"][DIGEST]
    through(machine.run({**NODE, "rdma_resources": [A, B]}, timeout=0))
    assert machine.rdma["spec"]["template"]["metadata"]["annotations"][DIGEST] != digest


class Killed(BaseException):
    """The run ends here, as by a signal."""


@pytest.mark.parametrize("number", range(6))
def test_a_run_may_be_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, number: int
) -> None:
    somebody_elses(machine)
    before = machine.state()

    def killed(**given: Any) -> None:
        machine.requests.clear()
        asked = machine.answer

        def answer(method: str, path: str, query: Any, body: Any) -> Any:
            if len(machine.requests) == number and method != "GET":
                raise Killed
            return asked(method, path, query, body)

        machine.answer = answer  # type: ignore[method-assign]
        try:
            through(machine.run(NODE, SECOND, **given))
        except Killed:
            pass
        finally:
            machine.answer = asked  # type: ignore[method-assign]

    killed()
    assert through(machine.run(NODE, SECOND))["pending"] == []
    assert written(machine)["configList"][1:] == [ENTRY]
    killed(state="absent")
    through(machine.run(NODE, SECOND, state="absent"))
    assert machine.state() == before
