# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role ``drain`` with the back end ``kubernetes``: one run of a playbook, each node with a cluster of its own.

What the module does in all its cases is in tests/unit/procedures/kubernetes. Here is what the role makes of it.
"""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import Cluster, serve
from ansible_collections.gpufleet.node.tests.kubernetes.controller import NOBODYS_PORT, Outcome, drain, kubeconfig, play

MARK = "gpufleet.node/drained-by"


def two_pods(cluster: Cluster) -> None:
    cluster.add_pod("web-1")
    cluster.add_pod("web-2", namespace="shop")


def cordoned(cluster: Cluster) -> None:
    cluster.node["spec"]["unschedulable"] = True


def marked(cluster: Cluster) -> None:
    cordoned(cluster)
    cluster.node["metadata"]["annotations"][MARK] = "gpufleet: maintenance"


def held(cluster: Cluster) -> None:
    cluster.add_pod("web-1")
    cluster.budgets.append("web-1")


def lonely_with_data(cluster: Cluster) -> None:
    cluster.add_pod("lonely", owner="", spec={"volumes": [{"name": "v", "emptyDir": {}}]})


def nothing(cluster: Cluster) -> None:
    return None


ALL = ("drain", "again", "resume", "once_more")
EVERY_OPTION = {
    "drain_kubernetes_force": True,
    "drain_kubernetes_delete_emptydir_data": True,
    "drain_kubernetes_disable_eviction": True,
    "drain_kubernetes_grace_period": 7,
    "drain_kubernetes_pod_selectors": ["app!=dcgm-exporter"],
    "drain_kubernetes_context": "x",
    "drain_reason": "new layout",
}
# By node: the plays that it is in, what is done to its cluster before, and the variables of its host.
NODES: Dict[str, Any] = {
    "h100-000": (ALL, two_pods, {"drain_timeout": 60}),
    "h100-001": (("drain", "resume"), cordoned, {}),
    "h100-002": (("drain",), held, {}),
    "h100-003": (("drain",), lonely_with_data, EVERY_OPTION),
    # Nobody has a machine of this name, RFC 2606.
    "h100-004": (("drain",), nothing, {"drain_kubernetes_host": "gone.invalid"}),
    "h100-005": (("resume",), marked, {"drain_kubernetes_host": "gone.invalid"}),
    "h100-006": (("drain",), nothing, {"drain_kubernetes_kubeconfig": NOBODYS_PORT}),
    "h100-007": (("drain",), nothing, {"drain_kubernetes_node": "nowhere"}),
    "h100-008": (("drain",), nothing, {"drain_backend": "pbs"}),
    "h100-009": (("resume",), marked, {"drain_timeout": "soon"}),
    "h100-010": (("drain", "resume"), nothing, {"drain_backend": "none"}),
    "h100-011": (("resume",), marked, {"drain_kubernetes_kubeconfig": NOBODYS_PORT}),
    "h100-012": (("check",), two_pods, {}),
}
ENTRIES = {"drain": "main", "again": "main", "resume": "resume", "once_more": "resume", "check": "main"}

Outcomes = Dict[str, Dict[str, Outcome]]


@pytest.fixture(scope="module")
def clusters() -> Dict[str, Cluster]:
    made = {name: Cluster(name) for name in NODES}
    for name, (_plays, prepare, _variables) in NODES.items():
        prepare(made[name])
    return made


@pytest.fixture(scope="module")
def outcomes(clusters: Dict[str, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """By node and play."""
    folder = tmp_path_factory.mktemp("controller")
    # A play ends the run where each of its hosts fails, so there is one that does not.
    groups: Dict[str, Dict[str, Any]] = {name: {"nobody": {"drain_backend": "none"}} for name in ENTRIES}
    servers = {name: serve(cluster) for name, cluster in clusters.items()}
    for name, (plays, _prepare, variables) in NODES.items():
        port = variables.get("drain_kubernetes_kubeconfig") or servers[name].server_address[1]
        way = {"drain_kubernetes_kubeconfig": kubeconfig(folder / f"{name}.json", port)}
        for group in plays:
            groups[group][name] = {**variables, **way}
    plays = [{**drain(group, entry), "check_mode": group == "check"} for group, entry in ENTRIES.items()]
    found: Outcomes = {}
    for outcome in play(folder / "run", plays, groups):
        found.setdefault(outcome.host, {})[outcome.play] = outcome
    for server in servers.values():
        server.shutdown()
        server.server_close()
    return found


def test_a_node_is_drained_once_and_resumed_once(outcomes: Outcomes, clusters: Dict[str, Cluster]) -> None:
    found = outcomes["h100-000"]
    changed = {name: (outcome.ok, outcome.changed) for name, outcome in found.items()}
    assert changed == {"drain": (True, 1), "again": (True, 0), "resume": (True, 1), "once_more": (True, 0)}, found
    cluster = clusters["h100-000"]
    assert cluster.changes == [
        "PATCH /api/v1/nodes/h100-000",
        "POST /api/v1/namespaces/default/pods/web-1/eviction",
        "POST /api/v1/namespaces/shop/pods/web-2/eviction",
        "PATCH /api/v1/nodes/h100-000",
    ]
    assert (cluster.cordoned, cluster.mark, cluster.pods) == (False, None, {})


def test_what_somebody_else_has_cordoned_is_left_to_him(outcomes: Outcomes, clusters: Dict[str, Cluster]) -> None:
    found = outcomes["h100-001"]
    assert (found["drain"].ok, found["resume"].ok) == (True, True), found
    assert "h100-001 stays cordoned, because it was not cordoned by this role." in found["resume"].said
    assert (clusters["h100-001"].cordoned, clusters["h100-001"].requests) == (True, [])


def test_a_pod_that_does_not_go_fails_the_node_after_the_time_of_the_role(outcomes: Outcomes) -> None:
    found = outcomes["h100-002"]["drain"]
    assert not found.ok
    assert "Cannot drain h100-002: after 2 seconds default/web-1: Cannot evict pod as it would violate" in found.said
    assert "On it are default/web-1 (ReplicaSet web-1-owner). It stays cordoned: run again to" in found.said


def test_every_variable_of_the_back_end_gets_to_the_api_server(
    outcomes: Outcomes, clusters: Dict[str, Cluster]
) -> None:
    assert outcomes["h100-003"]["drain"].ok, outcomes["h100-003"]
    cluster = clusters["h100-003"]
    assert cluster.mark == "gpufleet: new layout"
    assert cluster.selectors == {"app!=dcgm-exporter"}
    method, path, body = cluster.requests[1]
    assert (method, path) == ("DELETE", "/api/v1/namespaces/default/pods/lonely")
    assert body["gracePeriodSeconds"] == 7


@pytest.mark.parametrize(("host", "play"), [("h100-004", "drain"), ("h100-005", "resume")])
def test_a_host_of_the_api_that_is_out_of_reach_is_not_taken_for_the_node(
    outcomes: Outcomes, clusters: Dict[str, Cluster], host: str, play: str
) -> None:
    found = outcomes[host][play]
    assert not found.ok
    assert f"gone.invalid, which drain_kubernetes_host names for {host}, is unreachable: " in found.said
    assert clusters[host].requests == []


@pytest.mark.parametrize(("host", "play"), [("h100-006", "drain"), ("h100-011", "resume")])
def test_an_api_server_that_is_not_there_is_named(outcomes: Outcomes, host: str, play: str) -> None:
    found = outcomes[host][play]
    assert not found.ok
    assert f"Cannot drain or resume {host}: " in found.said
    assert "Connection refused" in found.said


def test_a_node_that_kubernetes_does_not_have_is_named(outcomes: Outcomes, clusters: Dict[str, Cluster]) -> None:
    found = outcomes["h100-007"]["drain"]
    assert not found.ok
    said = "Cannot drain or resume nowhere: Kubernetes has no node of this name. List them with kubectl get nodes."
    assert said in found.said
    assert clusters["h100-007"].requests == []


def test_an_unknown_back_end_is_refused(outcomes: Outcomes) -> None:
    assert not outcomes["h100-008"]["drain"].ok
    assert "value of drain_backend must be one of" in outcomes["h100-008"]["drain"].said


def test_a_wrong_variable_is_refused_before_anything_is_asked(outcomes: Outcomes, clusters: Dict[str, Cluster]) -> None:
    assert not outcomes["h100-009"]["resume"].ok
    assert "drain_timeout" in outcomes["h100-009"]["resume"].said
    assert clusters["h100-009"].requests == []


def test_without_a_back_end_nothing_happens(outcomes: Outcomes, clusters: Dict[str, Cluster]) -> None:
    found: List[Outcome] = list(outcomes["h100-010"].values())
    assert [(outcome.ok, outcome.changed) for outcome in found] == [(True, 0), (True, 0)]
    assert clusters["h100-010"].requests == []


def test_check_mode_predicts_the_drain_and_sends_nothing(outcomes: Outcomes, clusters: Dict[str, Cluster]) -> None:
    assert (outcomes["h100-012"]["check"].ok, outcomes["h100-012"]["check"].changed) == (True, 1), outcomes
    assert clusters["h100-012"].requests == []
