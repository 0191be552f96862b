# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the role ``device_plugin``: which nodes are one cluster, and what is told after it."""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.gpufleet.node.plugins.filter.plugin_clusters import plugin_clusters
from ansible_collections.gpufleet.node.plugins.filter.plugin_messages import plugin_messages


def declared(name: str, **cluster: Any) -> Dict[str, Any]:
    return {"__device_plugin_declared": {"cluster": {"context": "", **cluster}, "node": {"name": name}}}


def test_hosts_whose_cluster_is_reached_in_the_same_way_are_one_cluster() -> None:
    hostvars = {"a": declared("n1"), "b": declared("n2", context="x"), "c": declared("n3"), "gone": declared("n4")}
    assert plugin_clusters(["a", "b", "c"], hostvars) == [
        {"context": "", "nodes": [{"name": "n1"}, {"name": "n3"}]},
        {"context": "x", "nodes": [{"name": "n2"}]},
    ]
    assert hostvars["a"] == declared("n1")


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
        "h[001-002]: the DRA driver and the device plugin both hand out its GPUs, so a GPU may be given away twice. "
        "Turn one of them off there.",
        "Whether the DRA driver hands out GPUs too is not known: Cannot look.",
    ]


def test_a_cluster_that_is_as_declared_is_not_mentioned() -> None:
    assert plugin_messages([{"pending": [], "unverified": [], "owner": "", "left": ""}, {"failed": True}]) == []
