# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drain_marked
short_description: The hosts whose nodes this collection has drained
version_added: 0.1.0
description:
  - Takes the names of the hosts that are still in the play, and returns those whose node is in the answer that their
    delegate got from the scheduler.
  - A host whose delegate got no answer is an error.
positional: _input, hostvars, asked
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, that is P(ansible.builtin.hostvars#var). On those that asked there is the fact
        C(__drain_answer), a list of names of nodes.
    type: dict
    required: true
  asked:
    description: The delegate of each host, and the node to ask for, from M(gpufleet.node.drain_delegates).
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Name the nodes that are marked
  ansible.builtin.set_fact:
    drain_marked: "{{ ansible_play_hosts | gpufleet.node.drain_marked(hostvars, __drain_asked.hosts) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The names of the hosts, in the order of the play.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ..plugin_utils.fleet_text import where


def drain_marked(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Mapping[str, str]]
) -> List[str]:
    answers: Dict[str, Sequence[str]] = {}
    for asker in {entry["delegate"] for entry in asked.values()}.intersection(hosts):
        answers[asker] = hostvars[asker]["__drain_answer"]
    waiting = [host for host, entry in asked.items() if entry["delegate"] not in (*answers, host)]
    if waiting:
        raise AnsibleFilterError(
            f"Cannot find out which nodes are drained with our mark on {where(waiting)}: "
            f"{asked[waiting[0]]['delegate']} asked for them and failed. Its own error is above."
        )
    return [host for host, entry in asked.items() if entry["node"] in answers.get(entry["delegate"], ())]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"drain_marked": drain_marked}
