# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declared values that a kubelet takes, but does not use with the other values that it has."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Tuple

from ..._core.change import Unmanaged
from .checkpoints import STATIC_MEMORY, value
from .schema import (
    FAIL_SWAP,
    KUBE_RESERVED,
    LIMITED,
    MEMORY_POLICY,
    RESERVED_CPUS,
    RESERVED_MEMORY,
    SWAP_FIELD,
    SYSTEM_RESERVED,
    TOPOLOGY_OPTIONS,
    TOPOLOGY_POLICY,
    TOPOLOGY_SCOPE,
)
from .state import KUBELET


def ignored(declared: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Unmanaged]:
    """Such settings, each with the reason. ``values`` are those in effect then, ``declared`` those of the inventory."""
    for key, reason in _reasons(declared, values):
        yield Unmanaged(KUBELET, key, reason, goal=f"set {key}", cause=reason)


def _reasons(declared: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    if RESERVED_MEMORY in declared and value(values, MEMORY_POLICY) != STATIC_MEMORY:
        yield RESERVED_MEMORY, f"the kubelet uses it only with {MEMORY_POLICY}: {STATIC_MEMORY}"
    for key in (TOPOLOGY_SCOPE, TOPOLOGY_OPTIONS):
        if key in declared and value(values, TOPOLOGY_POLICY) == "none":
            yield key, f"the kubelet does not use it with {TOPOLOGY_POLICY}: none"
    for key in (SYSTEM_RESERVED, KUBE_RESERVED):
        if "cpu" in declared.get(key, ()) and values.get(RESERVED_CPUS):
            yield f"{key} cpu", f"the number of CPUs in {RESERVED_CPUS} takes its place"
    if declared.get(SWAP_FIELD) == LIMITED and value(values, FAIL_SWAP):
        yield SWAP_FIELD, f"with {FAIL_SWAP}: true the kubelet starts only without swap"
