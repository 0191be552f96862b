# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verification_failures
short_description: Why a node is not ready for jobs
version_added: 0.1.0
description:
  - Takes the results of M(gpufleet.node.node_state) and M(gpufleet.node.gpu_node_info) of a node, and names all that
    keeps it from work, including what is only pending.
positional: _input, node
options:
  _input:
    description: A result of M(gpufleet.node.node_state).
    type: dict
    required: true
  node:
    description: The facts of the node, with V(driver), V(engines), V(gpus), V(health) and V(network).
    type: dict
    required: true
  failed_units:
    description: What C(systemctl list-units --state=failed) lists, one line per unit.
    type: list
    elements: str
    default: []
  engines:
    description: The container engines as they are declared.
    type: list
    elements: dict
    default: []
  gpus:
    description: How many GPUs the driver must know; 0 is any number.
    type: int
    default: 0
  ports:
    description: The options of the filter P(gpufleet.node.sick_ports#filter).
    type: dict
    default: {}
  checks:
    description: What the filter P(gpufleet.node.check_failures#filter) says of the active checks.
    type: list
    elements: str
    default: []
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Refuse a node that is not ready
  ansible.builtin.assert:
    that: look | gpufleet.node.verification_failures(info.node) | length == 0
"""

RETURN = r"""
_value:
  description: One sentence per reason.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from ..module_utils._core.setting import IN_SYNC, PENDING
from ..module_utils._node.verdict import DRIVER, sick_gpus
from .reboot_reasons import reboot_reasons
from .sick_ports import sick_ports

PERSISTENCE = "nvidia_persistence"
# Concerns of which none is right without a driver that answers.
OF_GPUS = (PERSISTENCE, "mig_layout", "gpu_settings")


def verification_failures(
    look: Mapping[str, Any],
    node: Mapping[str, Any],
    failed_units: Sequence[str] = (),
    engines: Sequence[Mapping[str, Any]] = (),
    gpus: int = 0,
    ports: Optional[Mapping[str, Any]] = None,
    checks: Sequence[str] = (),
) -> List[str]:
    return [
        *_look(look),
        *_driver(look["concerns"], node),
        *sick_gpus(node, gpus),
        *sick_ports(node, **(ports or {})),
        *checks,
        *_engines(node.get("engines") or (), [one["engine"] for one in engines if one.get("state") != "absent"]),
        *(
            f"{line.split()[0]} has failed, see journalctl -u {line.split()[0]}"
            for line in failed_units
            if line.strip()
        ),
    ]


def _look(look: Mapping[str, Any]) -> Iterator[str]:
    for name, result in look["concerns"].items():
        if result["status"] == PENDING:
            needs = [need for need in result.get("needs", ()) if need != "reboot"]
            yield from (f"{name} waits for {need}" for need in needs)
        elif result["status"] != IN_SYNC:
            yield f"{name} is {result['status']}" + (f": {result['msg']}" if result.get("msg") else "")
    yield from (f"it waits for a reboot: {reason}" for reason in reboot_reasons(look))
    yield from (f"{name} is declared on the node, but not in the inventory" for name in look["orphaned"])


def _driver(concerns: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[str]:
    declared = any(name in concerns for name in OF_GPUS)
    driven = any(gpu.get("kernel_driver") == DRIVER for gpu in node.get("gpus") or ())
    if (declared or driven) and not node.get("nvml_gpus"):
        reason = node.get("unavailable", {}).get("nvml_gpus") or "it knows no GPU"
        yield f"the NVIDIA driver does not work: {reason}"
    if declared:
        services = (node.get("driver") or {}).get("services") or {}
        daemon = services.get("persistenced") or {}
        if PERSISTENCE in concerns and daemon.get("running") is False:
            yield "nvidia-persistenced is not running"


def _engines(found: Sequence[Mapping[str, Any]], declared: Sequence[str]) -> Iterator[str]:
    by_name = {engine["name"]: engine for engine in found}
    for name in declared:
        engine = by_name.get(name)
        if engine is None:
            yield f"the container engine {name} is not installed"
        elif engine["running"] is False:
            yield f"the daemon of {name} is not running"
        elif engine.get("not_taken_up"):
            yield f"the daemon of {name} has not loaded {', '.join(engine['not_taken_up'])}"


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"verification_failures": verification_failures}
