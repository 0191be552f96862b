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
      - The variables of all hosts, that is P(ansible.builtin.hostvars#var). Hosts without the fact
        C(__device_plugin_declared), which P(gpufleet.node.declaration#lookup) makes, are left out.
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
  description: The options of each cluster, with its C(hosts), and in their order its C(nodes).
  type: list
  elements: dict
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ..plugin_utils.clusters import grouped

DECLARED = "__device_plugin_declared"


def plugin_clusters(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> List[Dict[str, Any]]:
    return grouped({host: hostvars[host][DECLARED] for host in hosts if DECLARED in hostvars[host]})


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plugin_clusters": plugin_clusters}
