# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts declare of the Kubernetes cluster whose nodes they are, by the variables of the role ``device_plugin``."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Callable, Dict, List, Mapping

from ansible.module_utils.parsing.convert_bool import boolean

from .playbooks import options_of

ROLE = "device_plugin"
# How a cluster is reached and configured. The nodes for which it is the same are converged together.
OF_THE_CLUSTER = (
    *("host", "become", "kubeconfig", "context", "namespace", "config_map"),
    *("rdma_namespace", "rdma_config_map", "rdma_restart", "state", "timeout", "poll"),
)
# What asks for something. The others only say how it is done and where, which the inventory may say for all hosts.
ASKING = tuple(
    f"{ROLE}_{name}"
    for name in (
        *("state", "replicas", "resources", "mig_strategy", "flags", "labels", "taints"),
        *("rdma_resources", "device_classes"),
    )
)
NAME = f"{ROLE}_node"

Declaration = Dict[str, Any]


def declares(variables: Mapping[str, Any]) -> bool:
    """Whether a host declares something of its cluster. An empty value counts: it takes away what was there."""
    return any(name in variables for name in ASKING)


@lru_cache(maxsize=1)
def _defaults() -> Mapping[str, Any]:
    return {name: option.get("default") for name, option in options_of(ROLE).items()}


def declaration_of(variables: Mapping[str, Any], resolve: Callable[[Any], Any] = lambda value: value) -> Declaration:
    """The options of the role by their names without its prefix, with its defaults; ``resolve`` templates a value."""
    values = {**_defaults(), NAME: variables["inventory_hostname"]}
    found = {
        name[len(ROLE) + 1 :]: resolve(variables[name]) if name in variables else value
        for name, value in values.items()
    }
    # Hosts that say it in different words have the same cluster.
    return {**found, "become": boolean(found["become"]), "rdma_restart": boolean(found["rdma_restart"])}


def grouped(declared: Mapping[str, Declaration]) -> List[Dict[str, Any]]:
    """The clusters, each with the ``hosts`` that are its nodes, and in the same order what they declare (``nodes``).

    ``declared`` is by host, and has the ``gpus`` of each.
    """
    found: Dict[str, Dict[str, Any]] = {}
    for host, declaration in declared.items():
        cluster = {name: declaration[name] for name in OF_THE_CLUSTER}
        node = {name: value for name, value in declaration.items() if name not in OF_THE_CLUSTER and name != "node"}
        of = found.setdefault(json.dumps(cluster, sort_keys=True, default=str), {**cluster, "hosts": [], "nodes": []})
        of["hosts"].append(host)
        of["nodes"].append({"name": declaration["node"], **node})
    return list(found.values())
