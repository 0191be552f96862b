# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plugin_clusters
short_description: The clusters of hosts, each with what is declared of its nodes
version_added: 0.1.0
description:
  - Takes the names of the hosts that are still in the play. Those whose cluster is reached and configured in the same
    way are one cluster.
positional: _input, hostvars
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, that is P(ansible.builtin.hostvars#var). On each there is the fact
        C(__device_plugin_declared) with C(cluster) and C(node).
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Name the clusters
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | gpufleet.node.plugin_clusters(hostvars) | map(attribute='namespace') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The options of each cluster, with its C(nodes), in the order of the hosts.
  type: list
  elements: dict
"""

import json
from typing import Any, Callable, Dict, List, Mapping, Sequence


def plugin_clusters(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> List[Dict[str, Any]]:
    found: Dict[str, Dict[str, Any]] = {}
    for host in hosts:
        declared = hostvars[host]["__device_plugin_declared"]
        way = json.dumps(declared["cluster"], sort_keys=True)
        cluster = found.setdefault(way, {**declared["cluster"], "nodes": []})
        cluster["nodes"].append(declared["node"])
    return list(found.values())


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plugin_clusters": plugin_clusters}
