# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: is_disruptive
short_description: Whether what a look plans would end jobs, or waits for their end
version_added: 0.1.0
description:
  - Takes a result of M(gpufleet.node.node_state). True if instances or the mode of a GPU will change, if a GPU goes to
    virtual machines or comes back, if something waits for an idle GPU or an idle node, if Slurm gets other GPUs of the
    node, if the second threads of CPUs will go, if the kubelet starts with other policies or reservations, or if Docker
    must be restarted and containers would end.
  - Clocks, limits, interrupts, queues and pages change under a job, and a node keeps its work for them.
options:
  _input:
    description: The look.
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Take the node out of service where jobs would end
  ansible.builtin.include_role:
    name: gpufleet.node.drain
  when: look | gpufleet.node.is_disruptive
"""

RETURN = r"""
_value:
  description: Whether a node with jobs is to be drained first.
  type: bool
"""

from typing import Any, Callable, Dict, Mapping

from ..module_utils._core.setting import EFFECTIVE
from ..module_utils.concerns.slurm_gpus.resolve import OF_GPUS
from ..plugin_utils.fleet_text import IDLE_NODE
from .needs_repartition import IDLE_GPU, repartitions

# What `needs` names that ends jobs when it is seen to.
ENDING = {IDLE_GPU, IDLE_NODE, "restart_docker"}
# The settings of gpu_virtualization for which the driver of the host lets go of a GPU.
BOUND = {"driver", "virtual functions"}

# What of kubelet_config changes nothing for a pod that runs; huge pages wait for an idle node by themselves.
HARMLESS_TO_PODS = {
    "capacity",
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "failSwapOn",
    "memorySwap",
    "service",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
}


def is_disruptive(look: Mapping[str, Any]) -> bool:
    needs = (need for result in look["concerns"].values() for need in result.get("needs", ()))
    disturbing = (repartitions, _takes_cpus, _takes_gpus, _admits_anew, _changes_gpus_in_slurm)
    return any(disturbs(look) for disturbs in disturbing) or not ENDING.isdisjoint(needs)


def _takes_cpus(look: Mapping[str, Any]) -> bool:
    """Whether every second CPU goes now."""
    changes = look["concerns"].get("cpu_power", {}).get("changes", ())
    return any((change["setting"], change["after"], change["scope"]) == ("smt", "off", EFFECTIVE) for change in changes)


def _takes_gpus(look: Mapping[str, Any]) -> bool:
    """Whether a GPU is bound to another driver now, or bound anew."""
    changes = look["concerns"].get("gpu_virtualization", {}).get("changes", ())
    return any(change["setting"] in BOUND and change["scope"] == EFFECTIVE for change in changes)


def _admits_anew(look: Mapping[str, Any]) -> bool:
    """Whether the kubelet starts with something by which it may reject pods that run."""
    changes = look["concerns"].get("kubelet_config", {}).get("changes", ())
    return any(change["scope"] == EFFECTIVE and change["setting"] not in HARMLESS_TO_PODS for change in changes)


def _changes_gpus_in_slurm(look: Mapping[str, Any]) -> bool:
    """Whether Slurm gets other GPUs of the node, and would end the jobs of those that go."""
    changes = look["concerns"].get("slurm_gpus", {}).get("changes", ())
    return any(change["setting"] in OF_GPUS and change["scope"] == EFFECTIVE for change in changes)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"is_disruptive": is_disruptive}
