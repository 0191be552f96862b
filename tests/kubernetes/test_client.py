# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules in this process, with the client of Kubernetes: what goes over the wire, and how it finds its way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpufleet.node.plugins.modules import kubernetes_drained_info, kubernetes_node
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import Cluster, Server, serve
from ansible_collections.gpufleet.node.tests.kubernetes.controller import NOBODYS_PORT, kubeconfig

NODE = "h100-007"
MARK = "gpufleet.node/drained-by"


class Bed:
    """A cluster of one node, and the modules, which find it by a kubeconfig."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = Cluster(NODE)
        self.server: Server = serve(self.cluster)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.way = kubeconfig(folder / "config", self.server.server_address[1])
        self._capsys = capsys

    def run(self, module: Any = kubernetes_node, **given: Any) -> Dict[str, Any]:
        defaults = {"name": NODE, "state": "drained", "timeout": 0} if module is kubernetes_node else {}
        with patch_module_args({"kubeconfig": self.way, **defaults, **given}), pytest.raises(SystemExit):
            module.main()
        result: Dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return result


@pytest.fixture
def bed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = Bed(tmp_path, capsys)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_patch_is_a_merge_patch_that_takes_the_annotation_with_null(bed: Bed) -> None:
    assert bed.run(reason="new layout")["changed"]
    assert (bed.cluster.cordoned, bed.cluster.mark) == (True, "gpufleet: new layout")
    assert bed.run(state="in_service")["changed"]
    assert (bed.cluster.cordoned, bed.cluster.mark) == (False, None)
    assert [body["metadata"]["annotations"] for _method, _path, body in bed.cluster.requests] == [
        {MARK: "gpufleet: new layout"},
        {MARK: None},
    ]
    patches = [headers for method, headers in bed.server.headers if method == "PATCH"]
    assert [headers["content-type"] for headers in patches] == ["application/merge-patch+json"] * 2
    assert {headers["authorization"] for headers in patches} == {"Bearer t"}


@pytest.mark.parametrize("disable_eviction", [False, True])
def test_a_pod_is_evicted_or_deleted(bed: Bed, disable_eviction: bool) -> None:
    bed.cluster.add_pod("web-1")
    result = bed.run(disable_eviction=disable_eviction, grace_period=5)
    assert "failed" not in result, result
    path = "/api/v1/namespaces/default/pods/web-1"
    assert bed.cluster.changes[1:] == [f"DELETE {path}" if disable_eviction else f"POST {path}/eviction"]


def test_a_refusal_of_a_budget_comes_with_its_cause(bed: Bed) -> None:
    bed.cluster.add_pod("web-1")
    bed.cluster.budgets.append("web-1")
    result = bed.run()
    assert "would violate the pod's disruption budget: The disruption budget web needs 2 healthy" in result["msg"]


def test_a_conflict_is_looked_at_again(bed: Bed) -> None:
    bed.cluster.meanwhile = bed.cluster.touch
    assert bed.run()["changed"]
    assert len(bed.cluster.requests) == 1


def test_check_mode_asks_for_a_dry_run(bed: Bed) -> None:
    assert bed.run(_ansible_check_mode=True, _ansible_diff=True)["diff"]["after"].startswith(f"{NODE} state: drained")
    assert bed.cluster.requests == []
    assert "PATCH" in [method for method, _headers in bed.server.headers]


def test_who_may_not_do_it_is_told_so(bed: Bed) -> None:
    bed.cluster.forbidden = "GET /api/v1/nodes"
    assert 'User "u" cannot get resource "nodes"' in bed.run()["msg"]


def test_the_nodes_that_are_still_drained_are_one_question(bed: Bed) -> None:
    bed.run()
    assert bed.run(kubernetes_drained_info)["nodes"] == [{"name": NODE, "reason": "gpufleet: maintenance"}]
    assert bed.cluster.node_lists == 1


# --- the way to the API server ----------------------------------------------------------------------------------------


def test_an_api_server_that_is_not_there_is_named(bed: Bed, tmp_path: Path) -> None:
    said = bed.run(kubeconfig=kubeconfig(tmp_path / "nobody", NOBODYS_PORT))["msg"]
    assert said.startswith(f"Cannot drain or resume {NODE}: no response from http://127.0.0.1:{NOBODYS_PORT}: ")
    assert "Connection refused" in said


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (None, "Invalid kube-config file. No configuration found."),
        ("- a: [", "while parsing"),
        ("[]", "it does not have the structure of a kubeconfig"),
        ("{}", "Invalid kube-config file"),
    ],
)
def test_a_kubeconfig_that_does_not_say_how_is_named(bed: Bed, tmp_path: Path, text: Optional[str], cause: str) -> None:
    path = tmp_path / "wrong"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    result = bed.run(kubeconfig=str(path))
    assert f"Cannot ask the API server in {path}: the kubeconfig cannot be used: " in result["msg"]
    assert cause.rstrip(".") in result["msg"]
    assert result["failure"]["code"] == "cannot_look"


def test_a_context_that_the_kubeconfig_does_not_have_is_named(bed: Bed) -> None:
    assert "Expected object with name nowhere in" in bed.run(context="nowhere")["msg"]
    assert bed.run(context="x")["changed"]


GIVEN = [("K8S_AUTH_HOST", "host", "{address}"), ("K8S_AUTH_API_KEY", "api_key", "secret")]


@pytest.mark.parametrize("by", ["options", "environment"])
def test_a_token_is_enough_as_an_option_and_as_a_credential_of_awx_gives_it(
    bed: Bed, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: Dict[str, Any] = {"kubeconfig": None}
    for variable, option, value in GIVEN:
        if by == "environment":
            monkeypatch.setenv(variable, value.format(address=bed.address))
        else:
            given[option] = value.format(address=bed.address)
    assert bed.run(**given)["changed"]
    assert {headers["authorization"] for _method, headers in bed.server.headers} == {"Bearer secret"}


def test_what_is_given_beats_the_kubeconfig(bed: Bed, tmp_path: Path) -> None:
    wrong = kubeconfig(tmp_path / "wrong", NOBODYS_PORT)
    result = bed.run(kubeconfig=wrong, host=bed.address, api_key="secret")
    assert result["changed"], result["msg"]


def seen(bed: Bed) -> List[Tuple[str, str]]:
    return [(method, headers["authorization"]) for method, headers in bed.server.headers]


def test_without_anything_it_is_the_usual_kubeconfig(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import kube_config

    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", bed.way)
    assert bed.run(kubeconfig=None)["changed"]
    assert ("PATCH", "Bearer t") in seen(bed)
