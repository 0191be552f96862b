# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_clusters
short_description: The clusters of hosts that were looked at, and the hosts that cannot be part of that yet
version_added: 0.1.0
description:
  - Takes the names of hosts that declare something for M(gpufleet.node.device_plugin), and puts those of each cluster
    together. Their GPUs are in the facts that came with the look.
  - A host is left out if the run failed there, or if its MIG layout is not in sync, because what Kubernetes allocates
    follows from it.
positional: _input, hostvars, register
options:
  state:
    description: The state of all of them, in place of the one that is declared. With V(absent) no GPUs are needed.
    type: str
  settled:
    description: Whether the hosts have been converged, so that those where anything has drifted are left out too.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show which hosts are left out
  ansible.builtin.debug:
    msg: "{{ (ansible_play_hosts | gpufleet.node.fleet_clusters(hostvars, 'look')).left_out }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - A mapping with C(clusters), as in P(gpufleet.node.plugin_clusters#filter), C(left_out), a line for each reason why
      hosts wait, and C(unreadable), why the GPUs of a host are not known, by host.
  type: dict
"""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..plugin_utils.answers import Look
from ..plugin_utils.clusters import declaration_of, grouped
from ..plugin_utils.fleet_text import where
from ..plugin_utils.playbooks import FAILURE
from ..plugin_utils.report.facts import facts_in
from ..plugin_utils.summary import REFUSED, registered
from .plugin_gpus import plugin_gpus

ABSENT = "absent"
LAYOUT = "mig_layout"
NOT_IN_SYNC = ("drifted", "unknown", "invalid", "waiting")


def fleet_clusters(
    hosts: Sequence[str], hostvars: Any, register: str, state: Optional[str] = None, settled: bool = False
) -> Dict[str, Any]:
    declared: Dict[str, Dict[str, Any]] = {}
    left_out: Dict[str, List[str]] = {}
    unreadable: Dict[str, str] = {}
    for host, look in registered(hostvars, hosts, register).items():
        why_not = _why_not(look or {}, hostvars.raw_get(host), settled=settled)
        if why_not:
            left_out.setdefault(why_not, []).append(host)
            continue
        declaration = declaration_of(hostvars[host])
        declaration.update(state=state or declaration["state"], gpus=[])
        if declaration["state"] != ABSENT:
            facts = facts_in(look, whole_answer=True)
            if facts.answer is None:
                unreadable[host] = f"Cannot say what it has to offer: {facts.missing}."
                continue
            declaration["gpus"] = plugin_gpus(facts.answer)
        declared[host] = declaration
    return {
        "clusters": grouped(declared),
        "left_out": [f"{where(names)}: left as it is in Kubernetes, because {why}." for why, names in left_out.items()],
        "unreadable": unreadable,
    }


def _why_not(look: Look, variables: Mapping[str, Any], *, settled: bool) -> str:
    """Why a host is left out; empty where it is not."""
    if FAILURE in variables or REFUSED in look:
        return "the run failed there"
    if settled and look.get("drifted"):
        return "it is not in sync"
    if any(LAYOUT in look.get(status, ()) for status in NOT_IN_SYNC):
        return "its MIG layout is not in sync, and what Kubernetes allocates follows from it"
    return ""


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"fleet_clusters": fleet_clusters}
