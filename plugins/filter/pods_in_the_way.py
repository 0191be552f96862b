# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: pods_in_the_way
short_description: The pods that a drained node still has
version_added: 0.1.0
description:
  - Takes pods as the API server lists them, and names those that must go before a node is drained. Pods of DaemonSets,
    those that kubelet runs from files, and those that have ended, stay.
options:
  _input:
    description: The pods of a node.
    type: list
    elements: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Fail where pods are left
  ansible.builtin.assert:
    that: pods.resources | gpufleet.node.pods_in_the_way | length == 0
"""

RETURN = r"""
_value:
  description: Each pod as C(NAMESPACE/NAME), and in brackets what it belongs to.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

MIRROR = "kubernetes.io/config.mirror"
ENDED = ("Succeeded", "Failed")


def pods_in_the_way(pods: Sequence[Mapping[str, Any]]) -> List[str]:
    return [_name(pod) for pod in pods if not _stays(pod)]


def _stays(pod: Mapping[str, Any]) -> bool:
    metadata = pod["metadata"]
    return (
        MIRROR in (metadata.get("annotations") or {})
        or (pod.get("status") or {}).get("phase") in ENDED
        or any(owner["kind"] == "DaemonSet" for owner in _owners(pod))
    )


def _name(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    what = [f"{owner['kind']} {owner['name']}" for owner in _owners(pod)] or ["of nobody"]
    if metadata.get("deletionTimestamp"):
        what.append("ending")
    return f"{metadata['namespace']}/{metadata['name']} ({', '.join(what)})"


def _owners(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return pod["metadata"].get("ownerReferences") or ()


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"pods_in_the_way": pods_in_the_way}
