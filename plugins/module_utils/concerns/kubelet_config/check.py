# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a kubelet would refuse, or exit at, of the configuration that it is about to get: refused here, before that."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, FrozenSet, Mapping

from ..._core.errors import DeclarationError
from ..._core.wording import first_of
from ..._linux import cpu_claims, cpulist
from . import schema
from .checkpoints import MEMORY_RESOURCE, STATIC_CPU, STATIC_MEMORY, value
from .gates import FIELD_GATES, OPTION_GATES, enabled
from .schema import (
    BY_PRIORITY,
    CPU_OPTIONS,
    CPU_POLICY,
    CRITICAL,
    FAIL_SWAP,
    FIELDS,
    GRACE,
    HARD,
    KUBE_RESERVED,
    LIMITED,
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
# What a drop-in begins with, which only its kind had to be right in before this release.
HEAD_OF_DROP_IN, HEAD_SINCE = ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"), 32


def check(state: KubeletState, declared: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raises ``DeclarationError``. ``values`` is all that counts then, ``declared`` what of it the inventory names."""
    _refuse_drop_ins(state)
    _refuse_unknown(state, declared)
    _refuse_cpus(state, values)
    _refuse_topology(state, values)
    _refuse_memory(state, values)
    _refuse_others(state, values)


def _refuse_drop_ins(state: KubeletState) -> None:
    """Those of the site at which the kubelet exits (mergeKubeletConfigurations of cmd/kubelet/app/server.go)."""
    for path, document in state.place.drop_ins:
        said = document.get("apiVersion"), document.get("kind")
        if said != HEAD_OF_DROP_IN and (not said[1] or state.release >= HEAD_SINCE):
            raise DeclarationError(
                "configure the kubelet",
                cause=f"it exits because of its drop-in {path}, which lacks apiVersion: {HEAD_OF_DROP_IN[0]} or kind:"
                f" {HEAD_OF_DROP_IN[1]}",
                hint="add them, or remove the file",
            )


def _refuse_unknown(state: KubeletState, declared: Mapping[str, Any]) -> None:
    """What this kubelet does not know, and would drop without a word, or exit at."""
    release = state.release
    for key, declared_value in declared.items():
        if release and release < FIELDS[key].since:
            raise _refusal(key, f"this kubelet is v1.{release}, and the field is new in v1.{FIELDS[key].since}")
        if release:
            _refuse_gate(state, key, declared_value)
            _refuse_names(state, key, declared_value)
        if state.place.kind == "arguments" and not FIELDS[key].flag:
            cause = "this kubelet is inside a k3s or RKE2 before v1.32, which takes flags alone, and it has none"
            raise _refusal(key, cause)


def _refuse_gate(state: KubeletState, key: str, declared_value: Any) -> None:
    gate, harmless = FIELD_GATES.get(key, ("", None))
    if not gate or enabled(gate, state.gates, state.release):
        return
    if harmless is None or schema.meaning(key, declared_value) != schema.meaning(key, harmless):
        raise _refusal(key, f"the feature gate {gate} is off in this kubelet (v1.{state.release})", _on(gate))


def _on(gate: str) -> str:
    return f"set featureGates {gate}: true in the kubelet's own file first"


def _refuse_names(state: KubeletState, key: str, declared_value: Any) -> None:
    """Policy options, signals and a word that this release does not know, or not without a feature gate."""
    release = state.release
    for name in declared_value if isinstance(declared_value, dict) else ():
        came, beta, general = schema.POLICY_OPTIONS.get(key, {}).get(name, (schema.SIGNALS_SINCE.get(name, 0), 1, 1))
        if release < came:
            raise _refusal(f"{key} {name}", f"this kubelet is v1.{release}, and it is new in v1.{came}")
        stage = "Alpha" if not beta or release < beta else "Beta" if not general or release < general else ""
        gate = OPTION_GATES[key].format(stage) if stage else ""
        if gate and not enabled(gate, state.gates, release):
            article = "an alpha" if stage == "Alpha" else "a beta"
            cause = f"it is {article} option in v1.{release}, and the feature gate {gate} is off"
            raise _refusal(f"{key} {name}", cause, _on(gate))
    if declared_value == schema.NO_SWAP and release < schema.NO_SWAP_SINCE:
        cause = f"this kubelet is v1.{release}, and {schema.NO_SWAP} is new in v1.{schema.NO_SWAP_SINCE}"
        raise _refusal(key, cause, "leave it out, or set fail_swap_on: true")


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
    for pair in schema.EXCLUSIVE:
        if all(schema.is_on(options.get(name, "")) for name in pair):
            raise _refusal(CPU_OPTIONS, f"the kubelet refuses {pair[0]} and {pair[1]} together")
    if schema.is_on(options.get(BY_SOCKET, "")):
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
    if schema.number(value(values, TOPOLOGY_OPTIONS).get(schema.ALLOWABLE, "")) < nodes:
        cause = (
            f"this machine has {nodes} NUMA nodes, and the kubelet exits where there are more than {schema.MOST_NODES}"
        )
        hint = f"declare {schema.ALLOWABLE} of at least {nodes} in topology_manager_policy_options"
        raise _refusal(TOPOLOGY_POLICY, cause, hint)


def _refuse_memory(state: KubeletState, values: Mapping[str, Any]) -> None:
    listed = value(values, RESERVED_MEMORY)
    if value(values, MEMORY_POLICY) != STATIC_MEMORY:
        return
    there = {node.number: node for node in state.machine.nodes}
    reserved = 0
    for one in listed:
        node = there.get(one["numaNode"])
        if node is None:
            raise _refusal(RESERVED_MEMORY, f"this machine has no NUMA node {one['numaNode']}")
        for name, text in one["limits"].items():
            size = schema.amount(text)
            if name != MEMORY_RESOURCE:
                cause = f"{name} must add up to that of kube_reserved and system_reserved, which accept none"
                raise _refusal(RESERVED_MEMORY, cause, f"leave {name} out, or set memory_manager_policy: none")
            if size > node.total(name):
                has = f"node {node.number} has {node.total(name)} bytes of {name}"
                raise _refusal(RESERVED_MEMORY, f"{has}, and {size} are to be reserved")
            reserved += size
    needed = _reserved(values, MEMORY_RESOURCE) + _evicted(state, values)
    if reserved != needed:
        raise DeclarationError(
            "reserve {}",
            object=f"{MEMORY_RESOURCE} with {RESERVED_MEMORY}",
            cause=f"its nodes add up to {reserved} bytes, and kube_reserved, system_reserved and eviction_hard to"
            f" {needed}: the kubelet exits where they are not equal",
            hint=f"let the limits of {MEMORY_RESOURCE} in reserved_memory add up to {needed} bytes",
        )
    if not reserved:
        hint = "declare reserved_memory, and memory in system_reserved or kube_reserved"
        raise _refusal(MEMORY_POLICY, "with the policy Static and no reserved memory the kubelet exits", hint)


def _evicted(state: KubeletState, values: Mapping[str, Any]) -> int:
    text = value(values, HARD).get(MEMORY_AVAILABLE, "0")
    share = schema.percent(text)
    if share < 0:
        return schema.amount(text)
    # A share is a number of 32 bits, which is not quite what is written.
    return int(state.machine.memory * _single(_single(share) / 100)) if schema.has_threshold(text) else 0


def _single(number: float) -> float:
    """The nearest number of single precision."""
    found: float = struct.unpack("f", struct.pack("f", number))[0]
    return found


def _refuse_others(state: KubeletState, values: Mapping[str, Any]) -> None:
    soft = {name for name, text in value(values, SOFT).items() if schema.has_threshold(text)}
    lacking = sorted(soft - set(value(values, SOFT_GRACE)))
    if lacking:
        cause = f"the kubelet exits where {', '.join(lacking)} has no time in {SOFT_GRACE}"
        raise _refusal(SOFT, cause, "declare it in eviction_soft_grace_period")
    if value(values, FAIL_SWAP) and state.machine.swaps:
        areas = first_of(state.machine.swaps, 3)
        hint = "declare fail_swap_on: false, or node_swap_enabled: false"
        raise _refusal(FAIL_SWAP, f"swap is on ({areas}), and the kubelet exits then", hint)
    if value(values, SWAP_FIELD) == LIMITED and not state.machine.cgroup2:
        raise _refusal(SWAP_FIELD, "LimitedSwap needs control groups of version 2")
    whole, critical = schema.duration(value(values, GRACE)), schema.duration(value(values, CRITICAL))
    if critical > whole:
        raise _refusal(
            CRITICAL, f"it is longer than {GRACE}, which it is a part of", f"declare at most {values.get(GRACE)}"
        )
    if (whole or critical) and state.by_priority:
        raise _refusal(
            GRACE if whole else CRITICAL, f"the kubelet refuses it together with {BY_PRIORITY}, which it has"
        )
    for name, length in ((GRACE, whole), (CRITICAL, critical)):
        if 0 < length < 1000:
            raise _refusal(name, "the kubelet takes 0 or at least one second")
    for resource in ("cpu", MEMORY_RESOURCE):
        has = state.machine.memory if resource == MEMORY_RESOURCE else len(state.machine.online)
        evicted = _evicted(state, values) if resource == MEMORY_RESOURCE else 0
        if _billionths(values, resource) > (has - evicted) * schema.BILLION and has:
            taken = _reserved(values, resource) + evicted
            beside = f"{KUBE_RESERVED} and {HARD}" if evicted else KUBE_RESERVED
            raise _refusal(SYSTEM_RESERVED, f"with {beside} it takes {taken} of {has} {resource}, so that no pod fits")


def _reserved(values: Mapping[str, Any], resource: str) -> int:
    """Of CPUs rounded up, as the kubelet does."""
    return -(-_billionths(values, resource) // schema.BILLION)


def _billionths(values: Mapping[str, Any], resource: str) -> int:
    return sum(schema.quantity(value(values, key).get(resource, "0")) for key in (SYSTEM_RESERVED, KUBE_RESERVED))


def _refusal(name: str, cause: str, hint: str = "", found: object = None) -> DeclarationError:
    text = cpulist.render(found) if isinstance(found, frozenset) else None
    return DeclarationError("set {}", object=name, cause=cause, found=text, hint=hint)
