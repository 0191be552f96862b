# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters about clusters: which nodes are one cluster, what was found of them, and what is told after it."""

from __future__ import annotations

from typing import Any, Dict

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.filter.fleet_clusters import fleet_clusters
from ansible_collections.gpufleet.node.plugins.filter.plugin_clusters import plugin_clusters
from ansible_collections.gpufleet.node.plugins.filter.plugin_findings import plugin_findings
from ansible_collections.gpufleet.node.plugins.filter.plugin_messages import plugin_messages
from ansible_collections.gpufleet.node.plugins.plugin_utils.clusters import (
    ASKING,
    OF_THE_CLUSTER,
    ROLE,
    declaration_of,
    declares,
)
from ansible_collections.gpufleet.node.plugins.plugin_utils.playbooks import options_of
from ansible_collections.gpufleet.node.tests.unit.support import HostVars


def declared(name: str, **options: Any) -> Dict[str, Any]:
    """The fact of a host, as the role makes it."""
    found = declaration_of({"inventory_hostname": name, **{f"device_plugin_{key}": options[key] for key in options}})
    return {"__device_plugin_declared": {**found, "gpus": []}}


def test_hosts_whose_cluster_is_reached_in_the_same_way_are_one_cluster() -> None:
    hostvars = {
        "a": declared("a", become="no"),
        "b": declared("b", context="x"),
        "c": declared("c", replicas=3, node="c.example"),
        "gone": declared("gone"),
        # Its GPUs could not be read.
        "unknown": {},
    }
    first, second = plugin_clusters(["a", "b", "c", "unknown"], hostvars)
    assert (first["hosts"], second["hosts"]) == (["a", "c"], ["b"])
    assert (first["context"], second["context"], first["become"]) == ("", "x", False)
    assert [(node["name"], node["replicas"]) for node in first["nodes"]] == [("a", 1), ("c.example", 3)]
    assert not {"context", "node", "state"} & set(first["nodes"][0])


def test_what_only_says_how_and_where_declares_nothing() -> None:
    names = {"host", "kubeconfig", "namespace", "node", "timeout", "strategy", "rename", "memory_mib", "fact_labels"}
    assert not declares({f"device_plugin_{name}": "x" for name in names})
    # An empty value takes away what was there.
    assert declares({"device_plugin_labels": {}})
    assert declares({"device_plugin_replicas": 1})
    assert {f"device_plugin_{name}" for name in (*OF_THE_CLUSTER, *names)} | set(ASKING) <= set(options_of(ROLE))


GPU = {"pci_address": "0000:18:00.0", "model": "NVIDIA H100 80GB HBM3", "mig": {"current": False, "instances": []}}
FACTS = {"node": {"gpus": [GPU], "topology": {"devices": []}, "health": {"gpus": []}}}


def looked(**look: Any) -> Dict[str, Any]:
    return {"inventory_hostname": "x", "device_plugin_replicas": 3, "look": {"drifted": [], **FACTS, **look}}


def test_hosts_that_were_looked_at_are_in_their_cluster_unless_something_is_in_the_way() -> None:
    hostvars = HostVars(
        {
            "fine": looked(),
            "drifted": looked(drifted=["hugepages"]),
            "layout": looked(drifted=["mig_layout"]),
            "waiting": looked(waiting=["mig_layout"]),
            "refused": looked(refused="wrong"),
            "failed": {**looked(), "gpufleet_failure": "failed"},
            "blind": {**looked(), "look": {"drifted": [], "msg": "no NVML"}},
        }
    )
    found = fleet_clusters(list(hostvars), hostvars, "look")
    (cluster,) = found["clusters"]
    assert cluster["hosts"] == ["fine", "drifted"]
    assert cluster["nodes"][0]["gpus"][0]["model"] == GPU["model"]
    assert found["unreadable"] == {"blind": "Cannot say what it has to offer: no NVML."}
    as_it_is = "left as it is in Kubernetes, because"
    assert found["left_out"] == [
        f"layout,waiting: {as_it_is} its MIG layout is not in sync, and what Kubernetes allocates follows from it.",
        f"failed,refused: {as_it_is} the run failed there.",
    ]
    assert fleet_clusters(["fine", "drifted"], hostvars, "look", settled=True)["clusters"][0]["hosts"] == ["fine"]
    # To restore it no GPUs are needed.
    restored = fleet_clusters(["blind"], hostvars, "look", state="absent")
    assert (restored["clusters"][0]["state"], restored["unreadable"]) == ("absent", {})


CLUSTER = {"host": "bastion", "hosts": ["a", "b", "c"], "nodes": [{"name": name} for name in ("n-a", "n-b", "n-c")]}
CHANGE = {
    "object": "n-b",
    "setting": "label x",
    "before": None,
    "after": "1",
    "scope": "effective",
    "takes_effect": "now",
}
SHARED = {**CHANGE, "object": "ns/files", "setting": "key"}
WAITING = {"name": "n-c", "expected": {"nvidia.com/gpu": 12}, "allocatable": {"nvidia.com/gpu": 4, "nvidia.com/old": 1}}


def test_what_would_change_has_drifted_on_its_node_and_once_on_the_first_for_what_they_share() -> None:
    result = {"changes": [SHARED, CHANGE], "pending": [WAITING]}
    found = plugin_findings({"clusters": [CLUSTER]}, [result])
    assert {host: entry["status"] for host, entry in found.items()} == {"a": "drifted", "b": "drifted", "c": "pending"}
    (row,) = found["b"]["settings"]
    assert (row["object"], row["wanted"], row["effective"], row["boot"]) == ("kubernetes", "1", None, None)
    assert found["a"]["settings"][0]["object"] == "ns/files"
    assert [(row["setting"], row["wanted"], row["effective"]) for row in found["c"]["settings"]] == [
        ("nvidia.com/gpu", 12, 4),
        ("nvidia.com/old", None, 1),
    ]
    converged = plugin_findings({"clusters": [CLUSTER]}, [result], converged=True)
    assert [entry["status"] for entry in converged.values()] == ["in_sync", "in_sync", "pending"]


@pytest.mark.parametrize(
    ("result", "status", "message"),
    [
        ({"msg": "Cannot look.", "failure": {"code": "cannot_look"}}, "unknown", "Cannot look."),
        ({"msg": "Wrong.", "failure": {"code": "declaration"}}, "invalid", "Wrong."),
        ({"msg": "Undone.", "failure": {"code": "not_in_effect"}}, "drifted", "Undone."),
        ({"msg": "MODULE FAILURE"}, "unknown", "MODULE FAILURE"),
        (
            {"msg": "No route.", "unreachable": True},
            "unknown",
            "bastion, which device_plugin_host names, is unreachable: No route.",
        ),
    ],
)
def test_a_cluster_that_fails_fails_on_all_of_its_nodes(result: Dict[str, Any], status: str, message: str) -> None:
    found = plugin_findings({"clusters": [CLUSTER], "unreadable": {"d": "Blind."}}, [result])
    assert {host: (entry["status"], entry["msg"]) for host, entry in found.items()} == {
        "d": ("unknown", "Blind."),
        **dict.fromkeys("abc", (status, message)),
    }


def test_what_is_alike_on_many_nodes_is_one_line() -> None:
    pending = [
        {"name": name, "expected": {"nvidia.com/gpu": 12}, "allocatable": {"nvidia.com/gpu": 4}}
        for name in ("h001", "h002", "h003")
    ]
    nothing = {"name": "h009", "expected": {"nvidia.com/gpu.shared": 8, "nvidia.com/gpu": 2}, "allocatable": {}}
    results = [
        {"pending": [*pending, nothing], "unverified": ["h004", "h005"], "owner": "", "left": ""},
        {
            "pending": [],
            "unverified": [],
            "owner": "Helm",
            "config_map": "n/c",
            "left": "n/c is read by x",
            "rdma": {"owner": "Flux", "config_map": "k/r", "left": "k/r is read by y"},
            "dra": {"twice": ["h001", "h002"], "unknown": ""},
        },
        {"dra": {"twice": [], "unknown": "Cannot look."}},
    ]
    until = "It is pending until the plugin has read its configuration."
    assert plugin_messages(results) == [
        f"h[001-003]: offers 4 nvidia.com/gpu, and must offer 12 nvidia.com/gpu. {until}",
        f"h009: offers nothing, and must offer 2 nvidia.com/gpu, 8 nvidia.com/gpu.shared. {until}",
        "h[004-005]: its GPUs are not known, so what it offers was not checked.",
        "n/c: Helm manages this ConfigMap too, and may undo what was written.",
        "Left alone: n/c is read by x.",
        "k/r: Flux manages this ConfigMap too, and may undo what was written.",
        "Left alone: k/r is read by y.",
        "h[001-002]: the DRA driver and the device plugin both offer its GPUs, so a GPU may be allocated twice. "
        "Turn one of them off there.",
        "Whether the DRA driver offers GPUs too is not known: Cannot look.",
    ]


def test_a_cluster_that_is_as_declared_is_not_mentioned() -> None:
    assert plugin_messages([{"pending": [], "unverified": [], "owner": "", "left": ""}, {"failed": True}]) == []
