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
  - With C(to_converge), a concern that waits for a later one is listed a second time, right after the one that it
    waits for.
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

from typing import Any, Callable, Dict, List, Optional, Sequence

from ..module_utils._node.registry import REGISTRY
from ..plugin_utils.summary import registered

TO_CONVERGE = "to_converge"


def ordered_concerns(hosts: Sequence[str], hostvars: Any, register: str, key: str = TO_CONVERGE) -> List[str]:
    looks = [look for look in registered(hostvars, hosts, register).values() if look]
    named = {name for look in looks for name in look.get(key, ())}
    order = [entry.name for entry in REGISTRY if entry.name in named]
    for look in looks:
        for name in look.get("waiting", ()) if key == TO_CONVERGE else ():
            order = _with_second_turn(order, name, look["concerns"][name].get("failure", {}).get("code"))
    return order


def _with_second_turn(order: List[str], name: str, code: Optional[str]) -> List[str]:
    """The order with another turn of a concern behind what it waits for, where that comes after it.

    ``kernel_tunables`` comes first to raise ``fs.nr_open``. To lower it, it waits for ``resource_limits``.
    """
    awaited = [entry.name for entry in REGISTRY if code in entry.registration.cures and entry.name in order]
    last = max((order.index(one) for one in awaited), default=-1)
    return order if name in order[last:] or last < 0 else [*order[: last + 1], name, *order[last + 1 :]]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"ordered_concerns": ordered_concerns}
