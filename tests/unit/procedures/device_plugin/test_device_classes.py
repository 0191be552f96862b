# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Classes of devices for DRA: what is declared is what the API server has, and those of others stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.cluster import ANNOTATION
from ansible_collections.gpufleet.node.tests.unit.procedures.device_plugin.plugin_machine import Machine, gpus

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
KIND = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
HOPPER = "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"
LARGE = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0"
H100: Dict[str, Any] = {"name": "h100.example.com", "selectors": [HOPPER]}
NODE = {"name": "h100-1", "fact_labels": False, "device_classes": [H100]}
SECOND = {**NODE, "name": "h100-2"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, monkeypatch)
    made.resource_api = "v1"
    for name in ("gpu.nvidia.com", "mig.nvidia.com", "nic.example.com"):
        made.add_class(name, "true")
    return made


def through(result: Dict[str, Any]) -> Dict[str, Any]:
    assert "failed" not in result, result
    return result


def selectors(machine: Machine, name: str = "h100.example.com") -> List[str]:
    return [one["cel"]["expression"] for one in machine.device_classes[name]["spec"]["selectors"]]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_class_is_made_in_the_version_that_the_cluster_has(machine: Machine, version: str) -> None:
    machine.resource_api = version
    result = through(machine.run(NODE, SECOND))
    made = machine.device_classes["h100.example.com"]
    assert (made["apiVersion"], made["kind"]) == (f"resource.k8s.io/{version}", "DeviceClass")
    assert selectors(machine) == [KIND, HOPPER]
    assert result["dra"]["declared"] == ["h100.example.com"]
    assert "h100.example.com" not in result["dra"]["classes"]
    assert machine.changes[0] == f"POST /apis/resource.k8s.io/{version}/deviceclasses"
    machine.requests.clear()
    assert (through(machine.run(NODE, SECOND))["changed"], machine.requests) == (False, [])


def test_check_mode_predicts_it_and_sends_nothing(machine: Machine) -> None:
    result = through(machine.run(NODE, check_mode=True))
    assert (result["changed"], machine.requests) == (True, [])
    assert f"DeviceClass h100.example.com selectors: {KIND} && {HOPPER}" in result["diff"]["after"]


def test_another_selector_is_written_and_what_else_the_class_has_stays(machine: Machine) -> None:
    through(machine.run(NODE))
    machine.device_classes["h100.example.com"]["spec"]["extendedResourceName"] = "example.com/h100"
    through(machine.run({**NODE, "device_classes": [{**H100, "type": "mig", "selectors": [HOPPER, f" {LARGE}\n"]}]}))
    assert selectors(machine) == [KIND.replace("'gpu'", "'mig'"), HOPPER, LARGE]
    assert machine.device_classes["h100.example.com"]["spec"]["extendedResourceName"] == "example.com/h100"
    assert f"PATCH {CLASSES}/h100.example.com" in machine.changes


def test_a_class_goes_with_the_last_node_that_declares_it(machine: Machine) -> None:
    before, classes = machine.state(), dict(machine.device_classes)
    through(machine.run(NODE, SECOND))
    note = json.loads(machine.nodes["h100-1"]["metadata"]["annotations"][ANNOTATION])
    assert note == {"classes": ["h100.example.com"]}
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert "h100.example.com" in machine.device_classes
    through(machine.run({**SECOND, "device_classes": []}))
    assert (machine.state(), machine.device_classes) == (before, classes)


def test_a_class_of_others_that_is_the_same_is_theirs(machine: Machine) -> None:
    machine.add_class("h100.example.com", KIND, HOPPER)
    through(machine.run(NODE))
    assert machine.changes == ["PATCH /api/v1/nodes/h100-1"]
    through(machine.run({"name": "h100-1"}, state="absent"))
    assert "h100.example.com" in machine.device_classes


def test_what_somebody_changes_of_ours_is_put_right(machine: Machine) -> None:
    through(machine.run(NODE))
    machine.device_classes["h100.example.com"]["spec"]["selectors"] = [{"cel": {"expression": "true"}}]
    assert through(machine.run(NODE))["changed"]
    assert selectors(machine) == [KIND, HOPPER]


def test_what_the_compiler_of_the_api_server_refuses_is_told_before_anything_changes(machine: Machine) -> None:
    wrong = {**NODE, "labels": {"team": "vision"}, "device_classes": [{**H100, "selectors": ["has(device"]}]}
    result = machine.run({**wrong, "replicas": 2, "gpus": gpus(4)})
    assert result["msg"] == (
        "Cannot change DeviceClass h100.example.com in Kubernetes: DeviceClass.resource.k8s.io "
        '"h100.example.com" is invalid: spec.selectors[1].cel.expression: Invalid value: "has(device": compilation '
        "failed: Syntax error. Correct what is declared of it."
    )
    assert (result["changed"], result["failure"]["code"], machine.requests) == (False, "refused", [])
    assert machine.run(wrong, check_mode=True)["msg"] == result["msg"]


def test_a_class_of_others_is_refused_by_name(machine: Machine) -> None:
    machine.add_class("h100.example.com", "true", labels={"app.kubernetes.io/managed-by": "Helm"})
    result = machine.run(NODE)
    assert result["msg"] == (
        "Cannot create device classes for h100-1: the DeviceClass h100.example.com is there already, and Helm has made "
        "it (found true). Choose another name, or remove it."
    )
    assert machine.requests == []


@pytest.mark.parametrize("version", [None, "v1alpha3"])
def test_a_cluster_without_that_api_cannot_have_classes(machine: Machine, version: Any) -> None:
    machine.resource_api = version
    result = machine.run(NODE)
    assert result["msg"] == (
        "Cannot create device classes for h100-1: the API server does not serve resource.k8s.io in any of v1, v1beta2, "
        "v1beta1. Use Kubernetes 1.34 or newer, or enable the API group resource.k8s.io in 1.32 or 1.33."
    )
    assert machine.requests == []


@pytest.mark.parametrize(
    ("declared", "cause"),
    [
        ({"name": "gpu.nvidia.com"}, "the class gpu.nvidia.com comes with the DRA driver: choose another name"),
        ({"name": "compute-domain-daemon.nvidia.com"}, "the class compute-domain-daemon.nvidia.com comes with the DRA"),
        ({"name": "H100"}, "H100 is not the name of a device class: it must be a domain, such as h100.example.com"),
        ({"name": "a/b"}, "a/b is not the name of a device class"),
        ({"name": ""}, " is not the name of a device class"),
        ({"name": "a" * 254}, f"{'a' * 254} is not the name of a device class"),
        ({"selectors": []}, "the class h100.example.com has no selectors, and would be the same as that of the driver"),
        ({"selectors": [" "]}, "a selector of the class h100.example.com is empty"),
        ({"selectors": ["true"] * 32}, "the class h100.example.com has more than 31 selectors"),
        ({"selectors": ["x" * 10241]}, "a selector of the class h100.example.com is longer than 10240 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_cluster_is_asked(
    machine: Machine, declared: Dict[str, Any], cause: str
) -> None:
    result = machine.run({**NODE, "device_classes": [{**H100, **declared}]})
    assert result["msg"].startswith(f"Cannot create device classes for h100-1: {cause}"), result["msg"]
    assert (machine.looks, machine.requests) == (0, [])


def test_classes_of_one_name_must_be_alike(machine: Machine) -> None:
    result = machine.run(NODE, {**SECOND, "device_classes": [{**H100, "selectors": [LARGE]}]})
    assert result["msg"].startswith(
        "Cannot create device classes for h100-1, h100-2: the class h100.example.com is not declared alike on "
        "all of them"
    )
    result = machine.run({**NODE, "device_classes": [H100, H100]})
    assert "the class h100.example.com is named twice" in result["msg"]


@pytest.mark.parametrize(
    ("forbidden", "right"),
    [
        (f"GET {CLASSES}", "list deviceclasses and resourceslices of resource.k8s.io"),
        (f"POST {CLASSES}", "create deviceclasses"),
    ],
)
def test_a_right_that_is_missing_is_named_before_anything_changes(machine: Machine, forbidden: str, right: str) -> None:
    machine.forbidden = forbidden
    result = machine.run(NODE)
    assert result["failure"]["hint"] == f"its user needs permission to {right}"
    assert machine.requests == []


def test_who_declares_no_classes_needs_no_right_for_them(machine: Machine) -> None:
    through(machine.run(NODE))
    machine.forbidden = f"GET {CLASSES}"
    assert through(machine.run({"name": "h100-2", "labels": {"a": "b"}}))["changed"]
    assert selectors(machine) == [KIND, HOPPER]


def test_who_may_not_see_slices_can_still_declare_classes(machine: Machine) -> None:
    machine.forbidden = "GET /apis/resource.k8s.io/v1/resourceslices"
    result = through(machine.run(NODE))
    assert result["dra"]["declared"] == ["h100.example.com"]
    assert "resourceslices is forbidden" in result["dra"]["unknown"]


def test_what_a_webhook_takes_away_is_a_failure(machine: Machine) -> None:
    asked = machine.answer

    def answer(method: str, path: str, query: Any, body: Any) -> Any:
        if method == "POST" and path == CLASSES:
            body = {**body, "spec": {"selectors": body["spec"]["selectors"][:1]}}
        return asked(method, path, query, body)

    machine.answer = answer  # type: ignore[method-assign]
    result = machine.run(NODE)
    assert (result["changed"], result["failure"]["code"]) == (True, "not_in_effect")
    assert result["msg"].startswith("Cannot keep selectors of DeviceClass h100.example.com: the API server accepted it")
