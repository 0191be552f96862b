# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plugin_gpus
short_description: What the module device_plugin has to know of the GPUs of a node
version_added: 0.1.0
description:
  - Takes the facts of a node, and returns the little of them that M(gpufleet.node.device_plugin) takes as
    O(gpufleet.node.device_plugin#module:nodes[].gpus). The facts of thousands of nodes are too much for one module.
options:
  _input:
    description: RV(gpufleet.node.gpu_node_info#module:node), with the parts C(gpus), C(health) and C(topology).
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpufleet.node.gpu_node_info:
    gather: [gpus, health, topology]
  register: info

- name: Show what device_plugin is told of them
  ansible.builtin.debug:
    msg: "{{ info.node | gpufleet.node.plugin_gpus }}"
"""

RETURN = r"""
_value:
  description:
    - A mapping for each GPU with C(pci_address), C(model), C(cuda_capability), C(memory), C(mig), C(numa_node) and
      C(nvlink_domain), which is null outside of an NVLink fabric of several nodes.
  type: list
  elements: dict
"""

from typing import Any, Callable, Dict, List, Mapping, Optional

# What a single machine has for the UUID of its NVLink fabric.
NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def plugin_gpus(node: Mapping[str, Any]) -> List[Dict[str, Any]]:
    topology, health = node.get("topology") or {}, node.get("health") or {}
    numa = {one["pci_address"]: one.get("numa_node") for one in topology.get("devices") or ()}
    fabrics = {one["pci_address"]: one.get("fabric") for one in health.get("gpus") or ()}
    return [
        {
            "pci_address": gpu["pci_address"],
            "model": gpu.get("model"),
            "cuda_capability": gpu.get("cuda_capability"),
            "memory": {"total_mib": (gpu.get("memory") or {}).get("total_mib")},
            "mig": _mig(gpu.get("mig")),
            "numa_node": numa.get(gpu["pci_address"]),
            "nvlink_domain": _domain(fabrics.get(gpu["pci_address"]) or {}),
        }
        for gpu in node.get("gpus") or ()
    ]


def _mig(mig: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    if mig is None:
        return None
    instances = [
        {
            "profile": instance.get("profile"),
            "memory_mib": instance.get("memory_mib"),
            "compute_instances": [{"slices": one.get("slices")} for one in instance.get("compute_instances") or ()],
        }
        for instance in mig.get("instances") or ()
    ]
    return {"current": mig.get("current"), "instances": instances}


def _domain(fabric: Mapping[str, Any]) -> Optional[str]:
    """The cluster and its clique, as GPU feature discovery writes them in ``nvidia.com/gpu.clique``."""
    cluster = fabric.get("cluster_uuid")
    return f"{cluster}.{fabric.get('clique')}" if cluster and cluster != NO_CLUSTER else None


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plugin_gpus": plugin_gpus}
