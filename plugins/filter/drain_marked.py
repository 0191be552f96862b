# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drain_marked
short_description: The hosts whose nodes are drained with our mark
version_added: 0.1.0
description:
  - Takes names of hosts and keeps those whose node is in what the scheduler answered to the host that asked for it.
  - A host whose scheduler gave no answer is an error.
positional: _input, hostvars, askers
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, that is P(ansible.builtin.hostvars#var). Facts are C(__drain_question), a
        dictionary with the name of the C(node), and on those that asked C(__drain_answer), a list of names of nodes.
    type: dict
    required: true
  askers:
    description: Who asked for each host, from P(gpufleet.node.drain_askers#filter).
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Name the nodes that are marked
  ansible.builtin.set_fact:
    drain_marked: "{{ ansible_play_hosts | gpufleet.node.drain_marked(hostvars, __drain_askers) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The names of the hosts, in the given order.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible.errors import AnsibleFilterError


def drain_marked(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], askers: Mapping[str, str]
) -> List[str]:
    answers: Dict[str, Sequence[str]] = {}
    for asker in set(askers.values()).intersection(hosts):
        answers[asker] = hostvars[asker]["__drain_answer"]
    waiting = [host for host in hosts if host in askers and askers[host] not in answers]
    if waiting:
        raise AnsibleFilterError(
            f"Cannot tell which nodes are drained with our mark on {waiting[0]} and {len(waiting) - 1} more: "
            f"{askers[waiting[0]]} asked for them and got no answer. What it got instead is above."
        )
    asked = [host for host in hosts if host in askers]
    return [host for host in asked if hostvars[host]["__drain_question"]["node"] in answers[askers[host]]]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"drain_marked": drain_marked}
