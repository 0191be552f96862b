# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: in_turn
short_description: The concerns that any host of a batch has, in the one order in which they are converged
version_added: 0.1.0
description:
  - Takes names of hosts and puts together what their registered results of M(gpufleet.node.node_state) name.
  - Where an include has a loop, Ansible takes up what the hosts include in the order in which it hears of it, and not
    in the order of the loop of each host. So all hosts loop over the same concerns, and each leaves out what it has
    not.
positional: _input, hostvars, register, key
options:
  key:
    description: Which list of the result.
    type: str
    choices: [to_run, kept]
    default: to_run
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Put the concerns of the batch in order
  ansible.builtin.set_fact:
    turns: "{{ ansible_play_hosts | gpufleet.node.in_turn(hostvars, 'look') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The names of the concerns, prerequisites first.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Sequence

from ..module_utils._node.registry import in_order
from ..plugin_utils.summary import registered


def in_turn(hosts: Sequence[str], hostvars: Any, register: str, key: str = "to_run") -> List[str]:
    looks = registered(hostvars, hosts, register).values()
    named = {name for look in looks if look for name in look.get(key, ())}
    return [entry.name for entry in in_order() if entry.name in named]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"in_turn": in_turn}
