# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plugin_findings
short_description: What device_plugin found in the clusters, by the hosts that are their nodes
version_added: 0.1.0
description:
  - Takes what P(gpufleet.node.fleet_clusters#filter) returns and the result of M(gpufleet.node.device_plugin) for each
    of them, and returns what M(gpufleet.node.drift_report) and M(gpufleet.node.fleet_report) take as C(clusters).
  - What nodes of a cluster share, such as a ConfigMap, is counted once, with the first host of the cluster.
positional: _input, results
options:
  _input:
    description: A mapping with C(clusters), and C(unreadable) if there are any.
    type: dict
    required: true
  results:
    description: The results, in the order of the clusters.
    type: list
    elements: dict
    required: true
  converged:
    description: Whether the changes in the results were made, and not only predicted.
    type: bool
    default: false
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show the drift of the nodes and of their clusters
  gpufleet.node.drift_report:
    register: look
    clusters: "{{ found | gpufleet.node.plugin_findings(converged.results) }}"
"""

RETURN = r"""
_value:
  description: The entry of each host, as a concern has it in RV(gpufleet.node.node_state#module:concerns).
  type: dict
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ..module_utils._core.setting import DRIFTED, IN_SYNC, INVALID, PENDING, UNKNOWN
from ..plugin_utils.answers import concern_in

NOT_SEEN = {"code": "cannot_look"}
# What a failure says of the cluster; any other is that it could not be looked at.
STATUSES = {"declaration": INVALID, "not_in_effect": DRIFTED}
# What the node is called in a line of its own, so that nodes with the same finding share that line.
NODE = "kubernetes"
WAITS_FOR = "the device plugin to read its configuration"

Result = Mapping[str, Any]


def plugin_findings(
    fleet: Mapping[str, Any], results: Sequence[Result], converged: bool = False
) -> Dict[str, Dict[str, Any]]:
    found = {host: _unknown(UNKNOWN, message, NOT_SEEN) for host, message in fleet.get("unreadable", {}).items()}
    for cluster, result in zip(fleet["clusters"], results):
        found.update(_failed(cluster, result) if "msg" in result else _of_hosts(cluster, result, converged))
    return found


def _failed(cluster: Mapping[str, Any], result: Result) -> Dict[str, Dict[str, Any]]:
    failure = result.get("failure") or NOT_SEEN
    status = STATUSES.get(failure["code"], UNKNOWN)
    message = str(result["msg"])
    if result.get("unreachable"):
        message = f"{cluster['host']}, which device_plugin_host names, is unreachable: {message}"
    return {host: _unknown(status, message, failure) for host in cluster["hosts"]}


def _unknown(status: str, message: str, failure: Mapping[str, Any]) -> Dict[str, Any]:
    return concern_in({"status": status, "msg": message, "failure": failure})


def _of_hosts(cluster: Mapping[str, Any], result: Result, converged: bool) -> Dict[str, Dict[str, Any]]:
    names = {node["name"]: host for host, node in zip(cluster["hosts"], cluster["nodes"])}
    first = cluster["hosts"][0]
    changes: Dict[str, List[Mapping[str, Any]]] = {host: [] for host in cluster["hosts"]}
    for change in [] if converged else result["changes"]:
        changes[names.get(change["object"], first)].append(change)
    waiting = {names[one["name"]]: one for one in result["pending"]}
    found = {}
    for host, drifted in changes.items():
        rows = [_row(names, change) for change in drifted]
        if drifted:
            found[host] = concern_in({"status": DRIFTED, "settings": rows, "changes": drifted})
        elif host in waiting:
            offered = _offered(waiting[host])
            found[host] = concern_in({"status": PENDING, "settings": offered, "needs": [WAITS_FOR]})
        else:
            found[host] = concern_in({"status": IN_SYNC})
    return found


def _row(names: Mapping[str, str], change: Mapping[str, Any]) -> Dict[str, Any]:
    of = NODE if change["object"] in names else change["object"]
    return _setting(of, change["setting"], change["after"], change["before"], DRIFTED)


def _offered(waiting: Mapping[str, Any]) -> List[Dict[str, Any]]:
    wanted, offers = waiting["expected"], waiting["allocatable"]
    return [
        _setting(NODE, resource, wanted.get(resource), offers.get(resource), PENDING)
        for resource in sorted({*wanted, *offers})
        if wanted.get(resource) != offers.get(resource)
    ]


def _setting(of: str, setting: str, wanted: Any, found: Any, status: str) -> Dict[str, Any]:
    """A row of the table. Kubernetes keeps what it has: a boot changes nothing."""
    return {"object": of, "setting": setting, "wanted": wanted, "effective": found, "boot": found, "status": status}


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plugin_findings": plugin_findings}
