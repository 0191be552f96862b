# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ordered_concerns
short_description: The concerns that any host of a batch has, in the one order in which they are converged
version_added: 0.1.0
description:
  - Takes names of hosts and puts together what their registered results of M(gpufleet.node.node_state) name.
  - With an include in a loop, Ansible runs the included files in the order in which the hosts report them, and not in
    the order of each host's loop. So all hosts loop over the same concerns, and each host skips those that it does not
    have.
positional: _input, hostvars, register, key
options:
  key:
    description: Which list of the result.
    type: str
    choices: [to_converge, managed]
    default: to_converge
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Put the concerns of the batch in order
  ansible.builtin.set_fact:
    turns: "{{ ansible_play_hosts | gpufleet.node.ordered_concerns(hostvars, 'look') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The names of the concerns, prerequisites first.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Sequence

from ..module_utils._node.registry import REGISTRY
from ..plugin_utils.summary import registered


def ordered_concerns(hosts: Sequence[str], hostvars: Any, register: str, key: str = "to_converge") -> List[str]:
    looks = registered(hostvars, hosts, register).values()
    named = {name for look in looks if look for name in look.get(key, ())}
    return [entry.name for entry in REGISTRY if entry.name in named]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"ordered_concerns": ordered_concerns}
