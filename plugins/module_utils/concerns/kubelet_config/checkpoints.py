# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files in which a kubelet keeps whose CPUs and memory are whose, and why it would not start with them.

It compares them with its configuration and the machine when it starts, and exits where they do not fit:
policy_static.go and state_checkpoint.go of pkg/kubelet/cm/{cpumanager,memorymanager}. Only their removal helps then.
"""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from ..._core.value import frozen
from ..._linux import cpulist
from . import schema
from .schema import (
    CPU_OPTIONS,
    CPU_POLICY,
    FIELDS,
    KUBE_RESERVED,
    MEMORY_POLICY,
    RESERVED_CPUS,
    RESERVED_MEMORY,
    SYSTEM_RESERVED,
)

NAMES = {schema.CPU: "cpu_manager_state", schema.MEMORY: "memory_manager_state"}
STATIC_CPU, STATIC_MEMORY = "static", "Static"
STRICT = "strict-cpu-reservation"
MEMORY_RESOURCE = "memory"


@frozen
class Node:
    """A NUMA node: its bytes of memory, and those of each size of huge pages (``hugepages-2Mi``)."""

    number: int
    memory: int
    hugepages: Mapping[str, int]

    def total(self, resource: str) -> int:
        return self.memory if resource == MEMORY_RESOURCE else self.hugepages.get(resource, 0)


def value(values: Mapping[str, Any], key: str) -> Any:
    """The value of a field that counts. Reserved CPUs take the place of ``cpu`` in both reservations (run of
    cmd/kubelet/app/server.go), and /configz has their number there.
    """
    found = values.get(key, FIELDS[key].default)
    if key in (KUBE_RESERVED, SYSTEM_RESERVED) and values.get(RESERVED_CPUS):
        return {name: text for name, text in found.items() if name != "cpu"}
    return found


def misfit(kind: str, text: str, values: Mapping[str, Any], online: str, nodes: Sequence[Node]) -> str:
    """Why a kubelet with this configuration does not start with a state file of this text; empty where it does."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return "it is damaged"
    try:
        policy = str(document["policyName"])
        if kind == schema.CPU:
            return _policy(policy, value(values, CPU_POLICY)) or _cpus(document, values, online)
        return _policy(policy, value(values, MEMORY_POLICY)) or _memory(document, values, nodes)
    except (ValueError, KeyError, TypeError, AttributeError):
        # A later release may write it in another form, which only its kubelet can judge.
        return ""


def _policy(found: str, wanted: str) -> str:
    return f"it is of the policy {found}, and the configuration has {wanted}" if found != wanted else ""


def _cpus(document: Mapping[str, Any], values: Mapping[str, Any], online: str) -> str:
    if document["policyName"] != STATIC_CPU:
        return ""
    shared = cpulist.parse(document["defaultCpuSet"])
    entries = [one for containers in (document.get("entries") or {}).values() for one in containers.values()]
    known = shared.union(*map(cpulist.parse, entries))
    reserved = cpulist.parse(value(values, RESERVED_CPUS))
    there = cpulist.parse(online)
    if schema.is_on(value(values, CPU_OPTIONS).get(STRICT, "")):
        there = there - reserved
    elif not reserved <= shared:
        return f"the reserved CPUs {cpulist.render(reserved - shared)} are not among those that it shares"
    if known != there:
        return f"it knows the CPUs {cpulist.render(known)}, and {cpulist.render(there)} are there"
    return ""


def _memory(document: Mapping[str, Any], values: Mapping[str, Any], nodes: Sequence[Node]) -> str:
    if document["policyName"] != STATIC_MEMORY:
        return ""
    state = {int(number): one["memoryMap"] for number, one in document["machineState"].items()}
    if set(state) != {node.number for node in nodes}:
        return "it is of other NUMA nodes"
    limits = {one["numaNode"]: one["limits"] for one in value(values, RESERVED_MEMORY)}
    for node in nodes:
        for resource in sorted({MEMORY_RESOURCE, *node.hugepages, *state[node.number]}):
            table = state[node.number].get(resource, {"total": 0, "systemReserved": 0})
            if table["total"] != node.total(resource):
                there = f"{node.total(resource)} bytes are there"
                return f"it has {table['total']} bytes of {resource} on node {node.number}, and {there}"
            reserved = schema.amount(limits.get(node.number, {}).get(resource, "0"))
            if table["systemReserved"] != reserved:
                wanted = f"the configuration reserves {reserved}"
                return f"it reserves {table['systemReserved']} bytes of {resource} on node {node.number}, and {wanted}"
    return ""
