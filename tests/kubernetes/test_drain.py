# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The back end ``kubernetes`` of the role ``drain``: playbooks, kubernetes.core and its client, a recorded server.

Each test is about one node, which was in the plays that its mark names, see conftest.py.
"""

from __future__ import annotations

import pytest
from api_server import Cluster
from controller import Bed

NODE = pytest.mark.node
OURS = "gpufleet: maintenance"
MARK = "gpufleet.node/drained-by"
# Longer than any test takes; a node that has it must not need it.
PATIENT = {"drain_timeout": 60}


def cordon(cluster: Cluster) -> None:
    cluster.node["spec"]["unschedulable"] = True
    cluster.touch()


def mark(cluster: Cluster) -> None:
    cluster.node["metadata"]["annotations"][MARK] = OURS


def add_pod(cluster: Cluster) -> None:
    cluster.add_pod("web-1")


def two_pods(cluster: Cluster) -> None:
    add_pod(cluster)
    cluster.add_pod("web-2", namespace="shop")


@NODE("drain", prepare=two_pods, drain_reason="new layout", **PATIENT)
def test_a_node_is_cordoned_with_the_mark_in_one_request_and_its_pods_are_evicted(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, "gpufleet: new layout")
    first = bed.cluster.requests[0]
    assert first[2]["spec"] == {"unschedulable": True}
    assert first[2]["metadata"]["annotations"] == {MARK: "gpufleet: new layout"}
    assert bed.cluster.pods == {}
    assert set(bed.cluster.changes[1:]) == {
        "POST /api/v1/namespaces/default/pods/web-1/eviction",
        "POST /api/v1/namespaces/shop/pods/web-2/eviction",
    }


@NODE("drain", "again", "resume", "once_more")
def test_a_second_drain_changes_nothing_and_resume_takes_cordon_and_mark_in_one_request(bed: Bed) -> None:
    changed = {name: (outcome.ok, outcome.changed) for name, outcome in bed.plays.items()}
    assert changed == {"drain": (True, 1), "again": (True, 0), "resume": (True, 1), "once_more": (True, 0)}, bed.plays
    assert bed.cluster.changes == [f"PATCH /api/v1/nodes/{bed.name}"] * 2
    assert (bed.cluster.cordoned, bed.cluster.mark) == (False, None)


def cordoned_with_a_pod(cluster: Cluster) -> None:
    cordon(cluster)
    add_pod(cluster)


@NODE("drain", prepare=cordoned_with_a_pod)
def test_what_somebody_else_has_cordoned_is_waited_for_and_not_emptied(bed: Bed) -> None:
    assert not bed.plays["drain"].ok
    assert "after 2 seconds there are default/web-1 (ReplicaSet web-1-owner)" in bed.plays["drain"].said
    assert (bed.cluster.cordoned, bed.cluster.requests) == (True, [])


@NODE("drain", "resume", prepare=cordon)
def test_what_somebody_else_has_cordoned_is_not_uncordoned(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert bed.plays["resume"].ok, bed.plays
    assert "stays cordoned: it was not cordoned by this role" in bed.plays["resume"].said
    assert (bed.cluster.cordoned, bed.cluster.requests) == (True, [])


def cordon_meanwhile(cluster: Cluster) -> None:
    cluster.meanwhile = lambda: cordon(cluster)


@NODE("drain", prepare=cordon_meanwhile)
def test_an_administrator_who_cordons_between_the_look_and_the_patch_keeps_his_cordon(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert (bed.cluster.cordoned, bed.cluster.mark, bed.cluster.requests) == (True, None, [])


def touch_meanwhile(cluster: Cluster) -> None:
    cluster.meanwhile = cluster.touch


@NODE("drain", prepare=touch_meanwhile)
def test_a_heartbeat_between_the_look_and_the_patch_costs_another_look_only(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, OURS)
    assert len(bed.cluster.requests) == 1


def budget(cluster: Cluster) -> None:
    add_pod(cluster)
    cluster.budgets.append("web-1")


def budget_for_a_while(cluster: Cluster) -> None:
    def scale_up() -> None:
        if cluster.lists > 2:
            cluster.budgets.clear()

    budget(cluster)
    cluster.then = scale_up


@NODE("drain", prepare=budget_for_a_while, **PATIENT)
def test_a_disruption_budget_is_respected_and_waited_for(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert bed.cluster.lists > 2
    assert bed.cluster.pods == {}


@NODE("drain", prepare=budget)
def test_a_budget_that_never_lets_go_is_named_and_the_node_stays_cordoned(bed: Bed) -> None:
    assert not bed.plays["drain"].ok
    assert "violate the pod's disruption budget" in bed.plays["drain"].said
    assert "On it are default/web-1 (ReplicaSet web-1-owner). It stays cordoned" in bed.plays["drain"].said
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, OURS)
    assert list(bed.cluster.pods) == [("default", "web-1")]


def slow(cluster: Cluster) -> None:
    add_pod(cluster)
    cluster.slow = 1000


@NODE("drain", prepare=slow)
def test_a_pod_that_does_not_end_in_time_is_an_error_that_names_it(bed: Bed) -> None:
    assert not bed.plays["drain"].ok
    assert "On it are default/web-1 (ReplicaSet web-1-owner, ending). It stays cordoned" in bed.plays["drain"].said


def cut_off(cluster: Cluster) -> None:
    cordoned_with_a_pod(cluster)
    mark(cluster)


@NODE("drain", prepare=cut_off, **PATIENT)
def test_what_a_cut_off_run_has_cordoned_the_next_one_empties(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert bed.cluster.pods == {}


def pods_that_stay(cluster: Cluster) -> None:
    cluster.add_pod("device-plugin", owner="DaemonSet", namespace="kube-system")
    cluster.add_pod("etcd", owner="Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})


@NODE("drain", prepare=pods_that_stay)
def test_pods_of_daemonsets_of_kubelet_and_those_that_have_ended_are_not_waited_for(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert len(bed.cluster.pods) == 2


def lonely(cluster: Cluster) -> None:
    cluster.add_pod("lonely", owner="")


def with_data(cluster: Cluster) -> None:
    cluster.add_pod("with-data", spec={"volumes": [{"name": "v", "emptyDir": {}}]})


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("cannot delete Pods not managed by", marks=NODE("drain", prepare=lonely, **PATIENT)),
        pytest.param("cannot delete Pods with local storage", marks=NODE("drain", prepare=with_data, **PATIENT)),
    ],
)
def test_a_pod_that_would_lose_something_is_an_error_at_once(bed: Bed, said: str) -> None:
    assert not bed.plays["drain"].ok
    assert said in bed.plays["drain"].said
    assert bed.cluster.changes == [f"PATCH /api/v1/nodes/{bed.name}"]


def both(cluster: Cluster) -> None:
    lonely(cluster)
    with_data(cluster)


@NODE("drain", prepare=both, drain_kubernetes_force=True, drain_kubernetes_delete_emptydir_data=True, **PATIENT)
def test_a_pod_that_would_lose_something_goes_where_that_is_allowed(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert bed.cluster.pods == {}


@NODE("check", prepare=add_pod)
def test_check_mode_predicts_the_cordon_and_sends_nothing(bed: Bed) -> None:
    assert (bed.plays["check"].ok, bed.plays["check"].changed) == (True, 1), bed.plays
    assert bed.cluster.requests == []


@NODE("drain", prepare=slow, drain_timeout=0)
def test_without_waiting_it_asks_once(bed: Bed) -> None:
    assert bed.plays["drain"].ok, bed.plays
    assert bed.cluster.changes[1:] == ["POST /api/v1/namespaces/default/pods/web-1/eviction"]


@NODE("resume", prepare=mark)
def test_a_mark_without_a_cordon_is_taken_away(bed: Bed) -> None:
    assert bed.plays["resume"].ok, bed.plays
    assert (bed.cluster.cordoned, bed.cluster.mark) == (False, None)


# --- what cannot be --------------------------------------------------------------------------------------------------


@NODE("drain", drain_kubernetes_node="nowhere")
def test_a_node_that_kubernetes_does_not_have_is_named(bed: Bed) -> None:
    assert not bed.plays["drain"].ok
    assert "Cannot drain or resume nowhere: Kubernetes has no node of this name. Look at" in bed.plays["drain"].said
    assert bed.cluster.requests == []


def leave(cluster: Cluster) -> None:
    cluster.away = True


@pytest.mark.parametrize(
    "play",
    [
        pytest.param("drain", marks=NODE("drain", prepare=leave)),
        pytest.param("resume", marks=NODE("resume", prepare=leave)),
    ],
)
def test_an_api_server_that_is_not_there_is_named(bed: Bed, play: str) -> None:
    assert not bed.plays[play].ok
    said = bed.plays[play].said
    assert f"Cannot drain or resume {bed.name}: " in said
    assert "Connection refused" in said
    assert "Look at drain_kubernetes_node, at the way from localhost to the API server" in said


# Nobody has a machine of this name, RFC 2606.
ONCE_PATCHED = "{{ 'gone.invalid' if __drain_patched is defined else 'localhost' }}"
ONCE_EVICTED = "{{ 'gone.invalid' if __drain_evicted is defined else 'localhost' }}"


@pytest.mark.parametrize(
    ("broken", "changes"),
    [
        pytest.param(
            "Cannot drain {node}: ",
            1,
            marks=NODE("drain", prepare=add_pod, drain_kubernetes_host=ONCE_PATCHED, **PATIENT),
        ),
        pytest.param(
            "Cannot wait any longer for the pods of {node}: ",
            2,
            marks=NODE("drain", prepare=add_pod, drain_kubernetes_host=ONCE_EVICTED, **PATIENT),
        ),
    ],
)
def test_a_host_of_the_api_that_is_lost_in_the_middle_is_not_taken_for_the_node(
    bed: Bed, broken: str, changes: int
) -> None:
    said = bed.plays["drain"].said
    cause = f"gone.invalid, which drain_kubernetes_host names for {bed.name}, is out of reach: "
    assert broken.format(node=bed.name) + cause in said
    assert "It stays cordoned" in said.partition(cause)[2]
    assert len(set(bed.cluster.changes)) == changes
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, OURS)


def forbid_looking(cluster: Cluster) -> None:
    cluster.forbidden = "GET /api/v1/nodes"


def forbid_patching(cluster: Cluster) -> None:
    cluster.forbidden = "PATCH /api/v1/nodes"


def forbid_listing(cluster: Cluster) -> None:
    cluster.forbidden = "GET /api/v1/pods"


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param("get", marks=NODE("drain", prepare=forbid_looking)),
        pytest.param("patch", marks=NODE("drain", prepare=forbid_patching)),
    ],
)
def test_who_may_not_do_it_is_told_so_and_nothing_is_touched(bed: Bed, verb: str) -> None:
    assert not bed.plays["drain"].ok
    assert f"Cannot drain or resume {bed.name}: " in bed.plays["drain"].said
    assert f'User "u" cannot {verb} resource "nodes"' in bed.plays["drain"].said.replace("\\", "")
    assert bed.cluster.requests == []


@NODE("drain", prepare=forbid_listing)
def test_who_may_not_list_pods_is_told_so_and_that_the_node_is_cordoned(bed: Bed) -> None:
    assert not bed.plays["drain"].ok
    assert 'User "u" cannot get resource "pods"' in bed.plays["drain"].said.replace("\\", "")
    assert "It stays cordoned" in bed.plays["drain"].said
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, OURS)


@NODE("drain", drain_backend="pbs")
def test_an_unknown_back_end_is_refused(bed: Bed) -> None:
    assert not bed.plays["drain"].ok
    assert "value of drain_backend must be one of" in bed.plays["drain"].said


@NODE("resume", drain_timeout="soon")
def test_a_wrong_variable_is_refused_before_anything_is_asked(bed: Bed) -> None:
    assert not bed.plays["resume"].ok
    assert "drain_timeout" in bed.plays["resume"].said
    assert bed.cluster.requests == []


@NODE("drain", "resume", drain_backend="none")
def test_without_a_back_end_nothing_happens(bed: Bed) -> None:
    assert [(outcome.ok, outcome.changed) for outcome in bed.plays.values()] == [(True, 0), (True, 0)]
    assert bed.cluster.requests == []
