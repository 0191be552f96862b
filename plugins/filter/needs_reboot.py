# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: needs_reboot
short_description: The hosts that need a reboot, and why
version_added: 0.1.0
description:
  - Takes names of hosts and keeps those where something waits for a reboot, by a registered result of
    M(gpufleet.node.node_state) or by C(reboot_reasons), and where C(reboot_allowed) does not forbid it.
positional: _input, hostvars, register, drained
options:
  drained:
    description: Names of hosts that an earlier run has left drained. They come first, even if nothing waits now.
    type: list
    elements: str
    default: []
seealso:
  - plugin: gpufleet.node.reboot_reasons
    plugin_type: filter
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show which nodes will be rebooted, and why
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | gpufleet.node.needs_reboot(hostvars, 'look') }}"
"""

RETURN = r"""
_value:
  description: The reasons by the names of the hosts, those left drained first, else in the given order.
  type: dict
"""

from typing import Any, Callable, Dict, List, Sequence

from ansible.module_utils.parsing.convert_bool import boolean

from ..plugin_utils.playbooks import parse_list
from ..plugin_utils.summary import accepted
from .reboot_reasons import reboot_reasons


def needs_reboot(
    hosts: Sequence[str], hostvars: Any, register: str, drained: Sequence[str] = ()
) -> Dict[str, List[str]]:
    looks = accepted(hostvars, hosts, register)
    first = set(drained)
    found: Dict[str, List[str]] = {host: [] for host in looks if host in first}
    for host, look in looks.items():
        variables = hostvars[host]
        reasons = [*parse_list(variables.get("reboot_reasons", [])), *reboot_reasons(look)]
        if reasons and boolean(variables.get("reboot_allowed", True)):
            found[host] = reasons
    return found


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"needs_reboot": needs_reboot}
