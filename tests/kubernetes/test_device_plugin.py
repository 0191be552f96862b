# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role and the playbook ``device_plugin``: one run of Ansible against a cluster whose nodes say what they have.

What the module does in all its cases is in tests/unit/procedures/device_plugin. Here is what the role makes of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import serve
from ansible_collections.gpufleet.node.tests.kubernetes.controller import Outcome, kubeconfig, play
from ansible_collections.gpufleet.node.tests.kubernetes.plugin_cluster import (
    CONFIG_LABEL,
    PluginCluster,
    rdma_daemonset,
)

CONNECTIONS = Path(__file__).resolve().parents[1] / "bench" / "scale" / "connection"
FIRST = "Tell Kubernetes how to allocate GPUs"
TAINT = {"key": "nvidia.com/gpu", "value": "present"}
# One line of the inventory, as docs/sharing.md has it.
THREE = {"device_plugin_replicas": 3}
HCA = {"name": "hca_a", "hca_max": 64, "selectors": {"vendors": ["15b3"]}}
CLASS = {"name": "h100.example.com", "selectors": ["device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"]}
SHARED_BY_PODS = {
    "device_plugin_taints": [TAINT],
    "device_plugin_rdma_resources": [HCA],
    "device_plugin_rdma_update_interval": 0,
    "device_plugin_device_classes": [CLASS],
}
RDMA_FILES = "/api/v1/namespaces/kube-system/configmaps"
RESTART = "/apis/apps/v1/namespaces/kube-system/daemonsets/rdma-shared-dp-ds"
FILES = "/api/v1/namespaces/nvidia-device-plugin/configmaps"


def facts(gpus: int) -> Dict[str, Any]:
    """What ``gpu_node_info`` says of so many GPUs."""
    addresses = [f"0000:{0x18 + number:02x}:00.0" for number in range(gpus)]
    one = {"model": "NVIDIA H100 80GB HBM3", "cuda_capability": "9.0", "memory": {"total_mib": 81559}}
    mig = {"current": False, "instances": []}
    return {
        "gpus": [{"pci_address": address, "mig": mig, **one} for address in addresses],
        "topology": {"devices": [{"pci_address": address, "numa_node": 0} for address in addresses]},
        "health": {"gpus": [{"pci_address": address, "fabric": None} for address in addresses]},
    }


def the_role(name: str, **more: Any) -> Dict[str, Any]:
    role = {"ansible.builtin.include_role": {"name": "gpufleet.node.device_plugin"}}
    return {"name": name, "hosts": "nodes", "gather_facts": False, "tasks": [role], **more}


@pytest.fixture(scope="module")
def clusters() -> Dict[str, PluginCluster]:
    made = {"one": PluginCluster({"dev-1": 4, "dev-2": 4, "whole-1": 8}), "other": PluginCluster({"far-1": 2})}
    made["one"].slow = 1
    # A plugin that never looks again.
    made["other"].slow = 1000
    made["other"].resource_api = "v1"
    made["other"].publish("far-1", "gpu-0", "gpu-1")
    made["one"].resource_api = "v1"
    made["one"].rdma = rdma_daemonset()
    made["one"].adapters["whole-1"] = [{"vendors": "15b3"}]
    return made


@pytest.fixture(scope="module")
def outcomes(clusters: Dict[str, PluginCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[Outcome]]:
    folder = tmp_path_factory.mktemp("controller")
    servers = {name: serve(cluster) for name, cluster in clusters.items()}
    hosts: Dict[str, Any] = {}
    for name, cluster in clusters.items():
        way = kubeconfig(folder / name, servers[name].server_address[1])
        for host, gpus in cluster.gpus.items():
            answers = folder / f"answers-{host}"
            answers.mkdir()
            said = {"changed": False, "node": facts(gpus)}
            (answers / "gpu_node_info.json").write_text(json.dumps(said), encoding="utf-8")
            hosts[host] = {
                "ansible_connection": "replay",
                "replay_answers": str(answers),
                "gpufleet_look_by": "module",
                "device_plugin_kubeconfig": way,
                "device_plugin_timeout": 60 if name == "one" else 0,
                "device_plugin_poll": 1,
                **(THREE if host != "whole-1" else SHARED_BY_PODS),
            }
    plays = [
        the_role("check", check_mode=True),
        {"ansible.builtin.import_playbook": "gpufleet.node.device_plugin"},
        the_role("again"),
        the_role("absent", vars={"device_plugin_state": "absent"}),
        # The run ends here, because it fails for all.
        the_role("refused", vars={"device_plugin_replicas": 0}),
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ANSIBLE_CONNECTION_PLUGINS", str(CONNECTIONS))
        yield play(folder / "run", plays, {"nodes": hosts})
    for server in servers.values():
        server.shutdown()
        server.server_close()


def told(outcomes: List[Outcome], name: str) -> str:
    return " ".join(one.said for one in outcomes if one.play == name)


def changed(outcomes: List[Outcome], name: str) -> List[int]:
    """How many tasks changed something, by host, of which the first has what ran once. They come as they finish."""
    by_host = {one.host: one.changed for one in outcomes if one.play == name}
    return [by_host[host] for host in sorted(by_host)]


def test_each_cluster_is_converged_once_for_all_its_nodes(
    outcomes: List[Outcome], clusters: Dict[str, PluginCluster]
) -> None:
    assert all(one.ok for one in outcomes if one.play != "refused"), outcomes
    assert changed(outcomes, FIRST) == [1, 0, 0, 0]
    first = clusters["one"].changes[:7]
    assert first == [
        f"POST {FILES}",
        f"POST {RDMA_FILES}",
        f"PATCH {RESTART}",
        "POST /apis/resource.k8s.io/v1/deviceclasses",
        "PATCH /api/v1/nodes/dev-1",
        "PATCH /api/v1/nodes/dev-2",
        "PATCH /api/v1/nodes/whole-1",
    ]
    assert clusters["other"].changes[:2] == [f"POST {FILES}", "PATCH /api/v1/nodes/far-1"]
    made = {body["metadata"]["name"]: body for _method, path, body in clusters["one"].requests[4:7]}
    labels = made["dev-1"]["metadata"]["labels"]
    assert labels[CONFIG_LABEL].startswith("gpufleet-timesliced-3-")
    assert (labels["gpufleet.node/sharing"], labels["gpufleet.node/replicas"]) == ("time-slicing", "3")
    assert CONFIG_LABEL not in made["whole-1"]["metadata"]["labels"]
    assert made["whole-1"]["spec"]["taints"] == [{**TAINT, "effect": "NoSchedule"}]


def test_what_one_node_declares_for_rdma_and_dra_is_there_for_it(
    outcomes: List[Outcome], clusters: Dict[str, PluginCluster]
) -> None:
    bodies = {path: body for method, path, body in clusters["one"].requests if method == "POST"}
    assert json.loads(bodies[RDMA_FILES]["data"]["config.json"]) == {
        "configList": [
            {
                "resourceName": "hca_a",
                "resourcePrefix": "rdma",
                "rdmaHcaMax": 64,
                "selectors": {"vendors": ["15b3"]},
            }
        ],
        "periodicUpdateInterval": 0,
    }
    assert clusters["one"].nodes["whole-1"]["status"]["allocatable"]["rdma/hca_a"] == "64"
    made = bodies["/apis/resource.k8s.io/v1/deviceclasses"]
    assert made["spec"]["selectors"][1] == {"cel": {"expression": CLASS["selectors"][0]}}
    # It went with the only node that had it, and the file stays as long as a plugin reads it.
    assert clusters["one"].device_classes == {}
    left = "Left alone: the ConfigMap kube-system/rdma-devices is read by rdma-shared-dp-ds."
    assert left in told(outcomes, "absent")


def test_check_mode_predicts_it_and_sends_nothing(outcomes: List[Outcome], clusters: Dict[str, PluginCluster]) -> None:
    assert changed(outcomes, "check") == [1, 0, 0, 0]
    # The first that was sent made the ConfigMap, which the play before would have made otherwise.
    assert clusters["one"].changes.count(f"POST {FILES}") == 1


def test_a_second_run_changes_nothing(outcomes: List[Outcome], clusters: Dict[str, PluginCluster]) -> None:
    assert changed(outcomes, "again") == [0, 0, 0, 0]
    by_node = [path for path in clusters["one"].changes if path == "PATCH /api/v1/nodes/dev-1"]
    # One when it came, and one when it went.
    assert len(by_node) == 2


def test_the_shares_are_offered_or_the_node_is_named_as_pending(
    outcomes: List[Outcome], clusters: Dict[str, PluginCluster]
) -> None:
    assert clusters["one"].offers["dev-1"] == [4, 12]
    said = told(outcomes, FIRST)
    assert "far-1: offers 2 nvidia.com/gpu, and must offer 6 nvidia.com/gpu. It is pending until" in said
    assert "dev-1" not in said
    assert "far-1: the DRA driver and the device plugin both offer its GPUs" in said


def test_absent_restores_the_nodes_and_leaves_what_a_daemonset_reads(
    outcomes: List[Outcome], clusters: Dict[str, PluginCluster]
) -> None:
    fresh = PluginCluster(clusters["one"].gpus)
    nodes, files, _policy = clusters["one"].state()
    assert nodes == fresh.state()[0]
    assert list(files["gpufleet-device-plugin"]["data"]) == ["default"]
    left = "Left alone: the ConfigMap nvidia-device-plugin/gpufleet-device-plugin is read by nvdp-nvidia-device-plugin."
    assert left in told(outcomes, "absent")


def test_what_is_refused_changes_nothing(outcomes: List[Outcome], clusters: Dict[str, PluginCluster]) -> None:
    assert not next(one.ok for one in outcomes if (one.play, one.host) == ("refused", "dev-1"))
    said = told(outcomes, "refused")
    assert "Cannot configure the device plugin for dev-1, dev-2, whole-1: replicas is 0, and must be at least 2" in said
    # The last request is of the play before.
    assert clusters["one"].changes[-1] == f"PATCH {FILES}/gpufleet-device-plugin"
