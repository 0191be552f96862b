# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``site``, ``audit`` and ``remove`` do about the clusters of the nodes, which say what they are told to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import serve
from ansible_collections.gpufleet.node.tests.kubernetes.controller import NOBODYS_PORT, Run, kubeconfig, run
from ansible_collections.gpufleet.node.tests.kubernetes.plugin_cluster import PluginCluster

CONNECTIONS = Path(__file__).resolve().parents[1] / "bench" / "scale" / "connection"
FILES = "/api/v1/namespaces/nvidia-device-plugin/configmaps"
LISTS = ("in_sync", "drifted", "unknown", "invalid", "pending", "waiting", "orphaned", "to_converge", "managed")
ADDRESSES = ["0000:18:00.0", "0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0"]


def concern(status: str) -> Dict[str, Any]:
    lists: Dict[str, Any] = {
        name: [] for name in ("settings", "needs", "conflicts", "unmanaged", "changes", "reboot_reasons")
    }
    return {"status": status, "settings_in_sync": 1, "unmanaged_total": 0, **lists}


def look(status: str = "in_sync", name: str = "hugepages") -> Dict[str, Any]:
    """An answer of ``node_state`` about one concern."""
    lists: Dict[str, Any] = {one: [name] if one == status else [] for one in LISTS}
    found = concern(status)
    if status == "unknown":
        found.update(msg="Cannot look.", failure={"code": "cannot_look"})
    return {"changed": False, "concerns": {name: found}, "reboot_noted": {}, **lists}


def facts() -> Dict[str, Any]:
    """An answer of ``gpu_node_info`` about four GPUs."""
    one = {"model": "NVIDIA H100 80GB HBM3", "cuda_capability": "9.0", "memory": {"total_mib": 81559}}
    mig = {"current": False, "instances": []}
    node = {
        "gpus": [{"pci_address": address, "mig": mig, **one} for address in ADDRESSES],
        "topology": {"devices": [{"kind": "gpu", "pci_address": address, "numa_node": 0} for address in ADDRESSES]},
        "health": {"gpus": [{"pci_address": address, "fabric": None} for address in ADDRESSES]},
    }
    return {"changed": False, "node": node}


class Fleet:
    """Hosts that replay answers, and the one cluster that is there. ``runs`` are those so far, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: Dict[str, Run] = {}
        self.requests: Dict[str, List[str]] = {}
        self.cluster = PluginCluster({"dev-1": 4, "dev-2": 4, "else-1": 4})
        self._server = serve(self.cluster)
        self.there = kubeconfig(folder / "there", self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def host(
        self, name: str, answer: Dict[str, Any], info: Optional[Dict[str, Any]] = None, **variables: Any
    ) -> Dict[str, Any]:
        answers = self.folder / f"answers-{name}"
        answers.mkdir()
        for module, content in (("node_state", answer), ("gpu_node_info", facts() if info is None else info)):
            (answers / f"{module}.json").write_text(json.dumps(content), encoding="utf-8")
        # What only says how a cluster is reached declares nothing of it.
        way = {"device_plugin_kubeconfig": self.there, "device_plugin_timeout": 0, "device_plugin_node": name}
        replay = {"ansible_connection": "replay", "replay_answers": str(answers), "drain_backend": "none"}
        return {**replay, **way, **variables}

    def run(self, name: str, playbook: str, hosts: Dict[str, Any], *options: str) -> None:
        """Run a playbook, and note what the cluster was told and how often it was asked."""
        self.cluster.requests.clear()
        self.cluster.lists = 0
        imported = {"ansible.builtin.import_playbook": f"gpufleet.node.{playbook}"}
        self.runs[name] = run(self.folder / f"run-{name}", [imported], {"nodes": hosts}, *options)
        self.requests[name] = self.cluster.changes

    def report(self, name: str) -> Dict[str, Any]:
        """The statuses of a report by node and concern."""
        text = (self.folder / name / "gpufleet-report.json").read_text(encoding="utf-8")
        nodes = json.loads(text)["nodes"]
        return {node["name"]: {concern["name"]: concern["status"] for concern in node["concerns"]} for node in nodes}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two nodes that declare shares and one that does not, from the first audit to the end."""
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    shared: Dict[str, Any] = {"device_plugin_replicas": 3}
    hosts = {name: made.host(name, look(), **shared) for name in ("dev-1", "dev-2")}
    hosts["else-1"] = made.host("else-1", look())
    failing = ("-e", "audit_fail_on_drift=true")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ANSIBLE_CONNECTION_PLUGINS", str(CONNECTIONS))
        made.run("audit", "audit", hosts, *failing, "-e", f"gpufleet_report_dest={made.folder / 'report'}")
        made.run("check", "site", hosts, "--check", "--diff")
        made.run("site", "site", hosts)
        made.run("again", "site", hosts)
        made.run("in sync", "audit", hosts, *failing)
        made.run("narrowed", "site", hosts, "-e", "gpufleet_concerns=hugepages")
        made.run("preview", "remove", hosts, "--check")
        made.run("remove", "remove", hosts)
    yield made
    made.close()


def test_an_audit_shows_the_drift_of_the_cluster_and_changes_nothing(fleet: Fleet) -> None:
    done = fleet.runs["audit"]
    assert (done.status, fleet.requests["audit"]) == (2, [])
    (label,) = [line for line in done.printed.splitlines() if "label nvidia.com/device-plugin.config" in line]
    assert label.split()[:3] == ["dev-[1-2]", "(2)", "kubernetes"]
    assert "gpufleet-timesliced-3-" in label
    assert label.endswith("drifted")
    # What both share is counted once.
    assert "Settings: 3 in sync, 12 drifted." in done.printed
    assert all(f"{node} has drifted: device_plugin" in done.printed for node in ("dev-1", "dev-2"))
    assert "changed=1" not in done.printed
    statuses = fleet.report("report")
    assert statuses["dev-2"] == {"hugepages": "in_sync", "device_plugin": "drifted"}
    assert statuses["else-1"] == {"hugepages": "in_sync"}


def test_check_mode_shows_what_site_would_change_in_the_cluster(fleet: Fleet) -> None:
    done = fleet.runs["check"]
    assert (done.status, fleet.requests["check"]) == (0, [])
    assert "+dev-2 label gpufleet.node/replicas: 3" in done.printed
    assert "change   dev-1: 7 changes in Kubernetes" in done.printed
    assert "change   dev-2: 5 changes in Kubernetes" in done.printed


def test_site_tells_the_cluster_once_for_the_fleet_and_again_nothing(fleet: Fleet) -> None:
    assert fleet.runs["site"].status == fleet.runs["again"].status == 0
    assert fleet.requests["site"] == [f"POST {FILES}", "PATCH /api/v1/nodes/dev-1", "PATCH /api/v1/nodes/dev-2"]
    assert fleet.requests["again"] == []
    assert fleet.runs["again"].printed.count("TASK [gpufleet.node.device_plugin : Converge each cluster]") == 1
    assert "changed=1" not in fleet.runs["again"].printed


def test_an_audit_of_what_is_in_sync_passes(fleet: Fleet) -> None:
    assert fleet.runs["in sync"].status == 0
    assert "3 of 3 nodes are in sync" in fleet.runs["in sync"].printed


def test_a_run_that_is_limited_to_concerns_leaves_the_cluster_alone(fleet: Fleet) -> None:
    assert fleet.runs["narrowed"].status == 0
    assert "TASK [gpufleet.node.device_plugin" not in fleet.runs["narrowed"].printed


def test_remove_restores_the_cluster_and_says_so_before(fleet: Fleet) -> None:
    assert fleet.requests["preview"] == []
    assert "changes in Kubernetes" in fleet.runs["preview"].printed
    assert fleet.runs["remove"].status == 0
    assert fleet.requests["remove"][:2] == ["PATCH /api/v1/nodes/dev-1", "PATCH /api/v1/nodes/dev-2"]
    fresh = PluginCluster(fleet.cluster.gpus)
    assert fleet.cluster.state()[0] == fresh.state()[0]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One node whose cluster is there, and others with which something is wrong."""
    made = Fleet(tmp_path_factory.mktemp("broken"))
    shared: Dict[str, Any] = {"device_plugin_replicas": 3}
    away: Dict[str, Any] = {**shared, "device_plugin_kubeconfig": kubeconfig(made.folder / "away", NOBODYS_PORT)}
    hosts = {
        # The first one stands for all, and its cluster is not there.
        "a-1": made.host("a-1", look(), **away),
        "a-2": made.host("a-2", look(), **away),
        "dev-1": made.host("dev-1", look(), **shared),
        # Nobody has a machine of this name, RFC 2606.
        "far-1": made.host("far-1", look(), **shared, device_plugin_host="gone.invalid"),
        "none-1": made.host("none-1", look(), {"msg": "no NVML"}, **shared),
        "mig-1": made.host("mig-1", look("unknown", "mig_layout"), **shared),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ANSIBLE_CONNECTION_PLUGINS", str(CONNECTIONS))
        made.run("site", "site", hosts, "-e", f"gpufleet_report_dest={made.folder / 'report'}")
        made.run("audit", "audit", hosts, "-e", "audit_fail_on_drift=true")
    yield made
    made.close()


def test_a_cluster_that_is_away_fails_its_nodes_alone_and_by_name(broken: Fleet) -> None:
    done = broken.runs["site"]
    assert done.status == 2
    assert "PATCH /api/v1/nodes/dev-1" in broken.requests["site"]
    # One of them says why they failed after it has.
    said = {one.host: one.said for one in done.outcomes if one.play == "Say how it ended" and one.said}
    assert sorted(said) == ["a-1", "a-2", "far-1", "none-1"]
    assert re.findall(r"^(\S+) +: .* failed=1 ", done.printed, flags=re.MULTILINE) == sorted(said)
    cause = "failed in Kubernetes, not on the node: gone.invalid, which device_plugin_host names, is unreachable"
    assert cause in said["far-1"]
    assert "not on the node: Cannot say what it has to offer: no NVML." in said["none-1"]
    # What two nodes have in common is said once.
    (line,) = [
        line for line in done.printed.splitlines() if line.strip().startswith("a-[1-2] (2)") and "Cannot" in line
    ]
    assert "no response from http://127.0.0.1:1" in line


def test_the_nodes_keep_their_result_in_the_report(broken: Fleet) -> None:
    statuses = broken.report("report")
    assert statuses["a-1"] == {"hugepages": "in_sync", "device_plugin": "unknown"}
    assert statuses["dev-1"] == {"hugepages": "in_sync", "device_plugin": "in_sync"}
    assert statuses["mig-1"] == {"mig_layout": "unknown"}


def test_a_node_without_its_mig_layout_is_left_as_it_is(broken: Fleet) -> None:
    said = " ".join(one.said for one in broken.runs["site"].outcomes)
    assert "mig-1: left as it is in Kubernetes, because its MIG layout is not in sync" in said


def test_an_audit_cannot_say_of_a_cluster_that_is_away_that_it_is_in_sync(broken: Fleet) -> None:
    done = broken.runs["audit"]
    assert done.status == 2
    assert "1 of 6 nodes is in sync" in done.printed
