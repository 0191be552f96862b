# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``kubernetes_node`` on the recorded API server: whose a cordon is, what is evicted, what is waited for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, NotPermitted
from ansible_collections.gpufleet.node.plugins.module_utils._machine import kubernetes_client as client
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.answers import (
    ANNOTATION,
    parse_node,
    parse_pods,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.options import OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.procedure import cordoned_nodes
from ansible_collections.gpufleet.node.tests.kubernetes import api_server
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import new_node
from ansible_collections.gpufleet.node.tests.unit.procedures.kubernetes.kubernetes_machine import NODE, Machine

OURS = "gpufleet: maintenance"
CORDON = f"PATCH /api/v1/nodes/{NODE}"
EVICT = "POST /api/v1/namespaces/default/pods/web-1/eviction"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


# --- pods -------------------------------------------------------------------------------------------------------------


def pod(phase: str = "Running", **metadata: Any) -> Dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "web", "uid": "u", **metadata}, "status": {"phase": phase}}


def owned_by(*kinds: str) -> List[Dict[str, str]]:
    return [{"kind": kind, "name": kind.lower()} for kind in kinds]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (pod(), "shop/web (without an owner)"),
        (pod(ownerReferences=owned_by("ReplicaSet")), "shop/web (ReplicaSet replicaset)"),
        (pod(ownerReferences=None, annotations=None), "shop/web (without an owner)"),
        (pod("Pending", ownerReferences=owned_by("Job")), "shop/web (Job job)"),
        (pod("Unknown", ownerReferences=owned_by("StatefulSet")), "shop/web (StatefulSet statefulset)"),
        (pod(deletionTimestamp="2026-11-22T04:00:00Z"), "shop/web (without an owner, ending)"),
        ({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}}, "shop/web (without an owner)"),
    ],
)
def test_a_pod_that_must_go_is_named_with_what_it_belongs_to(given: Dict[str, Any], name: str) -> None:
    (found,) = parse_pods({"items": [given]})
    assert (str(found), found.stays) == (name, False)


@pytest.mark.parametrize(
    "given",
    [
        pod(ownerReferences=owned_by("DaemonSet")),
        pod(ownerReferences=owned_by("Node"), annotations={"kubernetes.io/config.mirror": "x"}),
        pod("Succeeded"),
        pod("Failed"),
    ],
)
def test_a_pod_may_stay_on_a_drained_node(given: Dict[str, Any]) -> None:
    (found,) = parse_pods({"items": [given]})
    assert found.stays


@pytest.mark.parametrize("answer", [{}, {"items": None}, {"items": [{}]}, {"items": [{"metadata": None}]}])
def test_an_answer_that_is_no_list_of_pods_is_not_taken_for_one(answer: Any) -> None:
    with pytest.raises(CannotLook, match=r"^Cannot ask the API server for pods: it returned something else"):
        parse_pods(answer)


@pytest.mark.parametrize("answer", [{}, {"metadata": {}}, {"metadata": None}, {"metadata": {"name": "x"}}])
def test_an_answer_that_is_no_node_is_not_taken_for_one(answer: Any) -> None:
    with pytest.raises(CannotLook, match=r"^Cannot ask the API server for a node: it returned something else"):
        parse_node(answer)


# --- drained ----------------------------------------------------------------------------------------------------------


def test_a_node_is_cordoned_with_the_mark_in_one_request_and_its_pods_are_evicted(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.add_pod("web-2", namespace="shop")
    result = machine.run(reason="new layout")
    assert "failed" not in result, result
    assert (result["changed"], result["owner"], result["idle"], result["pods"]) == (True, "ours", True, [])
    assert result["reason"] == "gpufleet: new layout"
    assert (machine.cordoned, machine.mark) == (True, "gpufleet: new layout")
    first = machine.requests[0]
    assert first[2]["spec"] == {"unschedulable": True}
    assert first[2]["metadata"]["annotations"] == {ANNOTATION: "gpufleet: new layout"}
    assert machine.pods == {}
    assert machine.changes == [CORDON, EVICT, "POST /api/v1/namespaces/shop/pods/web-2/eviction"]
    assert result["diff"]["after"].splitlines() == [
        f"{NODE} state: drained",
        f"{NODE} reason: gpufleet: new layout",
        "default/web-1 state: evicted",
        "shop/web-2 state: evicted",
    ]
    assert machine.host.journal_lines == [
        f"kubernetes_node: {NODE} state: in_service -> drained (effective)",
        f"kubernetes_node: {NODE} reason: not set -> gpufleet: new layout (effective)",
        "kubernetes_node: default/web-1 state: running -> evicted (effective)",
        "kubernetes_node: shop/web-2 state: running -> evicted (effective)",
    ]


def test_a_second_drain_changes_nothing_and_resume_takes_cordon_and_mark_in_one_request(machine: Machine) -> None:
    states = ("drained", "drained", "in_service", "in_service")
    results = [machine.run(state=state) for state in states]
    assert [result["changed"] for result in results] == [True, False, True, False], results
    assert [result["owner"] for result in results] == ["ours", "ours", "nobody", "nobody"]
    assert machine.changes == [CORDON] * 2
    assert (machine.cordoned, machine.mark) == (False, None)


def test_what_somebody_else_has_cordoned_is_waited_for_and_not_emptied(machine: Machine) -> None:
    machine.cordon()
    machine.add_pod("web-1")
    result = machine.run(timeout=2)
    assert result["msg"] == (
        f"Cannot wait any longer for the pods of {NODE}: after 2 seconds there are default/web-1 (ReplicaSet "
        "web-1-owner). It stays cordoned: run again to keep waiting, or end them."
    )
    assert (result["failure"]["code"], result["owner"]) == ("in_use", "theirs")
    assert result["pods"] == [
        {
            "namespace": "default",
            "name": "web-1",
            "phase": "Running",
            "owners": ["ReplicaSet web-1-owner"],
            "ending": False,
        }
    ]
    assert (machine.cordoned, machine.requests) == (True, [])


def test_what_somebody_else_empties_is_drained(machine: Machine) -> None:
    machine.cordon()
    machine.add_pod("web-1")
    machine.pause = machine.pods.clear
    result = machine.run()
    assert (result["changed"], result["owner"], result["idle"]) == (False, "theirs", True)


def test_what_somebody_else_has_cordoned_is_not_uncordoned(machine: Machine) -> None:
    machine.cordon()
    assert machine.run()["changed"] is False
    result = machine.run(state="in_service")
    assert (result["changed"], result["owner"]) == (False, "theirs")
    assert result["left"] == "it was not cordoned by this collection"
    assert (machine.cordoned, machine.requests) == (True, [])


def test_an_administrator_who_cordons_between_the_look_and_the_patch_keeps_his_cordon(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.meanwhile = machine.cordon
    result = machine.run(timeout=0)
    assert (result["changed"], result["owner"]) == (False, "theirs")
    assert (machine.cordoned, machine.mark, machine.requests) == (True, None, [])


def test_a_heartbeat_between_the_look_and_the_patch_costs_another_look_only(machine: Machine) -> None:
    machine.meanwhile = machine.touch
    assert machine.run()["changed"]
    assert (machine.cordoned, machine.mark) == (True, OURS)
    assert machine.changes == [CORDON]


def test_a_node_that_others_change_all_the_time_is_given_up(machine: Machine) -> None:
    def again() -> None:
        machine.touch()
        machine.meanwhile = again

    machine.meanwhile = again
    result = machine.run()
    assert f"Cannot drain or resume {NODE}: Operation cannot be fulfilled on nodes" in result["msg"]
    assert result["failure"]["object"] == NODE
    assert (machine.looks, machine.requests) == (6, [])


def test_a_node_of_ours_gets_another_reason_where_that_is_asked_for(machine: Machine) -> None:
    machine.cordon(OURS)
    assert machine.run(reason="check nccl")["changed"] is False
    result = machine.run(reason="check nccl", update_reason=True)
    assert [(change["setting"], change["after"]) for change in result["changes"]] == [
        ("reason", "gpufleet: check nccl")
    ]
    assert (machine.cordoned, machine.mark) == (True, "gpufleet: check nccl")


def test_a_cordon_of_somebody_else_gets_no_reason_of_ours(machine: Machine) -> None:
    machine.cordon()
    assert machine.run(reason="check nccl", update_reason=True)["changed"] is False
    assert machine.mark is None


def test_who_takes_the_mark_between_the_look_and_the_patch_keeps_the_node(machine: Machine) -> None:
    machine.cordon(OURS)

    def take_over() -> None:
        del machine.node["metadata"]["annotations"][ANNOTATION]
        machine.touch()

    machine.meanwhile = take_over
    result = machine.run(state="in_service")
    assert (result["changed"], result["owner"]) == (False, "theirs")
    assert (machine.cordoned, machine.requests) == (True, [])


def test_an_api_server_that_forgets_the_patch_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "merged", lambda target, patch: target)
    result = machine.run()
    assert "the API server accepted the patch, but the node does not show it" in result["msg"]
    assert (result["failed"], result["failure"]["code"]) == (True, "not_in_effect")


def test_a_disruption_budget_is_respected_and_waited_for(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.add_pod("web-2")
    machine.budgets.append("web-1")

    def scale_up() -> None:
        if machine.lists > 2:
            machine.budgets.clear()

    machine.then = scale_up
    result = machine.run()
    assert "failed" not in result, result
    assert machine.pods == {}
    # What comes after it in the list does not wait for it.
    assert machine.changes == [CORDON, EVICT.replace("web-1", "web-2"), EVICT]


def test_a_budget_that_never_lets_go_is_named_and_the_node_stays_cordoned(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.budgets.append("web-1")
    result = machine.run(timeout=60)
    assert result["msg"] == (
        f"Cannot drain {NODE}: after 60 seconds default/web-1: Cannot evict pod as it would violate the pod's "
        "disruption budget: The disruption budget web needs 2 healthy pods and has 2. On it are default/web-1 "
        "(ReplicaSet web-1-owner). It stays cordoned: run again to keep waiting, or end them."
    )
    assert (result["changed"], machine.now) == (True, 60.0)
    assert (machine.cordoned, machine.mark) == (True, OURS)
    assert list(machine.pods) == [("default", "web-1")]


def test_a_pod_that_does_not_end_in_time_is_an_error_that_names_it(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 1000
    result = machine.run(timeout=20)
    assert result["msg"] == (
        f"Cannot drain {NODE}: after 20 seconds pods are still there. On it are default/web-1 (ReplicaSet web-1-owner, "
        "ending). It stays cordoned: run again to keep waiting, or end them."
    )
    # It is asked once, however long it takes.
    assert machine.changes == [CORDON, EVICT]


def test_what_a_cut_off_run_has_cordoned_the_next_one_empties(machine: Machine) -> None:
    machine.cordon(OURS)
    machine.add_pod("web-1")
    result = machine.run(reason="another")
    assert (result["changed"], result["reason"], machine.mark) == (True, OURS, OURS)
    assert machine.changes == [EVICT]
    assert machine.pods == {}


def test_pods_of_daemonsets_and_of_kubelet_stay_and_are_not_waited_for(machine: Machine) -> None:
    data = {"volumes": [{"name": "v", "emptyDir": {}}]}
    machine.add_pod("device-plugin", owner="DaemonSet", namespace="kube-system", spec=data)
    machine.add_pod("etcd", owner="Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    result = machine.run()
    assert "failed" not in result, result
    assert len(machine.pods) == 2
    assert machine.changes == [CORDON]


def test_a_pod_that_has_ended_is_told_to_go_and_not_waited_for(machine: Machine) -> None:
    machine.add_pod("web-1", owner="", phase="Succeeded")
    machine.slow = 1000
    result = machine.run()
    assert ("failed" not in result, machine.now) == (True, 0.0)
    assert machine.changes == [CORDON, EVICT]


LONELY = {"owner": ""}
WITH_DATA = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (LONELY, {}, "cannot delete Pods not managed by a controller (set force): default/web-1"),
        (WITH_DATA, {}, "cannot delete Pods with local storage (set delete_emptydir_data): default/web-1"),
        (
            {"owner": "DaemonSet"},
            {"ignore_daemonsets": False},
            "cannot delete DaemonSet-managed Pods (set ignore_daemonsets): default/web-1",
        ),
    ],
)
def test_a_pod_that_would_lose_something_is_an_error_at_once(
    machine: Machine, given: Any, options: Any, said: str, check_mode: bool
) -> None:
    machine.add_pod("web-1", **given)
    machine.add_pod("web-2")
    result = machine.run(**options, check_mode=check_mode)
    assert f"Cannot drain {NODE}: {said}. On it are " in result["msg"]
    assert "default/web-2 (ReplicaSet web-2-owner). It stays cordoned" in result["msg"]
    assert machine.changes == ([] if check_mode else [CORDON])
    assert machine.now == 0.0


def test_a_pod_that_would_lose_something_goes_where_that_is_allowed(machine: Machine) -> None:
    machine.add_pod("lonely", **LONELY)
    machine.add_pod("with-data", **WITH_DATA)
    result = machine.run(force=True, delete_emptydir_data=True)
    assert "failed" not in result, result
    assert machine.pods == {}


def test_a_pod_that_ends_already_loses_nothing_more(machine: Machine) -> None:
    machine.add_pod("lonely", owner="", metadata={"deletionTimestamp": "2026-11-22T04:00:00Z"})
    result = machine.run()
    assert "failed" not in result, result
    assert [change["object"] for change in result["changes"]] == [NODE, NODE]


def test_without_waiting_it_asks_once_and_says_what_is_still_there(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 1000
    result = machine.run(timeout=0)
    assert ("failed" not in result, result["idle"], machine.now) == (True, False, 0.0)
    assert [found["name"] for found in result["pods"]] == ["web-1"]
    assert machine.changes == [CORDON, EVICT]


def test_without_waiting_the_refusal_of_a_budget_is_an_error(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.budgets.append("web-1")
    assert "violate the pod's disruption budget" in machine.run(timeout=0)["msg"]


@pytest.mark.parametrize(
    ("options", "method", "sent"),
    [
        ({}, "POST", {}),
        ({"grace_period": 0}, "POST", {"gracePeriodSeconds": 0}),
        ({"grace_period": 30, "disable_eviction": True}, "DELETE", {"gracePeriodSeconds": 30}),
        ({"disable_eviction": True}, "DELETE", {}),
    ],
)
def test_a_pod_goes_as_it_is_told_and_only_the_one_that_was_looked_at(
    machine: Machine, options: Any, method: str, sent: Any
) -> None:
    machine.add_pod("web-1")
    machine.budgets.append("nobody")
    machine.run(**options)
    (found,) = [(how, body.get("deleteOptions", body)) for how, path, body in machine.requests if "pods" in path]
    assert found[0] == method
    assert {**sent, "preconditions": {"uid": "uid-web-1"}}.items() <= found[1].items()


def test_a_pod_in_the_place_of_another_is_looked_at_first(machine: Machine) -> None:
    """Of a StatefulSet it has the same name, and may be one that is not to be evicted."""
    machine.add_pod("db-0", owner="StatefulSet")
    true = machine.ask

    def ask(method: str, path: str, query: Any, body: Any) -> Any:
        answer = true(method, path, query, body)
        if path == "/api/v1/pods" and machine.lists == 1:
            machine.pods["default", "db-0"]["metadata"]["uid"] = "another"
        return answer

    machine.ask = ask  # type: ignore[method-assign]
    result = machine.run()
    assert "failed" not in result, result
    assert [body["deleteOptions"]["preconditions"] for _m, path, body in machine.requests if "pods" in path] == [
        {"uid": "another"}
    ]


def test_of_many_labels_only_the_pods_that_all_choose_are_asked_for(machine: Machine) -> None:
    asked: List[Dict[str, str]] = []
    true = machine.ask

    def ask(method: str, path: str, query: Any, body: Any) -> Any:
        asked.append(dict(query))
        return true(method, path, query, body)

    machine.ask = ask  # type: ignore[method-assign]
    machine.run(pod_selectors=["app!=dcgm-exporter", "tier in (web)"])
    chosen = {"fieldSelector": f"spec.nodeName={NODE}", "labelSelector": "app!=dcgm-exporter,tier in (web)"}
    assert chosen in asked


# --- what others do meanwhile -----------------------------------------------------------------------------------------


def test_a_node_that_somebody_uncordons_while_we_wait_is_an_error(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 1000
    machine.pause = machine.uncordon
    result = machine.run()
    assert result["msg"] == (
        f"Cannot wait for the pods of {NODE}: someone else uncordoned it meanwhile. Coordinate with them, then run "
        "again."
    )
    assert result["failure"]["code"] == "conflict"


def test_who_takes_the_node_over_while_we_wait_says_what_becomes_of_its_pods(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.budgets.append("web-1")

    def take_over() -> None:
        machine.node["metadata"]["annotations"].pop(ANNOTATION, None)
        machine.budgets.clear()

    machine.pause = take_over
    result = machine.run(timeout=30)
    assert f"Cannot wait any longer for the pods of {NODE}: after 30 seconds there are default/web-1" in result["msg"]
    assert machine.changes == [CORDON]


def test_the_api_server_may_be_restarted_while_we_wait(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 3

    def restart() -> None:
        machine.away = machine.now < 10

    machine.pause = restart
    result = machine.run()
    assert "failed" not in result, result
    assert machine.now >= 10


def test_an_api_server_that_stays_away_is_the_error_at_the_end(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 1000

    def leave() -> None:
        machine.away = True

    machine.pause = leave
    result = machine.run(timeout=30)
    assert f"Cannot drain {NODE}: no response from https://api: Connection refused. Check the route" in result["msg"]
    assert "On it are default/web-1 (ReplicaSet web-1-owner). It stays cordoned" in result["msg"]
    assert (result["changed"], result["failure"]["code"]) == (True, "cannot_look")


def test_a_node_that_is_removed_while_we_wait_is_named(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 1000

    def remove() -> None:
        machine.node["metadata"]["name"] = "another"

    machine.pause = remove
    assert "Kubernetes has no node of this name" in machine.run()["msg"]


def test_looks_begin_close_to_each_other_and_are_never_further_apart_than_poll(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.slow = 1000
    times: List[float] = []
    machine.pause = lambda: times.append(machine.now)
    machine.run(timeout=30, poll=8)
    assert times == [1.0, 3.0, 7.0, 15.0, 23.0, 30.0]


# --- in service, and in check mode ------------------------------------------------------------------------------------


def test_a_mark_without_a_cordon_is_taken_away(machine: Machine) -> None:
    machine.node["metadata"]["annotations"][ANNOTATION] = OURS
    result = machine.run(state="in_service")
    assert [(change["setting"], change["before"], change["after"]) for change in result["changes"]] == [
        ("reason", OURS, None)
    ]
    assert (machine.cordoned, machine.mark) == (False, None)


def prepare_nothing(machine: Machine) -> None:
    machine.add_pod("web-1")


def prepare_ours(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.cordon(OURS)


def prepare_theirs(machine: Machine) -> None:
    machine.add_pod("web-1")
    machine.cordon()


@pytest.mark.parametrize("state", ["drained", "in_service"])
@pytest.mark.parametrize("prepare", [prepare_nothing, prepare_ours, prepare_theirs])
def test_check_mode_predicts_what_a_run_does_and_neither_does_it_nor_waits(
    machine: Machine, prepare: Callable[[Machine], None], state: str
) -> None:
    prepare(machine)
    predicted = machine.run(state=state, check_mode=True)
    assert (machine.requests, machine.host.journal_lines, machine.now) == ([], [], 0.0)
    done = machine.run(state=state, timeout=0)
    for key in ("changed", "changes", "diff", "owner", "reason"):
        assert predicted[key] == done[key], key


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_node_that_kubernetes_does_not_have_is_named(machine: Machine) -> None:
    result = machine.run(name="nowhere")
    said = "Cannot drain or resume nowhere: Kubernetes has no node of this name. List them with kubectl get nodes."
    assert said in result["msg"]
    assert machine.requests == []


@pytest.mark.parametrize("state", ["drained", "in_service"])
def test_an_api_server_that_is_not_there_is_named(machine: Machine, state: str) -> None:
    machine.away = True
    result = machine.run(state=state)
    assert f"Cannot drain or resume {NODE}: no response from https://api: Connection refused. Check" in result["msg"]
    assert (result["changed"], result["failure"]["code"]) == (False, "cannot_look")


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_who_may_not_do_it_is_told_so_and_nothing_is_touched(machine: Machine, verb: str) -> None:
    machine.forbidden = f"{verb.upper()} /api/v1/nodes"
    result = machine.run()
    assert f"Cannot drain or resume {NODE}: " in result["msg"]
    assert f'User "u" cannot {verb} resource "nodes"' in result["msg"]
    assert "Its user needs permission to get, list and patch nodes." in result["msg"]
    assert result["failure"]["code"] == "not_permitted"
    assert machine.requests == []


@pytest.mark.parametrize(
    ("forbidden", "options", "right"),
    [
        ("GET /api/v1/pods", {}, "list pods"),
        ("POST /api/v1/namespaces", {}, "evict pods (create pods/eviction)"),
        ("DELETE /api/v1/namespaces", {"disable_eviction": True}, "delete pods"),
    ],
)
def test_who_may_not_touch_pods_is_told_so_and_that_the_node_is_cordoned(
    machine: Machine, forbidden: str, options: Any, right: str
) -> None:
    machine.add_pod("web-1")
    machine.forbidden = forbidden
    result = machine.run(**options)
    assert f"Cannot drain {NODE}: " in result["msg"]
    assert f"Its user needs permission to {right}. " in result["msg"]
    assert "It stays cordoned" in result["msg"]
    assert (machine.cordoned, machine.mark, machine.now) == (True, OURS, 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "a,b"}, "Cannot use name: it must be the name of one node (found a,b)."),
        ({"name": "a/b"}, "it must be the name of one node"),
        ({"name": ""}, "it must be the name of one node"),
        ({"reason": " "}, "it must be one line of text (found ' ')."),
        ({"reason": "a\nb"}, "it must be one line of text"),
        ({"timeout": -1}, "Cannot use timeout: it must be at least 0 s (found -1)."),
        ({"poll": 0}, "Cannot use poll: it must be at least 1 s (found 0)."),
    ],
)
def test_a_senseless_option_is_refused_before_anything_is_asked(machine: Machine, given: Any, message: str) -> None:
    result = machine.run(**given)
    assert message in result["msg"]
    assert (result["failure"]["code"], machine.looks) == ("declaration", 0)


def test_a_host_without_the_client_of_kubernetes_is_told_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(CannotLook) as caught:
        client.connect(dict.fromkeys(client.ENVIRONMENT), "/usr/bin/python3")
    said = str(caught.value)
    assert said.startswith("Cannot ask the API server: the Python package kubernetes cannot be imported by /usr/bin/")
    assert "Install it there, or set ansible_python_interpreter of this host to a Python that has it." in said


# --- which are drained ------------------------------------------------------------------------------------------------


def cordoned(name: str, mark: str = "") -> Dict[str, Any]:
    node = new_node(name)
    node["spec"]["unschedulable"] = True
    if mark:
        node["metadata"]["annotations"] = {ANNOTATION: mark}
    else:
        del node["metadata"]["annotations"]
    return node


def test_the_nodes_that_are_still_drained_are_one_question(machine: Machine) -> None:
    left_over = new_node("k4")
    left_over["metadata"]["annotations"][ANNOTATION] = OURS
    machine.others = [cordoned("k2", OURS), cordoned("k3"), left_over]
    assert cordoned_nodes(machine.ask) == {"changed": False, "nodes": [{"name": "k2", "reason": OURS}]}
    assert machine.looks == 1


def test_a_cluster_that_does_not_say_which_nodes_are_drained_is_an_error(machine: Machine) -> None:
    machine.forbidden = "GET /api/v1/nodes"
    with pytest.raises(NotPermitted, match="Cannot ask Kubernetes for the cordoned nodes: nodes is forbidden"):
        cordoned_nodes(machine.ask)


def test_every_option_of_the_access_has_its_variable_and_the_key_is_secret() -> None:
    spec = client.access_arguments("fallback")
    assert sorted(spec) == sorted(client.ENVIRONMENT)
    assert set(client.ACCESS) <= set(spec)
    assert [name for name, argument in spec.items() if argument["no_log"]] == ["api_key"]
    assert not set(spec) & set(OPTIONS)
