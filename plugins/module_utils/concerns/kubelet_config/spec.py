# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator declares of a kubelet, and what no kubelet could have."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import frozen
from ..._linux import cpulist
from . import schema
from .schema import FIELDS

NAME = "kubelet_config"
FAIL, WAIT, SKIP, IGNORE = "fail", "wait", "skip", "ignore"
# The options that are a field by another name.
OTHER_NAMES = {"reserved_system_cpus": schema.RESERVED_CPUS, "swap_behavior": schema.SWAP_FIELD}
MEMORY_POLICIES = {"none": "None", "static": "Static"}
# An option that may be left out has no choices in Ansible, which would refuse the null of a role's default.
CHOICES = {
    "cpu_manager_policy": ("none", "static"),
    "topology_manager_policy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topology_manager_scope": ("container", "pod"),
    "memory_manager_policy": ("none", "static"),
    "swap_behavior": ("NoSwap", "LimitedSwap"),
}


@frozen
class KubeletDeclaration:
    """``values`` are by the field of KubeletConfiguration. ``identity`` are the files of a client certificate and its
    key, empty for those that are usually there."""

    values: Mapping[str, Any]
    identity: Tuple[str, str] = ("", "")
    when_busy: str = FAIL
    busy_timeout: int = 0
    start_timeout: int = 120
    optional: bool = False


def field_of(option: str) -> str:
    """``cpuManagerPolicy`` for ``cpu_manager_policy``."""
    first, *others = option.split("_")
    return OTHER_NAMES.get(option) or "".join((first, *map(str.capitalize, others)))


def parse(params: Mapping[str, Any]) -> KubeletDeclaration:
    values: Dict[str, Any] = {}
    for option, value in params.items():
        key = field_of(option)
        if key in FIELDS and value not in (None, "", {}, []):
            values[key] = _value(key, option, value)
    if values and not params["permanent"]:
        raise _wrong("the kubelet reads its files at every start, and permanent: false forbids that", "set it to true")
    identity = params["client_certificate"] or "", params["client_key"] or ""
    if bool(identity[0]) is not bool(identity[1]):
        raise _wrong("client_certificate and client_key belong together", "name both, or none")
    _refuse_alone(values)
    return KubeletDeclaration(values=values, identity=identity, optional=params["optional"], **patience(params))


def patience(params: Mapping[str, Any]) -> Dict[str, Any]:
    for name, least in (("busy_timeout", 0), ("start_timeout", 1)):
        if params[name] < least:
            raise DeclarationError("use {}", object=name, cause=f"it must be at least {least} s", found=params[name])
    return {name: params[name] for name in ("when_busy", "busy_timeout", "start_timeout")}


def _value(key: str, option: str, value: Any) -> Any:
    """A declared value as KubeletConfiguration has it."""
    field = FIELDS[key]
    choices = CHOICES.get(option, (value,))
    if value not in choices:
        cause = f"it must be one of {', '.join(choices)}"
        raise DeclarationError("use {}", object=option, cause=cause, found=value)
    if key == schema.MEMORY_POLICY:
        return MEMORY_POLICIES[value]
    try:
        if field.kind == schema.CPUS:
            return cpulist.render(cpulist.parse(value))
        if field.kind == schema.DURATION:
            schema.duration(value)
        if field.kind == schema.RESERVED:
            return [_reserved(one) for one in value]
        if field.kind in schema.MAPS:
            return _map(key, value)
    except ValueError as error:
        raise DeclarationError("use {}", object=option, cause=str(error)) from error
    return value


def _map(key: str, value: Mapping[str, Any]) -> Dict[str, str]:
    field = FIELDS[key]
    texts = {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}
    for name, text in texts.items():
        known: Tuple[str, ...] = field.names or tuple(schema.POLICY_OPTIONS[key])
        if name not in known:
            from ..._core.nearest import did_you_mean

            raise DeclarationError(
                "set {}",
                object=f"{key} {name}",
                cause="no kubelet knows it",
                hint=did_you_mean(name, known, otherwise=f"write one of {', '.join(known)}"),
            )
        if field.kind == schema.QUANTITIES:
            schema.quantity(text)
        elif field.kind == schema.THRESHOLDS:
            schema.refuse_threshold(text, reclaim=key == schema.RECLAIM)
        elif field.kind == schema.OPTIONS_MAP:
            schema.refuse_option(name, text)
        elif field.kind == schema.DURATIONS:
            schema.duration(text)
    return texts


def _reserved(one: Mapping[str, Any]) -> Dict[str, Any]:
    limits = {str(name): str(value) for name, value in one["limits"].items()}
    for name, text in limits.items():
        if name != "memory" and not name.startswith("hugepages-"):
            raise ValueError(f"the memory manager reserves memory and hugepages-SIZE, and no {name}")
        if schema.quantity(text) == 0:
            raise ValueError(f"{name} of node {one['numa_node']} is 0, which the kubelet refuses")
    return {"numaNode": one["numa_node"], "limits": limits}


def _refuse_alone(values: Mapping[str, Any]) -> None:
    """What is wrong whatever else the kubelet has."""
    nodes: List[int] = [one["numaNode"] for one in values.get(schema.RESERVED_MEMORY, ())]
    twice: Optional[int] = next((node for node in nodes if nodes.count(node) > 1), None)
    if twice is not None:
        raise _wrong(f"reserved_memory has node {twice} twice", "name each NUMA node once, with all its limits")
    soft = {name for name, text in values.get(schema.SOFT, {}).items() if schema.has_threshold(text)}
    missing = sorted(soft - set(values.get(schema.SOFT_GRACE, soft)))
    if missing:
        raise _wrong(f"eviction_soft_grace_period lacks {', '.join(missing)}", "give each soft threshold its time")


def _wrong(cause: str, hint: str) -> DeclarationError:
    return DeclarationError("read the declaration", cause=cause, hint=hint)
