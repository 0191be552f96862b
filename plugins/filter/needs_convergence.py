# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: needs_convergence
short_description: The hosts that need to be converged
version_added: 0.1.0
description:
  - Takes names of hosts and keeps those whose registered result of M(gpufleet.node.node_state) has concerns to
    converge.
  - Hosts whose declarations the look refused are left out.
positional: _input, hostvars, register, drained
options:
  drained:
    description:
      - Names of hosts that an earlier run has left drained. They come first, and are kept whatever the look found.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Group the nodes that have work
  ansible.builtin.add_host:
    name: "{{ item }}"
    groups: to_converge
  loop: "{{ ansible_play_hosts | gpufleet.node.needs_convergence(hostvars, 'look') }}"
"""

RETURN = r"""
_value:
  description: The names of the hosts that have work, those left drained first, else in the given order.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Sequence

from ..plugin_utils.summary import accepted


def needs_convergence(hosts: Sequence[str], hostvars: Any, register: str, drained: Sequence[str] = ()) -> List[str]:
    looks = accepted(hostvars, hosts, register)
    first = [host for host in looks if host in drained]
    return first + [host for host in looks if host not in first and looks[host].get("to_converge")]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"needs_convergence": needs_convergence}
