# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: held_for_boot
short_description: The hosts whose boot loader is not written before another host has booted
version_added: 0.1.0
description:
  - Takes names of hosts and keeps those to which M(gpufleet.node.kernel_cmdline) would write arguments with which no
    host has booted yet. Only a boot shows whether a host still boots with them.
  - Hosts with the same declaration and the same release of the distribution have one canary, which is not kept. It is
    the host where the arguments wait for a reboot already, or else the first one. As soon as the arguments are in
    effect on one of them, none is kept.
positional: _input, hostvars, register, drained
options:
  drained:
    description: Names of hosts that an earlier run has left drained. One of them is the canary where there is one.
    type: list
    elements: str
    default: []
seealso:
  - module: gpufleet.node.kernel_cmdline
extends_documentation_fragment:
  - gpufleet.node.looks
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show which nodes wait, and for which
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | gpufleet.node.held_for_boot(hostvars, 'look') }}"
"""

RETURN = r"""
_value:
  description: The canaries by the names of the hosts that wait for them.
  type: dict
  sample: {"gpu-002": "gpu-001", "gpu-003": "gpu-001"}
"""

import json
from typing import Any, Callable, Dict, List, Sequence

from ..module_utils._core.setting import ACCEPTED, DRIFTED, IN_SYNC, PENDING
from ..module_utils._node.table import is_ours
from ..plugin_utils.answers import Look
from ..plugin_utils.declarations import declaration_of
from ..plugin_utils.summary import accepted

CONCERN = "kernel_cmdline"


def held_for_boot(hosts: Sequence[str], hostvars: Any, register: str, drained: Sequence[str] = ()) -> Dict[str, str]:
    looks = {
        host: look
        for host, look in accepted(hostvars, hosts, register).items()
        if look.get("concerns", {}).get(CONCERN, {}).get("status") in (IN_SYNC, PENDING, DRIFTED)
    }
    # Most runs write no boot loader, and what each host declares need not be read.
    if not any(_where_arguments_are(look) == DRIFTED for look in looks.values()):
        return {}
    alike: Dict[str, Dict[str, List[str]]] = {}
    for host in sorted(looks, key=lambda host: host not in drained):
        by_status = alike.setdefault(_same_for(looks[host], hostvars[host]), {IN_SYNC: [], PENDING: [], DRIFTED: []})
        by_status[_where_arguments_are(looks[host])].append(host)
    held: Dict[str, str] = {}
    for by_status in alike.values():
        if not by_status[IN_SYNC]:
            canary = (by_status[PENDING] + by_status[DRIFTED])[0]
            held.update((host, canary) for host in by_status[DRIFTED] if host != canary)
    return {host: held[host] for host in hosts if host in held}


def _where_arguments_are(look: Look) -> str:
    """The status of the arguments alone: that a file of ours is missing or damaged takes no boot to mend."""
    rows = look["concerns"][CONCERN].get("settings", ())
    differing = {row["status"] for row in rows if row["status"] not in (IN_SYNC, ACCEPTED) and not is_ours(row)}
    return IN_SYNC if not differing else PENDING if differing == {PENDING} else DRIFTED


def _same_for(look: Look, variables: Any) -> str:
    """Equal for hosts of which the boot of one says something about the others."""
    facts = look.get("facts", {})
    # The values of a host's variables are no templates any more when they are taken from hostvars.
    declared = declaration_of(CONCERN, variables, lambda value: value)
    distribution = [facts.get(name) for name in ("distribution", "distribution_version")]
    return json.dumps([distribution, declared], sort_keys=True, default=str)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"held_for_boot": held_for_boot}
