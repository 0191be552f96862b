# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: needs_repartition
short_description: The hosts whose GPUs need repartitioning
version_added: 0.1.0
description:
  - Takes names of hosts and keeps those where a registered result of M(gpufleet.node.node_state) plans a change of the
    running system for M(gpufleet.node.mig_layout), or where one waits for a GPU in use.
  - What only the next boot or a consumer waits for needs no drained node, and is left to C(gpufleet.node.site).
positional: _input, hostvars, register, drained
options:
  drained:
    description:
      - Names of hosts that an earlier run has left drained. Those with a layout come first, and are kept whatever the
        look found.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Group the nodes whose GPUs are to be repartitioned
  ansible.builtin.add_host:
    name: "{{ item }}"
    groups: to_repartition
  loop: "{{ ansible_play_hosts | gpufleet.node.needs_repartition(hostvars, 'look') }}"
"""

RETURN = r"""
_value:
  description: The names of the hosts, those left drained first, else in the given order.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ..module_utils._core.setting import EFFECTIVE
from ..plugin_utils.summary import accepted

MIG_LAYOUT = "mig_layout"
IDLE_GPU = "idle_gpu"


def repartitions(look: Mapping[str, Any]) -> bool:
    """Whether the look, a result of ``node_state``, found instances or a mode that are to change now."""
    result = look.get("concerns", {}).get(MIG_LAYOUT, {})
    planned = any(change["scope"] == EFFECTIVE for change in result.get("changes", ()))
    return planned or IDLE_GPU in result.get("needs", ())


def needs_repartition(hosts: Sequence[str], hostvars: Any, register: str, drained: Sequence[str] = ()) -> List[str]:
    looks = accepted(hostvars, hosts, register)
    first = [host for host in looks if host in drained and MIG_LAYOUT in looks[host].get("concerns", {})]
    return first + [host for host in looks if host not in first and repartitions(looks[host])]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"needs_repartition": needs_repartition}
