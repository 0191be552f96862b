# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.filter.pods_in_the_way import pods_in_the_way


def pod(phase: str = "Running", **metadata: Any) -> Dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "web", **metadata}, "status": {"phase": phase}}


def owned_by(*kinds: str) -> List[Dict[str, str]]:
    return [{"kind": kind, "name": kind.lower()} for kind in kinds]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (pod(), "shop/web (of nobody)"),
        (pod(ownerReferences=owned_by("ReplicaSet")), "shop/web (ReplicaSet replicaset)"),
        (pod(ownerReferences=None, annotations=None), "shop/web (of nobody)"),
        (pod("Pending", ownerReferences=owned_by("Job")), "shop/web (Job job)"),
        (pod("Unknown", ownerReferences=owned_by("StatefulSet")), "shop/web (StatefulSet statefulset)"),
        (pod(deletionTimestamp="2026-11-22T04:00:00Z"), "shop/web (of nobody, ending)"),
        ({"metadata": {"namespace": "shop", "name": "web"}}, "shop/web (of nobody)"),
    ],
)
def test_a_pod_that_must_go_is_named_with_what_it_belongs_to(given: Dict[str, Any], name: str) -> None:
    assert pods_in_the_way([given]) == [name]


@pytest.mark.parametrize(
    "given",
    [
        pod(ownerReferences=owned_by("DaemonSet")),
        pod(ownerReferences=owned_by("Node"), annotations={"kubernetes.io/config.mirror": "x"}),
        pod("Succeeded"),
        pod("Failed"),
    ],
)
def test_a_pod_that_stays_on_a_drained_node_is_not_named(given: Dict[str, Any]) -> None:
    assert pods_in_the_way([given]) == []
