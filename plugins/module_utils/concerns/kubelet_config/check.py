# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a kubelet would refuse, or exit at, of the configuration that it is about to get: refused here, before that."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping

from ..._core.errors import DeclarationError
from ..._core.wording import first_of
from ..._linux import cpu_claims, cpulist
from . import schema
from .checkpoints import MEMORY_RESOURCE, STATIC_CPU, STATIC_MEMORY, value
from .schema import (
    CPU_OPTIONS,
    CPU_POLICY,
    CRITICAL,
    FAIL_SWAP,
    FIELDS,
    GRACE,
    HARD,
    KUBE_RESERVED,
    MEMORY_POLICY,
    RESERVED_CPUS,
    RESERVED_MEMORY,
    SOFT,
    SOFT_GRACE,
    SWAP_FIELD,
    SYSTEM_RESERVED,
    TOPOLOGY_OPTIONS,
    TOPOLOGY_POLICY,
)

if TYPE_CHECKING:
    from .state import KubeletState

SINGLE, BY_SOCKET = "single-numa-node", "align-by-socket"
MEMORY_AVAILABLE = "memory.available"
LIMITED = "LimitedSwap"


def check(state: KubeletState, declared: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raises ``DeclarationError``. ``values`` is all that counts then, ``declared`` what of it the inventory names."""
    _refuse_unknown(state, declared)
    _refuse_cpus(state, values)
    _refuse_topology(state, values)
    _refuse_memory(state, values)
    _refuse_others(state, values)


def _refuse_unknown(state: KubeletState, declared: Mapping[str, Any]) -> None:
    """What this kubelet does not know, and would drop without a word, or exit at."""
    release = state.release
    for key, declared_value in declared.items():
        if release and release < FIELDS[key].since:
            raise _refusal(key, f"this kubelet is of v1.{release}, and the field came with v1.{FIELDS[key].since}")
        for name in declared_value if key in schema.POLICY_OPTIONS else ():
            came, settled = schema.POLICY_OPTIONS[key][name]
            if release and release < came:
                raise _refusal(f"{key} {name}", f"this kubelet is of v1.{release}, and it came with v1.{came}")
            gate = schema.ALPHA_GATES[key]
            if release and (not settled or release < settled) and state.gates.get(gate) != "true":
                cause = f"it is an alpha option in v1.{release}, and the feature gate {gate} is off"
                raise _refusal(f"{key} {name}", cause, f"set featureGates {gate}: true in the kubelet's own file first")
        if state.place.kind == "arguments" and not FIELDS[key].flag:
            cause = "this kubelet is inside a k3s or RKE2 before v1.32, which takes flags alone, and it has none"
            raise _refusal(key, cause)


def _refuse_cpus(state: KubeletState, values: Mapping[str, Any]) -> None:
    options = value(values, CPU_OPTIONS)
    reserved = cpulist.parse(value(values, RESERVED_CPUS))
    missing = reserved - state.machine.online
    if missing:
        raise _refusal(RESERVED_CPUS, f"not online: {cpulist.render(missing)}", found=state.machine.online)
    if reserved and state.cgroups:
        raise _refusal(RESERVED_CPUS, f"the kubelet refuses it beside {' and '.join(state.cgroups)}, which it has")
    if value(values, CPU_POLICY) != STATIC_CPU:
        if options:
            raise _refusal(CPU_OPTIONS, "the policy none takes no options", "declare cpu_manager_policy: static")
    elif not reserved and not _reserved(values, "cpu"):
        hint = "declare reserved_system_cpus, or cpu in system_reserved or kube_reserved"
        raise _refusal(CPU_POLICY, "with the policy static and no reserved CPU the kubelet exits at its start", hint)
    elif state.machine.online <= reserved:
        raise _refusal(RESERVED_CPUS, "no CPU is left for pods")
    if options.get(BY_SOCKET) == "true":
        if value(values, TOPOLOGY_POLICY) == SINGLE:
            raise _refusal(f"{CPU_OPTIONS} {BY_SOCKET}", f"the kubelet refuses it with the topology policy {SINGLE}")
        if state.machine.sockets > len(state.machine.nodes):
            raise _refusal(f"{CPU_OPTIONS} {BY_SOCKET}", "this machine has more sockets than NUMA nodes")
    if RESERVED_CPUS in values:
        _refuse_claims(state, reserved)


def _refuse_claims(state: KubeletState, reserved: FrozenSet[int]) -> None:
    """What contradicts the concerns that divide the CPUs too."""
    text = cpulist.render(reserved)
    claim = cpu_claims.Claim(cpu_claims.KUBELET, cpu_claims.RESERVED_SYSTEM, text, reserved)
    for error in (*cpu_claims.refusals((claim,), state.isolated), *cpu_claims.unreserved(claim, state.system)):
        raise error


def _refuse_topology(state: KubeletState, values: Mapping[str, Any]) -> None:
    nodes = len(state.machine.nodes)
    if value(values, TOPOLOGY_POLICY) == "none" or nodes <= schema.MOST_NODES:
        return
    allowed = value(values, TOPOLOGY_OPTIONS).get(schema.ALLOWABLE, "")
    if not allowed.isdecimal() or int(allowed) < nodes:
        cause = (
            f"this machine has {nodes} NUMA nodes, and the kubelet exits where there are more than {schema.MOST_NODES}"
        )
        hint = f"declare {schema.ALLOWABLE} of at least {nodes} in topology_manager_policy_options"
        raise _refusal(TOPOLOGY_POLICY, cause, hint)


def _refuse_memory(state: KubeletState, values: Mapping[str, Any]) -> None:
    listed = value(values, RESERVED_MEMORY)
    if value(values, MEMORY_POLICY) != STATIC_MEMORY:
        if listed:
            raise _refusal(RESERVED_MEMORY, "only the policy Static uses it", "declare memory_manager_policy: static")
        return
    there = {node.number: node for node in state.machine.nodes}
    sums: Dict[str, int] = {}
    for one in listed:
        node = there.get(one["numaNode"])
        if node is None:
            raise _refusal(RESERVED_MEMORY, f"this machine has no NUMA node {one['numaNode']}")
        for name, text in one["limits"].items():
            size = schema.amount(text)
            if name != MEMORY_RESOURCE and name not in node.hugepages:
                raise _refusal(RESERVED_MEMORY, f"this machine has no {name}")
            if size > node.total(name):
                has = f"node {node.number} has {node.total(name)} bytes of {name}"
                raise _refusal(RESERVED_MEMORY, f"{has}, and {size} are to be reserved")
            sums[name] = sums.get(name, 0) + size
    needed = {name: _reserved(values, name) for name in _names(values)}
    needed[MEMORY_RESOURCE] = _reserved(values, MEMORY_RESOURCE) + _evicted(state, values)
    for name in sorted({*sums, *needed}):
        if sums.get(name, 0) != needed.get(name, 0):
            parts = (
                "kube_reserved, system_reserved and eviction_hard"
                if name == MEMORY_RESOURCE
                else ("kube_reserved and system_reserved")
            )
            raise DeclarationError(
                "reserve {}",
                object=f"{name} with {RESERVED_MEMORY}",
                cause=f"its nodes add up to {sums.get(name, 0)} bytes, and {parts} to {needed.get(name, 0)}: the"
                " kubelet exits where they are not equal",
                hint=f"let the limits of {name} in reserved_memory add up to {needed.get(name, 0)} bytes",
            )


def _names(values: Mapping[str, Any]) -> List[str]:
    both = (value(values, SYSTEM_RESERVED), value(values, KUBE_RESERVED))
    return [name for one in both for name in one if name.startswith("hugepages-")]


def _evicted(state: KubeletState, values: Mapping[str, Any]) -> int:
    text = value(values, HARD).get(MEMORY_AVAILABLE, "0")
    share = schema.percent(text)
    if share < 0:
        return schema.amount(text)
    # These two stand for no threshold, and all others are a number of 32 bits, which is not quite what is written.
    return 0 if text in ("0%", "100%") else int(state.machine.memory * _single(_single(share) / 100))


def _single(number: float) -> float:
    """The nearest number of single precision."""
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found


def _refuse_others(state: KubeletState, values: Mapping[str, Any]) -> None:
    lacking = sorted(set(value(values, SOFT)) - set(value(values, SOFT_GRACE)))
    if lacking:
        cause = f"the kubelet exits where {', '.join(lacking)} has no time in {SOFT_GRACE}"
        raise _refusal(SOFT, cause, "declare it in eviction_soft_grace_period")
    if value(values, FAIL_SWAP) and state.machine.swaps:
        areas = first_of(state.machine.swaps, 3)
        hint = "declare fail_swap_on: false, or node_swap_enabled: false"
        raise _refusal(FAIL_SWAP, f"swap is on ({areas}), and the kubelet exits then", hint)
    if value(values, SWAP_FIELD) == LIMITED:
        if not state.machine.cgroup2:
            raise _refusal(SWAP_FIELD, "LimitedSwap needs control groups of version 2")
        if value(values, FAIL_SWAP):
            raise _refusal(
                SWAP_FIELD, "with failSwapOn: true the kubelet exits where there is swap", "set fail_swap_on: false"
            )
    whole, critical = schema.duration(value(values, GRACE)), schema.duration(value(values, CRITICAL))
    if critical > whole:
        raise _refusal(
            CRITICAL, f"it is longer than {GRACE}, which it is a part of", f"declare at most {values.get(GRACE)}"
        )
    for name, length in ((GRACE, whole), (CRITICAL, critical)):
        if 0 < length < 1000:
            raise _refusal(name, "the kubelet takes 0 or at least one second")
    for resource in ("cpu", MEMORY_RESOURCE):
        has = state.machine.memory if resource == MEMORY_RESOURCE else len(state.machine.online)
        taken = _reserved(values, resource)
        if taken >= has > 0:
            raise _refusal(
                SYSTEM_RESERVED, f"with {KUBE_RESERVED} it takes {taken} of {has} {resource}, so that no pod fits"
            )


def _reserved(values: Mapping[str, Any], resource: str) -> int:
    """Of CPUs rounded up, as the kubelet does."""
    total = sum(schema.quantity(value(values, key).get(resource, "0")) for key in (SYSTEM_RESERVED, KUBE_RESERVED))
    return -(-total // schema.BILLION)


def _refusal(name: str, cause: str, hint: str = "", found: object = None) -> DeclarationError:
    text = cpulist.render(found) if isinstance(found, frozenset) else None
    return DeclarationError("set {}", object=name, cause=cause, found=text, hint=hint)
