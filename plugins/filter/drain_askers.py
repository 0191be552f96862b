# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drain_askers
short_description: The host that asks a scheduler in the name of each other
version_added: 0.1.0
description:
  - Takes names of hosts, of which each has a fact that says how its scheduler is asked, and gives to each the first of
    those with the same way. Hosts that have no scheduler are left out.
positional: _input, hostvars
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts, that is P(ansible.builtin.hostvars#var). The fact is C(__drain_question), a
        dictionary with C(way), anything that is the same where one answer is enough.
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Choose who asks
  ansible.builtin.set_fact:
    __drain_askers: "{{ ansible_play_hosts | gpufleet.node.drain_askers(hostvars) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The name of the host that asks, by the name of each host.
  type: dict
"""

import json
from typing import Any, Callable, Dict, Mapping, Sequence


def drain_askers(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> Dict[str, str]:
    first: Dict[str, str] = {}
    askers: Dict[str, str] = {}
    for host in hosts:
        question = hostvars[host]["__drain_question"]
        if question:
            askers[host] = first.setdefault(json.dumps(question["way"]), host)
    return askers


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"drain_askers": drain_askers}
