# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kubelet of each release is held against the module: both refuse the same (kubelet_cases)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kubelet_config import gates, places, schema
from ansible_collections.gpufleet.node.tests.unit.concerns.kubelet_config.kubelet_cases import (
    CASES,
    RESTRICTED,
    VERDICTS,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.kubelet_config.kubelet_machine import (
    CONFIG,
    FOLDER,
    KUBEADM,
    UNIT,
    machine,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

# What a kubelet takes and makes no use of, so that it is refused.
USELESS = {"memory without its gate"}


@pytest.mark.parametrize("release", sorted(VERDICTS))
def test_what_a_kubelet_refuses_is_refused_and_nothing_else(tmp_path: Path, release: str) -> None:
    host, kubelet = machine(tmp_path)
    kubelet.release = f"Kubernetes v1.{release}.1"
    found: Dict[str, str] = {}
    for name in VERDICTS[release]:
        site, declared = CASES[name]
        (tmp_path / CONFIG.lstrip("/")).write_text(KUBEADM + site)
        before = snapshot(tmp_path)
        try:
            run(host, declared, check=True)
        except (CannotLook, DeclarationError) as error:
            found[name] = str(error)
        assert snapshot(tmp_path) == before
    refused = {name for name, verdict in VERDICTS[release].items() if verdict is not None}
    useless = USELESS & set(found)
    assert {name: found[name] for name in found if name not in refused | useless} == {}
    assert {name: VERDICTS[release][name] for name in refused if name not in found} == {}


def ignored(outcome: Any) -> List[str]:
    return [one.setting for one in outcome.remaining.unmanaged]


@pytest.mark.parametrize(
    ("declared", "settings"),
    [
        ({"reserved_memory": [{"numa_node": 7, "limits": {"memory": "1Gi"}}]}, ["reservedMemory"]),
        ({"topology_manager_scope": "pod"}, ["topologyManagerScope"]),
        ({"topology_manager_scope": "pod", "topology_manager_policy": "restricted"}, []),
        ({"reserved_system_cpus": "0-1", "kube_reserved": {"cpu": "1", "memory": "1Gi"}}, ["kubeReserved cpu"]),
        ({"swap_behavior": "LimitedSwap"}, ["memorySwap"]),
        ({"swap_behavior": "LimitedSwap", "fail_swap_on": False}, []),
    ],
)
def test_what_a_kubelet_would_not_use_is_named(tmp_path: Path, declared: Mapping[str, Any], settings: Any) -> None:
    host, _kubelet = machine(tmp_path)
    assert ignored(run(host, declared)) == settings
    again = run(host, declared)
    assert (ignored(again), again.changes) == (settings, ())
    if settings:
        with pytest.raises(DeclarationError, match=f"Cannot set {settings[0]}"):
            run(host, declared, strict=True)


@pytest.mark.parametrize(
    ("gate", "given", "release", "on"),
    [
        ("NodeSwap", {}, 29, False),
        ("NodeSwap", {"AllBeta": "true"}, 29, True),
        ("NodeSwap", {"AllAlpha": "true"}, 29, False),
        ("NodeSwap", {"AllBeta": "true"}, 27, False),
        ("NodeSwap", {"AllAlpha": "t"}, 27, True),
        ("NodeSwap", {"AllAlpha": "true", "NodeSwap": "false"}, 27, False),
        ("NodeSwap", {"AllBeta": "false"}, 33, False),
        ("NodeSwap", {"AllBeta": "false"}, 34, True),
        ("TopologyManagerPolicyOptions", {"TopologyManagerPolicyOptions": "false"}, 34, False),
    ],
)
def test_a_gate_is_on_by_its_stage(gate: str, given: Mapping[str, str], release: int, on: bool) -> None:
    assert gates.enabled(gate, given, release) is on


def test_reserved_cpus_stand_for_those_of_both_reservations(tmp_path: Path) -> None:
    """As /configz says them (1.31.14): the number of CPUs, in a map that was not empty."""
    declared = {"reserved_system_cpus": "0-1", "system_reserved": {"memory": "1Gi"}, "kube_reserved": {"cpu": "1"}}
    host, kubelet = machine(tmp_path)
    run(host, declared)
    assert kubelet.config is not None
    assert kubelet.config["systemReserved"] == {"cpu": "2", "memory": "1Gi"}
    assert kubelet.config["kubeReserved"] == {}
    assert run(host, declared).changes == ()


@pytest.mark.parametrize(
    ("site", "release", "found"),
    [
        ("evictionHard: {memory.available: 1Gi}\n", 36, {"memory.available": "1Gi"}),
        (
            "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
            32,
            {"memory.available": "1Gi"},
        ),
        (
            "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
            33,
            {**schema.EVICTION_HARD, "memory.available": "1Gi"},
        ),
    ],
)
def test_default_thresholds_count_beside_those_of_the_site(
    tmp_path: Path, site: str, release: int, found: Mapping[str, str]
) -> None:
    host, kubelet = machine(tmp_path)
    kubelet.release = f"Kubernetes v1.{release}.1"
    (tmp_path / CONFIG.lstrip("/")).write_text(KUBEADM + site)
    kubelet.reboot()
    declared = {"eviction_hard": {"pid.available": "5%"}}
    run(host, declared)
    assert kubelet.config is not None
    assert kubelet.config["evictionHard"] == {**found, "pid.available": "5%"}
    assert run(host, declared).changes == ()
    run(host, {}, state="absent")
    assert kubelet.config["evictionHard"] == found


HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.mark.parametrize(
    ("name", "wins"),
    [
        ("zz/10-site.conf", True),
        ("99-gpufleet.conf.d/a.conf", True),
        ("zz/.conf", True),
        ("99-gpufleet-a/zz.conf", False),
        ("50-site/zz/zz.conf", False),
        ("zz/10-site.yaml", None),
    ],
)
def test_drop_ins_in_subfolders_count_in_the_order_of_the_kubelet(tmp_path: Path, name: str, wins: Any) -> None:
    """As the loaders of 1.31.14, 1.33.13 and 1.36.3 ordered them."""
    path = f"{FOLDER}/{name}"
    host, kubelet = machine(tmp_path, {path: f"{HEAD}failSwapOn: false\n"}, drop_ins=True)
    if wins:
        with pytest.raises(OwnedByAnother, match=path):
            run(host, {"fail_swap_on": True})
        assert kubelet.order == []
        return
    assert places.of_kubelet(host.files, UNIT, ()).others().get("failSwapOn", True) is (wins is None)
    run(host, {"fail_swap_on": True})
    assert kubelet.config is not None
    assert kubelet.config["failSwapOn"] is True
    assert run(host, {"fail_swap_on": True}).changes == ()


def test_links_to_folders_are_no_folders_for_a_kubelet(tmp_path: Path) -> None:
    """As the loaders of 1.31.14, 1.33.13 and 1.36.3 said: filepath.WalkDir does not follow them, not even the first."""
    drop_in = f"{HEAD}failSwapOn: false\n"
    host, _kubelet = machine(tmp_path, {"/srv/kubelet/10.conf": drop_in, "/srv/one": drop_in}, drop_ins=True)
    (tmp_path / FOLDER.lstrip("/") / "zz").symlink_to("/srv/kubelet")
    assert run(host, {"fail_swap_on": True}).error is None
    (tmp_path / FOLDER.lstrip("/") / "zz.conf").symlink_to("/srv/one")
    with pytest.raises(OwnedByAnother, match=r"zz\.conf counts more"):
        run(host, {"fail_swap_on": True})
    (tmp_path / FOLDER.lstrip("/")).rename(tmp_path / "etc/other")
    (tmp_path / FOLDER.lstrip("/")).symlink_to("/etc/other")
    with pytest.raises(CannotLook, match="it is a symbolic link, and the kubelet reads no drop-ins through it"):
        run(host, {"fail_swap_on": True})


@pytest.mark.parametrize(
    ("release", "text", "refused"),
    [
        (31, "", True),
        (31, "failSwapOn: false\n", True),
        (31, "kind: KubeletConfiguration\nfailSwapOn: false\n", False),
        (32, "kind: KubeletConfiguration\nfailSwapOn: false\n", True),
        (32, f"{HEAD}failSwapOn: false\n", False),
    ],
)
def test_a_drop_in_at_which_the_kubelet_exits_is_refused(
    tmp_path: Path, release: int, text: str, refused: bool
) -> None:
    host, kubelet = machine(tmp_path, drop_ins=True)
    kubelet.release = f"Kubernetes v1.{release}.1"
    path = f"{FOLDER}/20-site.conf"
    (tmp_path / path.lstrip("/")).write_text(text)
    if not refused:
        assert run(host, RESTRICTED).error is None
        return
    with pytest.raises(DeclarationError, match=f"it exits because of its drop-in {path}, which lacks apiVersion"):
        run(host, RESTRICTED)
    assert kubelet.order == []


@pytest.mark.parametrize(
    ("main", "drop_in", "found"),
    [
        ("", "evictionHard: {memory.available: 1Gi}\n", {**schema.EVICTION_HARD, "memory.available": "1Gi"}),
        (
            "evictionHard: {nodefs.available: 1%}\n",
            "evictionHard: {memory.available: 1Gi}\n",
            {"memory.available": "1Gi", "nodefs.available": "1%"},
        ),
        (
            "evictionHard: {nodefs.available: 1%}\n",
            "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n",
            {"memory.available": "1Gi", "nodefs.available": "1%"},
        ),
    ],
)
def test_default_thresholds_come_before_the_drop_ins(
    tmp_path: Path, main: str, drop_in: str, found: Mapping[str, str]
) -> None:
    """As the loaders of 1.31.14, 1.33.13 and 1.36.3 said."""
    host, _kubelet = machine(tmp_path, {f"{FOLDER}/20-site.conf": HEAD + drop_in}, drop_ins=True)
    (tmp_path / CONFIG.lstrip("/")).write_text(KUBEADM + main)
    assert places.of_kubelet(host.files, UNIT, ()).others()["evictionHard"] == found


def test_null_in_a_drop_in_takes_away_what_came_before(tmp_path: Path) -> None:
    drop_ins = {
        f"{FOLDER}/20.conf": f"{HEAD}systemReserved: {{memory: 1Gi}}\nreservedSystemCPUs: '0'\n"
        "kubeReserved: {cpu: '1'}\n",
        f"{FOLDER}/30.conf": f"{HEAD}systemReserved: null\nreservedSystemCPUs: ''\nkubeReserved: {{}}\n",
    }
    host, _kubelet = machine(tmp_path, drop_ins, drop_ins=True)
    others = places.of_kubelet(host.files, UNIT, ()).others()
    assert [others.get(key) for key in ("systemReserved", "reservedSystemCPUs", "kubeReserved")] == [
        None,
        None,
        {"cpu": "1"},
    ]


CLOSEST = {**RESTRICTED, "topology_manager_policy_options": {"prefer-closest-numa-nodes": True}}
SWAP = {"swap_behavior": "LimitedSwap", "fail_swap_on": False}


@pytest.mark.parametrize(
    ("release", "gates_of_site", "declared", "said"),
    [
        (27, {"TopologyManagerPolicyAlphaOptions": True}, CLOSEST, "TopologyManagerPolicyOptions is off"),
        (27, {"TopologyManagerPolicyOptions": True}, CLOSEST, "TopologyManagerPolicyAlphaOptions is off"),
        (27, {"AllAlpha": True}, CLOSEST, ""),
        (28, {}, CLOSEST, ""),
        (26, {"TopologyManager": False}, RESTRICTED, "TopologyManager is off"),
        (29, {}, SWAP, "the feature gate NodeSwap is off in this kubelet"),
        (29, {"NodeSwap": True}, SWAP, ""),
        (29, {"NodeSwap": True}, {**SWAP, "swap_behavior": "NoSwap"}, "NoSwap is new in v1.30"),
        (28, {}, {"eviction_hard": {"containerfs.available": "5%"}}, "it is new in v1.29"),
        (29, {}, {"eviction_hard": {"containerfs.available": "5%"}}, ""),
    ],
)
def test_gates_and_words_of_older_kubelets(
    tmp_path: Path, release: int, gates_of_site: Mapping[str, bool], declared: Mapping[str, Any], said: str
) -> None:
    """After pkg/features/kube_features.go, validation.go and eviction/helpers.go of 1.26 to 1.30."""
    host, kubelet = machine(tmp_path)
    kubelet.release = f"Kubernetes v1.{release}.1"
    lines = "".join(f"  {name}: {str(on).lower()}\n" for name, on in gates_of_site.items())
    (tmp_path / CONFIG.lstrip("/")).write_text(f"{KUBEADM}featureGates:\n{lines}" if lines else KUBEADM)
    if not said:
        assert run(host, declared, check=True).changes
        return
    with pytest.raises(DeclarationError, match=said):
        run(host, declared, check=True)
