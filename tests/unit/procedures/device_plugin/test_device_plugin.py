# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``device_plugin`` on the recorded API server: what is offered, whose labels are whose, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.filter.plugin_gpus import plugin_gpus
from ansible_collections.gpufleet.node.plugins.filter.plugin_messages import plugin_messages
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.cluster import (
    ANNOTATION,
    parse_config_map,
    parse_node,
    parse_plugin,
    parse_policy,
    with_taint,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.configuration import (
    mig_devices,
    offered,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.dra import (
    parse_classes,
    parse_group,
    parse_slices,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.flags import FLAGS
from ansible_collections.gpufleet.node.tests.kubernetes.plugin_cluster import CONFIG_LABEL, daemonset
from ansible_collections.gpufleet.node.tests.unit.procedures.device_plugin.plugin_machine import (
    Machine,
    divided,
    gpu,
    gpus,
    instance,
)

SHARED = {"name": "h100-1", "replicas": 3, "gpus": gpus(4)}
PLACE = "nvidia-device-plugin/gpufleet-device-plugin"
FILES = "/api/v1/namespaces/nvidia-device-plugin/configmaps"
TAINT = {"key": "nvidia.com/gpu", "value": "present"}
VERSION = '{"version": "v1"}'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch, operator=True)


def through(result: Dict[str, Any]) -> Dict[str, Any]:
    assert "failed" not in result, result
    return result


# --- sharing ----------------------------------------------------------------------------------------------------------


def test_nodes_get_a_file_by_their_label_and_the_kubelets_offer_the_shares(machine: Machine) -> None:
    machine.slow = 2
    result = through(machine.run(SHARED, {**SHARED, "name": "h100-2"}))
    assert (result["changed"], result["pending"], result["unverified"]) == (True, [], [])
    assert machine.allocatable("h100-1") == {"nvidia.com/gpu": "12"}
    assert machine.allocatable("h100-3") == {"nvidia.com/gpu": "8"}
    (key,) = set(machine.data) - {"default"}
    assert result["configs"] == {key: 2}
    assert machine.labels("h100-1")[CONFIG_LABEL] == machine.labels("h100-2")[CONFIG_LABEL] == key
    assert CONFIG_LABEL not in machine.labels("h100-3")
    assert json.loads(machine.data[key]) == {
        "version": "v1",
        "sharing": {
            "timeSlicing": {
                "renameByDefault": False,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 3}],
            }
        },
    }
    assert machine.changes == [f"POST {FILES}", "PATCH /api/v1/nodes/h100-1", "PATCH /api/v1/nodes/h100-2"]
    assert f"h100-1 label {CONFIG_LABEL}: {key}" in result["diff"]["after"]
    assert machine.host.journal_lines[0] == f"device_plugin: {PLACE} ConfigMap: absent -> present (effective)"


def test_a_second_run_asks_and_changes_nothing(machine: Machine) -> None:
    nodes = [{**SHARED, "taints": [TAINT], "labels": {"team": "vision"}}, {"name": "h100-3", "labels": {"a": "b"}}]
    through(machine.run(*nodes))
    before, looks = machine.state(), machine.lists
    machine.requests.clear()
    result = through(machine.run(*nodes))
    assert (result["changed"], result["changes"]) == (False, [])
    assert (machine.requests, machine.state(), machine.lists) == ([], before, looks + 1)


def test_another_number_is_another_key_and_the_old_one_goes_with_its_last_node(machine: Machine) -> None:
    through(machine.run(SHARED, {**SHARED, "name": "h100-2"}))
    (old,) = set(machine.data) - {"default"}
    through(machine.run({**SHARED, "replicas": 5}))
    assert machine.allocatable("h100-1") == {"nvidia.com/gpu": "20"}
    # h100-2 was not in the run and has it still.
    assert old in machine.data
    through(machine.run({**SHARED, "name": "h100-2", "replicas": 5}))
    assert set(machine.data) == {"default", machine.labels("h100-2")[CONFIG_LABEL]}
    assert old not in machine.data
    assert machine.changes[-1] == f"PATCH {FILES}/gpufleet-device-plugin"


def test_another_flag_is_another_key_too(machine: Machine) -> None:
    (first,) = through(machine.run(SHARED))["configs"]
    (second,) = through(machine.run({**SHARED, "flags": {"gdsEnabled": True}}))["configs"]
    assert first != second
    assert set(machine.data) == {"default", second}


def test_what_is_offered_beside_it_is_not_as_declared(machine: Machine) -> None:
    through(machine.run(SHARED))
    machine.nodes["h100-1"]["status"]["allocatable"]["nvidia.com/gpu.shared"] = "4"
    (pending,) = through(machine.run(SHARED, timeout=0))["pending"]
    assert pending["allocatable"] == {"nvidia.com/gpu": 12, "nvidia.com/gpu.shared": 4}


def test_mps_and_another_name_for_what_is_shared(machine: Machine) -> None:
    result = through(machine.run({**SHARED, "strategy": "mps", "rename": True}))
    assert result["pending"] == []
    # The old name stays with nothing until the kubelet is restarted.
    assert machine.allocatable("h100-1") == {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "12"}
    (key,) = result["configs"]
    assert key.startswith("gpufleet-mps-3-")
    assert list(json.loads(machine.data[key])["sharing"]) == ["mps"]


def test_what_a_kubelet_does_not_offer_in_time_is_pending_and_then_found_again(machine: Machine) -> None:
    machine.slow = 1000
    result = through(machine.run(SHARED, timeout=60))
    (pending,) = result["pending"]
    assert pending["name"] == "h100-1"
    assert (pending["expected"], pending["allocatable"]) == ({"nvidia.com/gpu": 12}, {"nvidia.com/gpu": 4})
    assert 60 <= machine.now < 80
    again = through(machine.run(SHARED, timeout=0))
    assert (again["changed"], again["pending"]) == (False, [pending])


def test_gpus_that_are_not_known_are_told_as_unverified(machine: Machine) -> None:
    result = through(machine.run({"name": "h100-1", "replicas": 2}))
    assert (result["unverified"], result["pending"]) == (["h100-1"], [])
    assert not [key for key in machine.labels("h100-1") if key.startswith("gpufleet.node/")]


def test_flags_of_the_plugin_are_written_as_its_file_has_them(machine: Machine) -> None:
    flags = {"plugin": {"passDeviceSpecs": True, "deviceListStrategy": ["envvar"]}}
    result = through(machine.run({"name": "h100-1", "flags": flags, "mig_strategy": "mixed", "gpus": gpus(4)}))
    (key,) = result["configs"]
    assert key.startswith("gpufleet-whole-")
    assert json.loads(machine.data[key]) == {"version": "v1", "flags": {**flags, "migStrategy": "mixed"}}
    assert result["pending"] == []


def test_mig_devices_are_offered_by_their_profiles() -> None:
    mixed = [
        gpu(0),
        divided(1, instance("1g.10gb", 9856), instance("1g.10gb+me", 9856), instance("3g.40gb", 40448, 1, 2)),
        divided(2),
    ]
    assert mig_devices(mixed[1]) == ["1g.10gb", "1g.10gb+me", "1c.3g.40gb", "2c.3g.40gb"]
    assert offered(mixed, "mixed") == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-1g.10gb": 1,
        "nvidia.com/mig-1g.10gb.me": 1,
        "nvidia.com/mig-1c.3g.40gb": 1,
        "nvidia.com/mig-2c.3g.40gb": 1,
    }
    assert offered(mixed, "none") == {"nvidia.com/gpu": 3}
    assert offered([divided(0, *[instance("1g.10gb", 9856)] * 7)], "single") == {"nvidia.com/gpu": 7}


def test_replicas_of_mig_devices_are_those_of_every_profile_or_of_single_ones(machine: Machine) -> None:
    whole, parts = gpu(0), divided(1, instance("1g.10gb", 9856), instance("3g.40gb", 40448))
    node = {"name": "h100-1", "mig_strategy": "mixed", "gpus": [whole, parts]}
    result = through(machine.run({**node, "replicas": 2}, timeout=0))
    (key,) = result["configs"]
    names = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"]
    assert json.loads(machine.data[key])["sharing"]["timeSlicing"]["resources"] == [
        {"name": name, "replicas": 2} for name in names
    ]
    assert result["pending"][0]["expected"] == dict.fromkeys(names, 2)
    result = through(machine.run({**node, "resources": [{"name": "mig-3g.40gb", "replicas": 4}]}, timeout=0))
    assert result["pending"][0]["expected"] == {names[0]: 1, names[1]: 1, names[2]: 4}


# --- labels and taints ------------------------------------------------------------------------------------------------


def test_the_labels_say_what_the_facts_say(machine: Machine) -> None:
    parts = divided(0, instance("1g.10gb", 9856), instance("1g.10gb", 9856))
    domain = "8d6b3f0e-51d4-4a0e-9c55-0b6c1f2d9e77.7"
    known = [{**parts, "nvlink_domain": domain}, {**gpu(3), "nvlink_domain": domain}]
    through(machine.run({"name": "h100-1", "gpus": known}))
    found = {key: value for key, value in machine.labels("h100-1").items() if key.startswith("gpufleet.node/")}
    assert found == {
        "gpufleet.node/mig": "mixed",
        "gpufleet.node/mig-1g.10gb": "2",
        "gpufleet.node/sharing": "none",
        "gpufleet.node/replicas": "1",
        "gpufleet.node/gpu-numa-nodes": "2",
        "gpufleet.node/nvlink-domain": domain,
    }
    # Nothing is said to the plugin, so it needs none.
    assert machine.config_maps == {}
    through(machine.run({"name": "h100-1", "gpus": gpus(2)}))
    assert "gpufleet.node/mig-1g.10gb" not in machine.labels("h100-1")


def test_taints_and_labels_of_others_stay_and_absent_restores_what_was_there(machine: Machine) -> None:
    machine.labels("h100-1").update({CONFIG_LABEL: "theirs", "team": "nlp", "same": "x"})
    others = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-22T04:00:00Z"},
        {"key": "dedicated", "value": "nlp", "effect": "NoSchedule"},
    ]
    machine.nodes["h100-1"]["spec"]["taints"] = list(others)
    before = machine.state()
    taints = [TAINT, {"key": "dedicated", "value": "vision"}]
    result = through(machine.run({**SHARED, "labels": {"team": "vision", "same": "x"}, "taints": taints}))
    assert machine.taints("h100-1") == [
        others[0],
        {**others[1], "value": "vision"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    ]
    assert "h100-1 taint dedicated:NoSchedule: nlp" in result["diff"]["before"].splitlines()
    # Somebody takes a label over, and gives the node another.
    machine.labels("h100-1").update({"team": "audio", "rack": "7"})
    machine.daemonsets = [daemonset(None)]
    result = through(machine.run({"name": "h100-1"}, state="absent"))
    expected = before[0]
    expected["h100-1"]["metadata"]["labels"].update({"team": "audio", "rack": "7"})
    assert machine.state() == (expected, {}, None)
    assert result["left"] == ""
    machine.requests.clear()
    assert through(machine.run({"name": "h100-1"}, state="absent"))["changed"] is False
    assert machine.requests == []


def test_a_label_that_is_there_already_is_not_ours(machine: Machine) -> None:
    machine.labels("h100-1")["team"] = "vision"
    machine.nodes["h100-1"]["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
    result = through(machine.run({"name": "h100-1", "labels": {"team": "vision"}, "taints": [{"key": "gpu"}]}))
    assert (result["changed"], machine.requests) == (False, [])


def test_what_is_no_longer_declared_goes_without_the_rest(machine: Machine) -> None:
    through(machine.run({**SHARED, "labels": {"team": "vision", "tier": "a"}, "taints": [TAINT]}))
    through(machine.run({**SHARED, "labels": {"team": "vision"}}))
    assert "tier" not in machine.labels("h100-1")
    assert machine.labels("h100-1")["team"] == "vision"
    assert machine.taints("h100-1") == []
    assert json.loads(machine.nodes["h100-1"]["metadata"]["annotations"][ANNOTATION]).keys() == {"labels"}


def test_a_note_of_what_others_have_taken_away_goes_too(machine: Machine) -> None:
    through(machine.run({"name": "h100-1", "labels": {"team": "vision"}}))
    del machine.labels("h100-1")["team"]
    machine.touch("h100-1")
    result = through(machine.run({"name": "h100-1"}, state="absent"))
    assert result["changed"]
    assert ANNOTATION not in machine.nodes["h100-1"]["metadata"]["annotations"]
    assert through(machine.run({"name": "h100-1"}, state="absent"))["changed"] is False


def test_a_node_that_changes_at_that_moment_is_looked_at_again(machine: Machine) -> None:
    def meanwhile() -> None:
        machine.nodes["h100-1"]["spec"]["taints"] = [{"key": "a", "effect": "NoExecute"}]
        machine.touch("h100-1")

    machine.meanwhile = meanwhile
    through(machine.run({"name": "h100-1", "taints": [TAINT]}))
    assert [one["key"] for one in machine.taints("h100-1")] == ["a", "nvidia.com/gpu"]


def test_a_node_that_never_stops_changing_fails(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> None:
        machine.touch("h100-1")
        machine.meanwhile = meanwhile

    machine.meanwhile = meanwhile
    result = machine.run({"name": "h100-1", "labels": {"a": "b"}})
    assert result["msg"].startswith("Cannot change h100-1 in Kubernetes: Operation cannot be fulfilled on nodes")


def test_what_a_webhook_takes_away_is_a_failure(machine: Machine) -> None:
    machine.webhook = lambda node: node["metadata"]["labels"].pop("team", None)
    result = machine.run({"name": "h100-1", "labels": {"team": "vision"}})
    assert (result["failed"], result["changed"], result["failure"]["code"]) == (True, True, "not_in_effect")
    assert result["msg"].startswith("Cannot keep label team of h100-1: the API server accepted it")


# --- killed ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The run ends here, as by a signal."""


def killed_after(machine: Machine, number: int, *nodes: Dict[str, Any], **given: Any) -> bool:
    """Whether the run ended before it was through: after so many requests that changed something."""
    machine.requests.clear()
    asked = machine.answer

    def answer(method: str, path: str, query: Any, body: Any) -> Any:
        if len(machine.requests) == number and method != "GET":
            raise Killed
        return asked(method, path, query, body)

    machine.answer = answer  # type: ignore[method-assign]
    try:
        through(machine.run(*nodes, **given))
    except Killed:
        return True
    finally:
        machine.answer = asked  # type: ignore[method-assign]
    return False


@pytest.mark.parametrize("number", range(5))
def test_a_run_may_be_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: Machine, number: int
) -> None:
    nodes = [{**SHARED, "taints": [TAINT]}, {**SHARED, "name": "h100-2"}]
    whole = Machine(tmp_path / "whole", monkeypatch, operator=True)
    before = whole.state()
    through(whole.run(*nodes))
    # ConfigMap, ClusterPolicy, and two nodes.
    assert killed_after(operator, number, *nodes) is (number < 4)
    through(operator.run(*nodes))
    assert operator.state() == whole.state()
    # The nodes, then the ClusterPolicy, then the ConfigMap.
    assert killed_after(operator, number, *nodes, state="absent") is (number < 4)
    through(operator.run(*nodes, state="absent"))
    restored = operator.state()
    assert restored[2]["spec"]["devicePlugin"].pop("config") == {}
    assert restored == before


# --- absent -----------------------------------------------------------------------------------------------------------


def test_files_stay_while_another_node_uses_them_and_go_with_the_last(machine: Machine) -> None:
    through(machine.run(SHARED, {**SHARED, "name": "h100-2"}))
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert len(machine.data) == 2
    # The plugin would not start without the ConfigMap that it reads.
    result = through(machine.run({"name": "h100-2"}, {"name": "gone"}, state="absent"))
    assert set(machine.data) == {"default"}
    assert result["left"] == f"the ConfigMap {PLACE} is read by nvdp-nvidia-device-plugin"
    machine.daemonsets = [daemonset(None)]
    through(machine.run({"name": "h100-2"}, state="absent"))
    assert machine.config_maps == {}


def test_a_config_map_with_a_key_of_others_is_theirs_now(machine: Machine) -> None:
    through(machine.run(SHARED))
    machine.data["a100"] = VERSION
    machine.daemonsets = [daemonset(None)]
    result = through(machine.run({"name": "h100-1"}, state="absent"))
    assert set(machine.data) == {"default", "a100"}
    assert result["left"] == f"the ConfigMap {PLACE} has keys of others: a100"


def test_in_a_config_map_of_somebody_else_only_our_keys_come_and_go(machine: Machine) -> None:
    theirs = {
        "metadata": {"name": "theirs", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "data": {"default": VERSION, "a100": VERSION},
    }
    machine.config_maps["theirs"] = json.loads(json.dumps(theirs))
    machine.daemonsets = [daemonset("theirs")]
    result = through(machine.run(SHARED, config_map="theirs", timeout=0))
    assert result["owner"] == "Helm"
    assert len(machine.config_maps["theirs"]["data"]) == 3
    through(machine.run({"name": "h100-1"}, config_map="theirs", state="absent"))
    assert machine.state()[1] == {"theirs": theirs}


# --- the GPU Operator -------------------------------------------------------------------------------------------------


def test_the_cluster_policy_is_told_the_config_map_and_absent_takes_it_back(operator: Machine) -> None:
    before = operator.state()
    result = through(operator.run(SHARED))
    assert operator.policy is not None
    assert operator.policy["spec"]["devicePlugin"]["config"] == {"name": "gpufleet-device-plugin", "default": "default"}
    assert result["pending"] == []
    assert operator.allocatable("h100-3") == {"nvidia.com/gpu": "8"}
    operator.requests.clear()
    assert through(operator.run(SHARED))["changed"] is False
    through(operator.run({"name": "h100-1"}, state="absent"))
    nodes, files, policy = operator.state()
    assert (nodes, files) == (before[0], {})
    assert policy["spec"]["devicePlugin"].pop("config") == {}
    assert policy == before[2]


def test_a_cluster_policy_that_names_another_config_map_is_not_touched(operator: Machine) -> None:
    assert operator.policy is not None
    operator.policy["spec"]["devicePlugin"]["config"] = {"name": "time-slicing-config", "default": "any"}
    result = operator.run(SHARED)
    assert result["msg"] == (
        "Cannot configure the device plugin for h100-1: nvidia-device-plugin-daemonset reads the ConfigMap "
        "time-slicing-config, and not gpufleet-device-plugin. Set config_map to time-slicing-config."
    )
    assert operator.requests == []


def test_what_somebody_has_named_there_since_stays(operator: Machine) -> None:
    through(operator.run(SHARED))
    assert operator.policy is not None
    operator.policy["spec"]["devicePlugin"]["config"]["name"] = "theirs"
    through(operator.run({"name": "h100-1"}, state="absent"))
    assert operator.policy["spec"]["devicePlugin"]["config"]["name"] == "theirs"
    assert ANNOTATION not in operator.policy["metadata"]["annotations"]


# --- what this cluster cannot have ------------------------------------------------------------------------------------


def no_plugin(machine: Machine) -> None:
    machine.daemonsets = machine.daemonsets[:1]


def no_config(machine: Machine) -> None:
    machine.daemonsets = [daemonset(None)]


def environment(machine: Machine) -> None:
    container = machine.daemonsets[1]["spec"]["template"]["spec"]["containers"][-1]  # type: ignore[index]
    container["env"].append({"name": "MIG_STRATEGY", "value": "single"})


def single_key(machine: Machine) -> None:
    machine.config_maps["gpufleet-device-plugin"] = {"metadata": {"name": "x"}, "data": {"a100": VERSION}}


def damaged(machine: Machine) -> None:
    machine.nodes["h100-2"]["metadata"]["annotations"][ANNOTATION] = "[1]"


@pytest.mark.parametrize(
    "note",
    [
        "[" * 100_000,
        "[]",
        '{"labels": 7}',
        '{"labels": {"a": "bc"}}',
        '{"taints": {"a": [7, "b"]}}',
        '{"rdma": "hca_a"}',
        '{"rdma": {"hca_a": 1}}',
    ],
)
def test_a_damaged_annotation_is_named_whatever_is_wrong_with_it(machine: Machine, note: str) -> None:
    machine.nodes["h100-2"]["metadata"]["annotations"][ANNOTATION] = note
    assert f"its annotation {ANNOTATION} is damaged" in machine.run(SHARED)["msg"]
    assert machine.requests == []


def nothing(machine: Machine) -> None:
    return None


@pytest.mark.parametrize(
    ("prepare", "node", "said"),
    [
        (
            no_plugin,
            SHARED,
            "Cannot configure the device plugin for h100-1: there is no DaemonSet of the NVIDIA device plugin in "
            "the namespace nvidia-device-plugin. Install it, or set namespace to the one where it is, such as "
            "gpu-operator.",
        ),
        (
            no_config,
            SHARED,
            "Cannot configure the device plugin for h100-1: the DaemonSet nvdp-nvidia-device-plugin reads no "
            "ConfigMap. Set config.name=gpufleet-device-plugin in the Helm values of the device plugin, once.",
        ),
        (
            environment,
            {**SHARED, "mig_strategy": "mixed"},
            "Cannot configure the device plugin for h100-1: MIG_STRATEGY in the DaemonSet nvdp-nvidia-device-plugin "
            "overrides migStrategy of the file (found single, wanted mixed). Set it in the Helm values of the device "
            "plugin, or leave it out here.",
        ),
        (
            single_key,
            SHARED,
            "Cannot configure the device plugin for h100-1: nodes without a label use a100, the only key of "
            f"{PLACE}, and would have none beside ours. Name a100 as the default in the values of the device plugin, "
            "or set another config_map.",
        ),
        (
            damaged,
            SHARED,
            "Cannot read what this collection has set on h100-2: its annotation gpufleet.node/device-plugin is damaged "
            "(found [1]). Remove the annotation; what it names then stays as it is.",
        ),
        (
            nothing,
            {**SHARED, "name": "nowhere"},
            "Cannot configure the device plugin for nowhere: Kubernetes has no node of this name. List them with "
            "kubectl get nodes.",
        ),
    ],
)
def test_it_is_refused_before_anything_changes(machine: Machine, prepare: Any, node: Dict[str, Any], said: str) -> None:
    prepare(machine)
    before = machine.state()
    assert machine.run(node)["msg"] == said
    assert (machine.requests, machine.state()) == ([], before)


OLD = gpu(0, cuda_capability="5.2", model="Tesla M40")
SMALL = divided(0, instance("1g.10gb", 9856))


@pytest.mark.parametrize(
    ("node", "cause"),
    [
        ({"replicas": 0}, "replicas is 0, and must be at least 2, or 1 for GPUs that are not shared"),
        ({"replicas": -3}, "replicas is -3, and must be at least 2"),
        (
            {"replicas": 2, "gpus": [OLD]},
            "GPU 0000:18:00.0: time slicing needs Pascal or newer, but its compute capability is 5.2",
        ),
        (
            {"replicas": 4, "memory_mib": 24000, "gpus": gpus(1)},
            "GPU 0000:18:00.0: 4 replicas with 24000 MiB each need 96000 MiB, but it has 81559",
        ),
        (
            {"resources": [{"name": "mig-1g.10gb", "replicas": 2}], "memory_mib": 5000, "gpus": [SMALL]}
            | {"mig_strategy": "mixed"},
            "GPU 0000:18:00.0: 2 replicas with 5000 MiB each need 10000 MiB, but its smallest GPU instance has 9856",
        ),
        ({"memory_mib": -1}, "memory_mib is -1, and must be 0 or more"),
        (
            {"replicas": 49, "strategy": "mps", "gpus": gpus(1)},
            "GPU 0000:18:00.0: MPS has 48 clients at most, and 49 replicas are too many",
        ),
        (
            {"replicas": 17, "strategy": "mps", "gpus": [gpu(cuda_capability="7.0")]},
            "GPU 0000:18:00.0: MPS has 16 clients at most, and 17 replicas are too many",
        ),
        (
            {"replicas": 13108, "gpus": gpus(4)},
            "13108 replicas are too many: the kubelet takes 13107 of each device of this node at most",
        ),
        (
            {"replicas": 2, "strategy": "mps", "mig_strategy": "mixed", "gpus": gpus(1)},
            "the plugin has no MPS with migStrategy mixed",
        ),
        (
            {"replicas": 2, "strategy": "mps", "mig_strategy": "single", "gpus": [SMALL]},
            "the plugin has no MPS on MIG devices, and GPU 0000:18:00.0 has MIG enabled",
        ),
        (
            {"mig_strategy": "single", "gpus": [SMALL, gpu(1)]},
            "migStrategy single takes MIG on all GPUs or on none, and it is on 0000:18:00.0 and not on 0000:19:00.0",
        ),
        (
            {"mig_strategy": "single", "gpus": [divided(0)]},
            "migStrategy single takes no GPU with MIG and without instances, as 0000:18:00.0",
        ),
        (
            {"mig_strategy": "single", "gpus": [divided(0, instance("1g.10gb", 9856), instance("2g.20gb", 19968))]},
            "migStrategy single takes instances of one profile, and there are 1g.10gb, 2g.20gb: use mixed",
        ),
        (
            {"mig_strategy": "mixed", "replicas": 2},
            "with migStrategy mixed and GPUs that are not known, resources must name what is shared",
        ),
        (
            {"resources": [{"name": "gpu", "replicas": 2}, {"name": "nvidia.com/gpu", "replicas": 3}]},
            "the resource nvidia.com/gpu is named twice",
        ),
        (
            {"resources": [{"name": "gpu.shared", "replicas": 2}], "rename": True},
            "the resource nvidia.com/gpu.shared would be renamed twice, to nvidia.com/gpu.shared.shared: leave out",
        ),
        (
            {"resources": [{"name": "gpu", "replicas": 1}]},
            "nvidia.com/gpu has 1 replicas, and the plugin takes no fewer than 2",
        ),
        ({"resources": [{"name": "GPU!", "replicas": 2}]}, "nvidia.com/GPU! is not the name of a resource"),
        (
            {"resources": [{"name": "gpu", "replicas": 2}], "replicas": 2},
            "replicas and resources are the same thing, and only one may be set",
        ),
        (
            {"flags": {"mig_strategy": "mixed"}},
            "flags.mig_strategy is unknown to the plugin, which would ignore it. Did you mean migStrategy?",
        ),
        (
            {"flags": {"migStrategy": "mixed", "migstrategy": "mixed"}},
            "flags.migStrategy and flags.migstrategy are the same flag, because the plugin ignores case",
        ),
        (
            {"flags": {"renameByDefault": True}},
            "flags.renameByDefault is not a flag of the plugin: set rename instead",
        ),
        (
            {"flags": {"passDeviceSpecs": True}},
            "flags.passDeviceSpecs belongs to flags.plugin, and the plugin would not find it here",
        ),
        (
            {"flags": {"gfd": {"sleepInterval": "30"}}},
            'flags.gfd.sleepInterval is "30", and must be a duration such as 60s or 1h30m',
        ),
        (
            {"flags": {"gfd": {"sleepInterval": 60}}},
            "flags.gfd.sleepInterval is 60, and must be a duration such as 60s, because the plugin reads a number as",
        ),
        (
            {"resources": [{"name": "mig-1g..10gb", "replicas": 2}]},
            "nvidia.com/mig-1g..10gb is not the name of a resource",
        ),
        (
            {"flags": {"plugin": {"passDeviceSpec": True}}},
            "flags.plugin.passDeviceSpec is unknown to the plugin, which would ignore it. Did you mean passDevice",
        ),
        ({"flags": {"zzz": 1}}, "flags.zzz is unknown to the plugin, which would ignore it"),
        ({"flags": {"plugin": True}}, "flags.plugin is not a mapping"),
        ({"flags": {"gdsEnabled": "yes"}}, 'flags.gdsEnabled is "yes", and must be true or false'),
        ({"flags": {"mpsRoot": 5}}, "flags.mpsRoot is 5, and must be a string"),
        (
            {"flags": {"plugin": {"deviceListStrategy": ["cdi"]}}},
            'flags.plugin.deviceListStrategy is ["cdi"], and must be a list of envvar, volume-mounts, cdi-annotations',
        ),
        (
            {"flags": {"deviceDiscoveryStrategy": "vfio"}},
            'flags.deviceDiscoveryStrategy is "vfio", and must be one of auto, nvml, tegra',
        ),
        (
            {"flags": {"migStrategy": "mixed"}, "mig_strategy": "single"},
            "mig_strategy and flags.migStrategy are the same thing, and only one may be set",
        ),
        (
            {"labels": {"nvidia.com/mig.config": "all"}},
            "the label nvidia.com/mig.config makes the GPU Operator change",
        ),
        (
            {"labels": {"nvidia.com/gpu.deploy.dcgm": "no"}},
            "the label nvidia.com/gpu.deploy.dcgm makes the GPU Operator change",
        ),
        ({"labels": {CONFIG_LABEL: "x"}}, f"the label {CONFIG_LABEL} is set by this module itself"),
        ({"labels": {"gpufleet.node/mig": "x"}}, "the label gpufleet.node/mig is set by this module itself"),
        ({"labels": {"kubernetes.io/os": "x"}}, "the label kubernetes.io/os belongs to the kubelet"),
        ({"labels": {"a b": "x"}}, "a b is not the name of a label"),
        ({"labels": {"a": "x y"}}, "the label a cannot have the value 'x y': it must be a string of up to 63 letters"),
        ({"labels": {"a": 1}}, "the label a cannot have the value 1: it must be a string"),
        (
            {"taints": [{"key": "gpu", "effect": "NoExecute"}]},
            "the taint gpu has the effect NoExecute: it would evict running pods. Use NoSchedule or PreferNoSchedule",
        ),
        ({"taints": [{"key": "gpu", "effect": "no"}]}, "the taint gpu has the effect no: there is no such effect"),
        ({"taints": [{"key": "g p"}]}, "g p is not the name of a taint"),
        ({"taints": [{"key": "gpu", "value": "a b"}]}, "the taint gpu cannot have the value 'a b'"),
        ({"taints": [{"key": "gpu"}, {"key": "gpu"}]}, "the taint gpu:NoSchedule is declared twice"),
        ({"name": "H100_1"}, "that is not the name of a node"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_cluster_is_asked(
    machine: Machine, node: Dict[str, Any], cause: str
) -> None:
    result = machine.run({"name": "h100-1", **node})
    name = node.get("name", "h100-1")
    assert result["msg"].startswith(f"Cannot configure the device plugin for {name}: {cause}"), result["msg"]
    assert (machine.looks, machine.requests) == (0, [])


def test_a_cause_is_told_once_with_all_nodes_that_have_it(machine: Machine) -> None:
    result = machine.run({"name": "h100-1", "replicas": 0}, {"name": "h100-2", "replicas": 0}, {"name": "h100-2"})
    assert result["msg"] == (
        "Cannot configure the device plugin for h100-1, h100-2: replicas is 0, and must be at least 2, or 1 for "
        "GPUs that are not shared (and 1 more)."
    )


@pytest.mark.parametrize("option", ["namespace", "config_map"])
def test_a_name_that_would_be_another_request_is_refused(machine: Machine, option: str) -> None:
    result = machine.run(SHARED, **{option: "a/b"})
    assert result["msg"] == f"Cannot use {option}: it must be a name in Kubernetes (found a/b)."


# --- what the plugin of this cluster makes of it ----------------------------------------------------------------------


def main_container(machine: Machine) -> Dict[str, Any]:
    found: Dict[str, Any] = machine.daemonsets[1]["spec"]["template"]["spec"]["containers"][-1]
    return found


def set_variables(machine: Machine, **variables: str) -> None:
    main_container(machine)["env"] += [{"name": name, "value": value} for name, value in variables.items()]


def run_release(machine: Machine, release: str) -> None:
    main_container(machine)["image"] = f"registry.example.com/nvidia/k8s-device-plugin:v{release}-ubi9@sha256:00"


def test_flags_are_written_in_the_spelling_of_the_plugin_and_null_is_no_flag(machine: Machine) -> None:
    flags = {"MIGSTRATEGY": "mixed", "gdsEnabled": None, "Plugin": {"devicelistStrategy": "envvar"}, "gfd": None}
    (key,) = through(machine.run({"name": "h100-1", "flags": flags}))["configs"]
    written = {"migStrategy": "mixed", "plugin": {"deviceListStrategy": ["envvar"]}}
    assert json.loads(machine.data[key])["flags"] == written


@pytest.mark.parametrize(
    ("variables", "flags"),
    [
        ({"GDS_ENABLED": "1"}, {"gdsEnabled": True}),
        ({"GDS_ENABLED": ""}, {"gdsEnabled": False}),
        (
            {"DEVICE_LIST_STRATEGY": "volume-mounts, envvar"},
            {"plugin": {"deviceListStrategy": ["envvar", "volume-mounts"]}},
        ),
        ({"NVIDIA_CDI_HOOK_PATH": "/a", "NVIDIA_CTK_PATH": "/b"}, {"plugin": {"nvidiaCTKPath": "/a"}}),
        ({"DRIVER_ROOT_CTR_PATH": "/a", "CONTAINER_DRIVER_ROOT": "/b"}, {"plugin": {"containerDriverRoot": "/a"}}),
    ],
)
def test_a_variable_with_the_same_meaning_is_no_conflict(
    machine: Machine, variables: Dict[str, str], flags: Dict[str, Any]
) -> None:
    set_variables(machine, **variables)
    through(machine.run({"name": "h100-1", "flags": flags}))


@pytest.mark.parametrize(
    ("variables", "flags", "said"),
    [
        ({"GDS_ENABLED": "0"}, {"gdsEnabled": True}, "GDS_ENABLED in the DaemonSet"),
        ({"NVIDIA_DRIVER_ROOT": ""}, {"nvidiaDriverRoot": "/x"}, "NVIDIA_DRIVER_ROOT in the DaemonSet"),
        (
            {"NVIDIA_CTK_PATH": "/a", "NVIDIA_CDI_HOOK_PATH": "/b"},
            {"plugin": {"nvidiaCTKPath": "/a"}},
            "NVIDIA_CDI_HOOK_PATH in the DaemonSet",
        ),
        (
            {"DRIVER_ROOT_CTR_PATH": "/b"},
            {"plugin": {"containerDriverRoot": "/a"}},
            "DRIVER_ROOT_CTR_PATH in the DaemonSet",
        ),
        (
            {"DEVICE_DISCOVERY_STRATEGY": "pci"},
            {"gdsEnabled": True},
            'DEVICE_DISCOVERY_STRATEGY is "pci", and must be one of auto, nvml, tegra. Correct it in the Helm values',
        ),
    ],
)
def test_a_variable_with_another_meaning_beats_the_file(
    machine: Machine, variables: Dict[str, str], flags: Dict[str, Any], said: str
) -> None:
    set_variables(machine, **variables)
    result = machine.run({"name": "h100-1", "flags": flags})
    assert result["msg"].startswith(f"Cannot configure the device plugin for h100-1: {said}"), result["msg"]
    assert machine.requests == []


def test_a_variable_whose_value_is_somewhere_else_may_be_another(machine: Machine) -> None:
    source = {"configMapKeyRef": {"name": "site", "key": "gds"}}
    main_container(machine)["env"].append({"name": "GDS_ENABLED", "valueFrom": source})
    result = machine.run({"name": "h100-1", "flags": {"gdsEnabled": True}})
    assert result["msg"].startswith(
        "Cannot configure the device plugin for h100-1: GDS_ENABLED in the DaemonSet nvdp-nvidia-device-plugin "
        "overrides gdsEnabled of the file (found a value from elsewhere, wanted true)"
    )
    through(machine.run({"name": "h100-1", "flags": {"mofedEnabled": True}}))


def test_a_variable_that_an_old_plugin_does_not_have_counts_for_nothing(machine: Machine) -> None:
    run_release(machine, "0.15.1")
    set_variables(machine, NVIDIA_CDI_HOOK_PATH="/b", NVIDIA_CTK_PATH="/a")
    through(machine.run({"name": "h100-1", "flags": {"plugin": {"nvidiaCTKPath": "/a"}}}))


def test_variables_of_gpu_feature_discovery_beat_its_flags(machine: Machine) -> None:
    labeller = copy.deepcopy(machine.daemonsets[0])
    machine.daemonsets[0] = labeller
    (container,) = labeller["spec"]["template"]["spec"]["containers"]
    container["env"] = [
        {"name": "GFD_SLEEP_INTERVAL", "value": "60s"},
        {"name": "GFD_MIG_STRATEGY", "value": "single"},
    ]
    result = machine.run({"name": "h100-1", "flags": {"gfd": {"sleepInterval": "30s"}}})
    assert "GFD_SLEEP_INTERVAL in the DaemonSet gpu-feature-discovery overrides gfd.sleepInterval" in result["msg"]
    # The plugin itself reads this flag too.
    through(machine.run({"name": "h100-1", "mig_strategy": "none", "flags": {"gfd": {"sleepInterval": "1m"}}}))


def test_mps_needs_a_root(machine: Machine) -> None:
    main_container(machine)["env"] = []
    node = {**SHARED, "strategy": "mps"}
    result = machine.run(node)
    assert result["msg"] == (
        "Cannot configure the device plugin for h100-1: the plugin has no MPS without a root folder: set MPS_ROOT in "
        "the DaemonSet, or flags.mpsRoot. The DaemonSet is nvdp-nvidia-device-plugin, release 0.20."
    )
    through(machine.run({**node, "flags": {"mpsRoot": "/run/nvidia/mps"}}))


COMPUTE = [gpu(0), divided(1, instance("3g.40gb", 40448, 1, 2), instance("1g.10gb+me", 9856))]


@pytest.mark.parametrize("image", ["nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "registry/plugin@sha256:00", ""])
def test_parts_of_a_gpu_instance_end_a_new_plugin(machine: Machine, image: str) -> None:
    main_container(machine)["image"] = image
    result = machine.run({"name": "h100-1", "mig_strategy": "mixed", "gpus": COMPUTE})
    assert result["msg"].startswith(
        "Cannot configure the device plugin for h100-1: the plugin has no resource for 1c.3g.40gb, a part of a GPU "
        "instance, and GPU 0000:19:00.0 has one: with migStrategy mixed it exits, and offers no GPU of this node"
    )
    assert machine.requests == []


def test_an_old_plugin_offers_parts_of_a_gpu_instance_as_the_whole(machine: Machine) -> None:
    run_release(machine, "0.19.3")
    node = {"name": "h100-1", "mig_strategy": "mixed", "gpus": COMPUTE, "replicas": 2}
    (pending,) = through(machine.run(node, timeout=0))["pending"]
    assert pending["expected"] == {
        "nvidia.com/gpu": 2,
        "nvidia.com/mig-1g.10gb": 2,
        "nvidia.com/mig-3g.40gb": 4,
    }


def test_a_plugin_that_is_to_discover_a_tegra_offers_one_gpu(machine: Machine) -> None:
    node = {**SHARED, "flags": {"deviceDiscoveryStrategy": "tegra"}}
    (pending,) = through(machine.run(node, timeout=0))["pending"]
    assert pending["expected"] == {"nvidia.com/gpu": 3}


def test_what_the_plugin_ignores_is_said(machine: Machine) -> None:
    run_release(machine, "0.17.4")
    node = {
        **SHARED,
        "strategy": "mps",
        "replicas": 1,
        "resources": [{"name": "gpu", "replicas": 2}, {"name": "mig-1g.10gb", "replicas": 2}],
        "fail_requests_greater_than_one": False,
        "flags": {"gdrcopyEnabled": True, "gdsEnabled": True},
    }
    result = through(machine.run(node, {**node, "name": "h100-2"}))
    reasons = [
        "flags.gdrcopyEnabled, which only release 0.18 and newer have",
        "fail_requests_greater_than_one false with MPS, which only release 0.20 and newer obey",
        "the replicas of nvidia.com/mig-1g.10gb, because it makes no such resource of the GPUs",
    ]
    assert result["ignored"] == [{"name": name, "what": what} for name in ("h100-1", "h100-2") for what in reasons]
    assert f"h100-[1-2]: the device plugin ignores {reasons[0]}." in plugin_messages([result])
    assert through(machine.run({**SHARED, "name": "h100-3"}))["ignored"] == []


@pytest.mark.parametrize(
    ("release", "flags", "said"),
    [
        (
            "0.18.2",
            {"gfd": {"sleepInterval": "infinite"}},
            "flags.gfd.sleepInterval can be infinite only since release 0.19",
        ),
        ("0.14.5", {"plugin": {"deviceListStrategy": ["envvar", "cdi-cri"]}}, "can be cdi-cri only since release 0.15"),
    ],
)
def test_a_value_that_came_later_ends_an_old_plugin(
    machine: Machine, release: str, flags: Dict[str, Any], said: str
) -> None:
    run_release(machine, release)
    node = {"name": "h100-1", "flags": flags}
    result = machine.run(node, {**node, "name": "h100-2"})
    assert result["msg"].startswith("Cannot configure the device plugin for h100-1, h100-2: flags.")
    assert f"{said} of the plugin. The DaemonSet is nvdp-nvidia-device-plugin, release {release[:4]}" in result["msg"]
    run_release(machine, "0.20.0")
    through(machine.run(node))


# --- the DRA driver ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_what_the_dra_driver_hands_out_is_told(machine: Machine, version: str) -> None:
    machine.resource_api = version
    for name in ("compute-domain-daemon.nvidia.com", "gpu.nvidia.com", "mig.nvidia.com", "other"):
        machine.add_class(name, "true")
    machine.publish("h100-1", "gpu-1", "gpu-0")
    machine.publish("h100-1", "gpu-2")
    machine.publish("h100-2", "channel-0", driver="compute-domain.nvidia.com")
    machine.publish("h100-3", "gpu-0")
    result = through(machine.run(SHARED, {**SHARED, "name": "h100-2"}, check_mode=True))
    assert result["dra"] == {
        "classes": ["gpu.nvidia.com", "mig.nvidia.com"],
        "declared": [],
        "devices": {"h100-1": ["gpu-0", "gpu-1", "gpu-2"]},
        "twice": ["h100-1"],
        "unknown": "",
    }


def test_a_node_of_the_dra_driver_alone_gives_nothing_away_twice(machine: Machine) -> None:
    machine.resource_api = "v1"
    machine.publish("h100-1", "gpu-0")
    machine.nodes["h100-1"]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    result = through(machine.run({"name": "h100-1"}))
    assert (result["dra"]["devices"], result["dra"]["twice"]) == ({"h100-1": ["gpu-0"]}, [])


def test_slices_that_are_being_replaced_do_not_count(machine: Machine) -> None:
    machine.resource_api = "v1"
    machine.publish("h100-1", "gpu-0", generation=1)
    machine.publish("h100-1", "gpu-0-mig-1g10gb-19-0", generation=2)
    assert through(machine.run(SHARED))["dra"]["devices"] == {"h100-1": ["gpu-0-mig-1g10gb-19-0"]}


def test_a_cluster_without_that_api_has_no_dra_driver(machine: Machine) -> None:
    machine.forbidden = "GET /apis/resource.k8s.io/"
    nothing = {"classes": [], "declared": [], "devices": {}, "twice": [], "unknown": ""}
    assert through(machine.run(SHARED))["dra"] == nothing
    # One that has only the alpha of something else.
    machine.resource_api = "v1alpha3"
    assert through(machine.run(SHARED))["dra"] == nothing


@pytest.mark.parametrize("kind", ["deviceclasses", "resourceslices"])
def test_who_may_not_see_the_dra_driver_can_still_share_gpus(machine: Machine, kind: str) -> None:
    machine.resource_api = "v1"
    machine.publish("h100-1", "gpu-0")
    machine.forbidden = f"GET /apis/resource.k8s.io/v1/{kind}"
    result = through(machine.run(SHARED))
    assert (result["changed"], result["pending"], result["dra"]["devices"]) == (True, [], {})
    assert f"{kind} is forbidden" in result["dra"]["unknown"]
    assert "list deviceclasses and resourceslices of resource.k8s.io" in result["dra"]["unknown"]


@pytest.mark.parametrize("parse", [parse_classes, parse_slices])
@pytest.mark.parametrize("item", [{}, {"metadata": None, "spec": None}, [], "x"])
def test_what_is_no_object_of_the_dra_driver_is_not_taken_for_one(parse: Any, item: Any) -> None:
    with pytest.raises(CannotLook, match="it returned something else"):
        parse([item])


@pytest.mark.parametrize("answer", [{}, {"versions": None}, {"versions": [{}]}, []])
def test_what_is_no_group_of_the_api_is_not_taken_for_one(answer: Any) -> None:
    with pytest.raises(CannotLook, match="it returned something else"):
        parse_group(answer)


# --- rights and answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forbidden", "right"),
    [
        ("GET /api/v1/nodes", "get, list and patch nodes"),
        ("GET /apis/apps", "list daemonsets"),
        ("GET /api/v1/namespaces", "get, create, patch and delete configmaps"),
        ("POST", "create configmaps"),
        ("PATCH /api/v1/nodes", "get, list and patch nodes"),
    ],
)
def test_a_right_that_is_missing_is_named(machine: Machine, forbidden: str, right: str) -> None:
    machine.forbidden = forbidden
    result = machine.run(SHARED)
    assert result["failure"]["code"] == "not_permitted"
    assert result["failure"]["hint"] == f"its user needs permission to {right}"
    # What was done before is told, and undone by absent.
    assert result["changed"] is (forbidden == "PATCH /api/v1/nodes")


def test_a_right_that_is_missing_is_found_in_check_mode(machine: Machine) -> None:
    machine.forbidden = "PATCH /api/v1/nodes"
    result = machine.run(SHARED, check_mode=True)
    assert (result["failed"], machine.requests) == (True, [])


@pytest.mark.parametrize("parse", [parse_node, parse_plugin, parse_config_map, parse_policy])
@pytest.mark.parametrize("answer", [{}, {"metadata": None}, []])
def test_an_answer_that_is_something_else_is_not_taken_for_one(parse: Any, answer: Any) -> None:
    with pytest.raises(Exception, match="it returned something else"):
        parse(answer)


def test_a_taint_keeps_what_else_it_has() -> None:
    found = ({"key": "a", "value": "1", "effect": "NoSchedule", "timeAdded": "t"},)
    assert with_taint(found, "a:NoSchedule", "2") == [{**found[0], "value": "2"}]
    assert with_taint(found, "a:NoSchedule", None) == []
    assert with_taint(found, "b:NoSchedule", "") == [*found, {"key": "b", "effect": "NoSchedule"}]


def test_the_flags_are_those_of_the_plugin() -> None:
    """api/config/v1/flags.go of release 0.20."""
    assert len(FLAGS) == 12
    assert len(FLAGS["plugin"]) == 7
    assert len(FLAGS["gfd"]) == 5


# --- facts ------------------------------------------------------------------------------------------------------------


def test_the_facts_of_a_node_are_told_in_short() -> None:
    cluster = "8d6b3f0e-51d4-4a0e-9c55-0b6c1f2d9e77"
    fact = {**gpu(0), "name": "x", "uuid": "GPU-1", "memory": {"total_mib": 81559, "used_mib": 4}}
    fact["mig"] = {"current": True, "pending": True, "instances": [{**instance("1g.10gb", 9856), "start": 1}]}
    node: Dict[str, List[Dict[str, Any]] | Dict[str, Any]] = {
        "gpus": [fact, {"pci_address": "0000:19:00.0", "mig": None}],
        "topology": {"devices": [{"pci_address": fact["pci_address"], "numa_node": 1}]},
        "health": {"gpus": [{"pci_address": fact["pci_address"], "fabric": {"cluster_uuid": cluster, "clique": 7}}]},
    }
    first, second = plugin_gpus(node)
    assert first == {
        **gpu(0),
        "mig": {"current": True, "instances": [instance("1g.10gb", 9856)]},
        "numa_node": 1,
        "nvlink_domain": f"{cluster}.7",
    }
    assert (second["model"], second["mig"], second["nvlink_domain"]) == (None, None, None)
    alone = {"gpus": [fact], "health": {"gpus": [{"pci_address": fact["pci_address"], "fabric": None}]}}
    assert plugin_gpus(alone)[0]["nvlink_domain"] is None
