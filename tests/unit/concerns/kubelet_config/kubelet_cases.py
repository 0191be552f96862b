# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations that the code of kubelets judged, by name: what the site's file says, and what is declared beside it.

``verdicts.json`` has by release what the kubelet's own code said: null if it starts, or else its error. Recorded with
the loader, the validation, and the CPU, memory, topology and eviction managers of Kubernetes as vendored in
github.com/openshift/microshift (1.31.14 of its branch release-4.18, 1.33.13 of release-4.20, 1.36.3 of release-4.23),
on a machine of two NUMA nodes with four CPUs and 16 GiB each. Before 1.32 the option by uncore cache is left out, which
OpenShift has sooner.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

Case = Tuple[str, Mapping[str, Any]]

VERDICTS: Mapping[str, Mapping[str, Optional[str]]] = json.loads(
    (Path(__file__).parent / "verdicts.json").read_text(encoding="utf-8")
)
STATIC: Mapping[str, Any] = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"}
RESTRICTED: Mapping[str, Any] = {"topology_manager_policy": "restricted"}
CPU_OPTIONS = (
    "align-by-socket",
    "distribute-cpus-across-cores",
    "distribute-cpus-across-numa",
    "full-pcpus-only",
    "prefer-align-cpus-by-uncorecache",
    "strict-cpu-reservation",
)
GATES = {
    "no gate": "",
    "AllAlpha": "featureGates: {AllAlpha: true}\n",
    "AllBeta off": "featureGates: {AllBeta: false}\n",
    "CPU alpha": "featureGates:\n  CPUManagerPolicyAlphaOptions: true\n",
    "CPU beta off": "featureGates:\n  CPUManagerPolicyBetaOptions: false\n",
    "topology alpha": "featureGates:\n  TopologyManagerPolicyAlphaOptions: true\n",
    "topology options": "featureGates: {TopologyManagerPolicyOptions: true, TopologyManagerPolicyAlphaOptions: true}\n",
    "topology beta off": "featureGates:\n  TopologyManagerPolicyBetaOptions: false\n",
    "swap": "featureGates:\n  NodeSwap: true\n",
}


def _cases() -> Dict[str, Case]:
    found: Dict[str, Case] = {}
    for name in CPU_OPTIONS:
        for gate in ("no gate", "AllAlpha", "AllBeta off", "CPU alpha", "CPU beta off"):
            found[f"{name}, {gate}"] = GATES[gate], {**STATIC, "cpu_manager_policy_options": {name: True}}
    for pair in itertools.combinations(CPU_OPTIONS, 2):
        options = {"cpu_manager_policy_options": dict.fromkeys(pair, True)}
        found[" and ".join(pair)] = GATES["CPU alpha"], {**STATIC, **options}
    for name, text in (("prefer-closest-numa-nodes", True), ("max-allowable-numa-nodes", 9)):
        for gate in ("no gate", "AllAlpha", "topology alpha", "topology options", "topology beta off"):
            declared = {**RESTRICTED, "topology_manager_policy_options": {name: text}}
            found[f"{name}, {gate}"] = GATES[gate], declared
    for name, text in (("NoSwap", "NoSwap"), ("LimitedSwap", "LimitedSwap")):
        for gate in ("no gate", "AllBeta off", "swap"):
            found[f"{name}, {gate}"] = GATES[gate], {"swap_behavior": text, "fail_swap_on": False}
    for name, eviction in {
        "containerfs": {"eviction_hard": {"containerfs.available": "5%"}},
        "allocatable": {"eviction_hard": {"allocatableMemory.available": "5%"}},
        "a threshold of 0": {"eviction_hard": {"memory.available": "0"}},
        "a threshold of 0%": {"eviction_hard": {"memory.available": "0%"}},
        "a threshold of 150%": {"eviction_hard": {"memory.available": "150%"}},
        "a threshold of .5%": {"eviction_hard": {"nodefs.available": ".5%"}},
        "soft without time": {"eviction_soft": {"memory.available": "5%"}},
        "soft of 0% without time": {"eviction_soft": {"memory.available": "0%"}},
        "soft of 100% without time": {"eviction_soft": {"memory.available": "100%"}},
        "reclaim of 0": {"eviction_minimum_reclaim": {"nodefs.available": "0"}},
        "reclaim of 0%": {"eviction_minimum_reclaim": {"nodefs.available": "0%"}},
        "all memory for evictions": {"eviction_hard": {"memory.available": "33Gi"}},
    }.items():
        found[f"eviction: {name}"] = "", eviction
    for name, declared in {
        "four resources": {"system_reserved": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "1000"}},
        "huge pages": {"system_reserved": {"hugepages-1Gi": "1Gi"}},
        "huge pages for Kubernetes": {"kube_reserved": {"hugepages-1Gi": "1Gi"}},
        "7.5 of 8 CPUs": {"system_reserved": {"cpu": "7500m"}},
        "8 of 8 CPUs": {"system_reserved": {"cpu": "4"}, "kube_reserved": {"cpu": "4"}},
        "more than 8 CPUs": {"system_reserved": {"cpu": "8"}, "kube_reserved": {"cpu": "1m"}},
        "8 of 8 CPUs, static": {"system_reserved": {"cpu": "8"}, "cpu_manager_policy": "static"},
        "100 CPUs beside a list": {**STATIC, "system_reserved": {"cpu": "100"}},
        "all memory": {"system_reserved": {"memory": "32Gi"}, "eviction_hard": {"memory.available": "0%"}},
        "all memory and a threshold": {"system_reserved": {"memory": "32Gi"}},
        "all CPUs": {"reserved_system_cpus": "0-7"},
        "all CPUs, static": {**STATIC, "reserved_system_cpus": "0-7"},
        "CPUs that are not there": {"reserved_system_cpus": "0,9"},
    }.items():
        found[f"reserved: {name}"] = "", declared
    memory = {"memory_manager_policy": "static", "system_reserved": {"memory": "1Gi"}}
    node = {"numa_node": 0, "limits": {"memory": "1124Mi"}}
    for name, declared in {
        "equal": {**memory, "reserved_memory": [node]},
        "not equal": {**memory, "reserved_memory": [{"numa_node": 0, "limits": {"memory": "1Gi"}}]},
        "of a node that is not there": {
            **memory,
            "reserved_memory": [{"numa_node": 7, "limits": {"memory": "1124Mi"}}],
        },
        "of huge pages": {
            **memory,
            "reserved_memory": [{"numa_node": 0, "limits": {"memory": "1124Mi", "hugepages-1Gi": "1Gi"}}],
        },
        "nothing": {"memory_manager_policy": "static", "eviction_hard": {"memory.available": "0%"}},
        "without the policy": {"reserved_memory": [node]},
        "of no such node without the policy": {"reserved_memory": [{"numa_node": 7, "limits": {"memory": "1Gi"}}]},
    }.items():
        found[f"memory: {name}"] = "", declared
    found["memory without its gate"] = GATES["AllBeta off"], {**memory, "reserved_memory": [node]}
    grace = {"shutdown_grace_period": "2m"}
    found["grace"] = "", grace
    found["grace without its gate"] = GATES["AllBeta off"], grace
    found["no grace without its gate"] = GATES["AllBeta off"], {"shutdown_grace_period": "0s"}
    priorities = "shutdownGracePeriodByPodPriority:\n- priority: 0\n  shutdownGracePeriodSeconds: 10\n"
    found["grace beside priorities"] = priorities, grace
    found["critical beside priorities"] = priorities, {"shutdown_grace_period_critical_pods": "0s"}
    found["grace of half a second"] = "", {"shutdown_grace_period": "500ms"}
    found["more for critical pods"] = "", {**grace, "shutdown_grace_period_critical_pods": "3m"}
    found["CPUs beside a control group"] = "systemReservedCgroup: /system.slice\n", STATIC
    found["options without the policy"] = "", {"cpu_manager_policy_options": {"full-pcpus-only": True}}
    found["topology options without the policy"] = (
        "",
        {"topology_manager_policy_options": {"prefer-closest-numa-nodes": True}},
    )
    found["no CPU for static"] = "", {"cpu_manager_policy": "static"}
    socket = {"align-by-socket": True}
    found["sockets on one node"] = (
        GATES["CPU alpha"],
        {
            **STATIC,
            "topology_manager_policy": "single-numa-node",
            "cpu_manager_policy_options": socket,
        },
    )
    for text in ("1", "T", "TRUE", "True", "0", "yes"):
        found[f"an option of {text}"] = "", {**STATIC, "cpu_manager_policy_options": {"full-pcpus-only": text}}
    for name, site in {
        "flow": 'systemReserved: {memory: 1Gi, cpu: "1"}\n',
        "flow over lines": 'systemReserved: {\n  memory: 1Gi,  # ours\n  cpu: "1"\n  }\n',
        "null": "systemReserved: null\nevictionHard: ~\nreservedMemory: null\n",
        "a yes": "failSwapOn: yes\n",
        "an option that is on": "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"
        "cpuManagerPolicyOptions: {full-pcpus-only: '1'}\n",
        "a field of tomorrow": "fieldOfTomorrow: 1\n",
        "defaults": "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
    }.items():
        found[f"site: {name}"] = site, RESTRICTED
    return found


CASES: Mapping[str, Case] = _cases()
