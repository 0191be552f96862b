# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The back end ``kubernetes`` of the role ``drain``: playbooks, kubernetes.core and its client, a recorded server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from api_server import Cluster, serve

NODE = "h100-007"
PLAYBOOK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.include_role": {
                    "name": "gpufleet.node.drain",
                    "tasks_from": "{{ entry | default('main') }}",
                }
            }
        ],
    }
]


@dataclass(frozen=True)
class Run:
    status: int
    output: str
    changed: int


class Bed:
    """A cluster, and a controller that knows the way to it."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(NODE)
        self._folder = folder
        self._server = serve(self.cluster)
        port = self._server.server_address[1]
        self.kubeconfig = self.write(
            "kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            },
        )
        self._playbook = self.write("play.yml", PLAYBOOK)
        self._inventory = self.write("inventory.json", {"all": {"hosts": {NODE: {"ansible_connection": "local"}}}})

    def write(self, name: str, content: Any) -> str:
        path = self._folder / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def run(self, *options: str, **variables: Any) -> Run:
        """Drain the node, or with ``entry="resume"`` put it back."""
        given: Dict[str, Any] = {
            "drain_backend": "kubernetes",
            "drain_kubernetes_kubeconfig": self.kubeconfig,
            "drain_timeout": 2,
            "drain_poll": 1,
            **variables,
        }
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", self._inventory, *options]
        environment = {
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_PIPELINING": "true",
            "TMPDIR": str(self._folder),
        }
        done = subprocess.run(
            [*command, "--extra-vars", json.dumps(given), self._playbook],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        recap = next(line for line in reversed(done.stdout.splitlines()) if line.startswith(NODE))
        counts = dict(word.split("=") for word in recap.split() if "=" in word)
        return Run(done.returncode, " ".join(done.stdout.split()), int(counts["changed"]))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.close()


def test_a_node_is_cordoned_with_the_mark_in_one_request_and_its_pods_are_evicted(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    bed.cluster.add_pod("web-2", namespace="shop")
    run = bed.run(drain_timeout=20, drain_reason="new layout")
    assert run.status == 0, run.output
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, "gpufleet: new layout")
    first = bed.cluster.requests[0]
    assert first[2]["spec"] == {"unschedulable": True}
    assert first[2]["metadata"]["annotations"] == {"gpufleet.node/drained-by": "gpufleet: new layout"}
    assert bed.cluster.pods == {}
    assert set(bed.cluster.changes[1:]) == {
        "POST /api/v1/namespaces/default/pods/web-1/eviction",
        "POST /api/v1/namespaces/shop/pods/web-2/eviction",
    }


def test_a_second_drain_changes_nothing_and_resume_takes_cordon_and_mark_in_one_request(bed: Bed) -> None:
    assert bed.run().status == 0
    changes = list(bed.cluster.changes)
    again = bed.run(drain_reason="another")
    assert (again.status, again.changed) == (0, 0), again.output
    assert bed.cluster.changes == changes
    assert bed.run(entry="resume").status == 0
    assert (bed.cluster.cordoned, bed.cluster.mark) == (False, None)
    assert len(bed.cluster.requests) == len(changes) + 1
    again = bed.run(entry="resume")
    assert (again.status, again.changed) == (0, 0), again.output
    assert len(bed.cluster.requests) == len(changes) + 1


def test_what_somebody_else_has_cordoned_is_neither_emptied_nor_uncordoned(bed: Bed) -> None:
    bed.cluster.node["spec"]["unschedulable"] = True
    bed.cluster.add_pod("web-1")
    run = bed.run()
    assert run.status != 0
    assert "after 2 seconds there are default/web-1 (ReplicaSet web-1-owner)" in run.output
    bed.cluster.pods.clear()
    assert bed.run().status == 0
    resumed = bed.run(entry="resume")
    assert resumed.status == 0
    assert "stays cordoned: it was not cordoned by this role" in resumed.output
    assert (bed.cluster.cordoned, bed.cluster.requests) == (True, [])


def test_an_administrator_who_cordons_between_the_look_and_the_patch_keeps_his_cordon(bed: Bed) -> None:
    def cordon() -> None:
        bed.cluster.node["spec"]["unschedulable"] = True
        bed.cluster.touch()

    bed.cluster.meanwhile = cordon
    run = bed.run()
    assert run.status == 0, run.output
    assert (bed.cluster.cordoned, bed.cluster.mark, bed.cluster.requests) == (True, None, [])


def test_a_heartbeat_between_the_look_and_the_patch_costs_another_look_only(bed: Bed) -> None:
    bed.cluster.meanwhile = bed.cluster.touch
    run = bed.run()
    assert run.status == 0, run.output
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, "gpufleet: maintenance")
    assert len(bed.cluster.requests) == 1


def test_a_disruption_budget_is_respected_and_waited_for(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    bed.cluster.budgets.append("web-1")

    def scale_up() -> None:
        if bed.cluster.lists > 2:
            bed.cluster.budgets.clear()

    bed.cluster.then = scale_up
    run = bed.run(drain_timeout=30)
    assert run.status == 0, run.output
    assert bed.cluster.lists > 2
    assert bed.cluster.pods == {}


def test_a_budget_that_never_lets_go_is_named_and_the_node_stays_cordoned(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    bed.cluster.budgets.append("web-1")
    run = bed.run()
    assert run.status != 0
    assert "violate the pod's disruption budget" in run.output.replace("\\u0027", "'")
    assert "On it are default/web-1 (ReplicaSet web-1-owner). It stays cordoned" in run.output
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, "gpufleet: maintenance")
    assert list(bed.cluster.pods) == [("default", "web-1")]


def test_a_pod_that_does_not_end_in_time_is_an_error_that_names_it(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    bed.cluster.slow = 1000
    run = bed.run()
    assert run.status != 0
    assert "On it are default/web-1 (ReplicaSet web-1-owner, ending). It stays cordoned" in run.output


def test_what_a_cut_off_run_has_cordoned_the_next_one_empties(bed: Bed) -> None:
    bed.cluster.node["spec"]["unschedulable"] = True
    bed.cluster.node["metadata"]["annotations"]["gpufleet.node/drained-by"] = "gpufleet: maintenance"
    bed.cluster.add_pod("web-1")
    run = bed.run(drain_timeout=20)
    assert run.status == 0, run.output
    assert bed.cluster.pods == {}


def test_pods_of_daemonsets_of_kubelet_and_those_that_have_ended_are_not_waited_for(bed: Bed) -> None:
    bed.cluster.add_pod("device-plugin", owner="DaemonSet", namespace="kube-system")
    bed.cluster.add_pod("etcd", owner="Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    run = bed.run()
    assert run.status == 0, run.output
    assert len(bed.cluster.pods) == 2


@pytest.mark.parametrize(
    ("pod", "option", "said"),
    [
        ({"owner": ""}, "drain_kubernetes_force", "cannot delete Pods not managed by"),
        (
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            "drain_kubernetes_delete_emptydir_data",
            "cannot delete Pods with local storage",
        ),
    ],
)
def test_a_pod_that_would_lose_something_is_an_error_at_once_unless_that_is_allowed(
    bed: Bed, pod: Dict[str, Any], option: str, said: str
) -> None:
    bed.cluster.add_pod("lonely", **pod)
    run = bed.run(drain_timeout=1000, drain_poll=1000)
    assert run.status != 0
    assert said in run.output
    assert bed.cluster.changes == [f"PATCH /api/v1/nodes/{NODE}"]
    assert bed.run(drain_timeout=20, **{option: True}).status == 0
    assert bed.cluster.pods == {}


def test_check_mode_predicts_the_cordon_and_sends_nothing(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    run = bed.run("--check", "--diff")
    assert (run.status, run.changed) == (0, 1), run.output
    assert bed.cluster.requests == []


def test_without_waiting_it_asks_once(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    bed.cluster.slow = 1000
    run = bed.run(drain_timeout=0)
    assert run.status == 0, run.output
    assert bed.cluster.changes[1:] == ["POST /api/v1/namespaces/default/pods/web-1/eviction"]


def test_a_mark_without_a_cordon_is_taken_away(bed: Bed) -> None:
    bed.cluster.node["metadata"]["annotations"]["gpufleet.node/drained-by"] = "gpufleet: maintenance"
    assert bed.run(entry="resume").status == 0
    assert (bed.cluster.cordoned, bed.cluster.mark) == (False, None)


def test_a_node_that_kubernetes_does_not_have_is_named(bed: Bed) -> None:
    run = bed.run(drain_kubernetes_node="h100-008")
    assert run.status != 0
    assert "Cannot drain or resume h100-008: Kubernetes has no node of this name" in run.output
    assert bed.cluster.requests == []


@pytest.mark.parametrize("entry", ["main", "resume"])
def test_an_api_server_that_is_not_there_is_an_error(bed: Bed, entry: str) -> None:
    bed.close()
    run = bed.run(entry=entry)
    assert run.status != 0
    assert bed.cluster.requests == []


@pytest.mark.parametrize(
    ("entry", "variables", "said"),
    [
        ("main", {"drain_backend": "pbs"}, "value of drain_backend must be one of"),
        ("resume", {"drain_timeout": "soon"}, "drain_timeout"),
    ],
)
def test_a_wrong_variable_is_refused_before_anything_is_asked(
    bed: Bed, entry: str, variables: Dict[str, Any], said: str
) -> None:
    run = bed.run(entry=entry, **variables)
    assert run.status != 0
    assert said in run.output
    assert bed.cluster.requests == []


@pytest.mark.parametrize("entry", ["main", "resume"])
def test_without_a_back_end_nothing_happens(bed: Bed, entry: str) -> None:
    run = bed.run(entry=entry, drain_backend="none")
    assert (run.status, run.changed) == (0, 0), run.output
    assert bed.cluster.requests == []
