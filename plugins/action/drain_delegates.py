# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Tuple

from ansible.errors import AnsibleActionFail
from ansible.utils.vars import load_extra_vars

from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.fleet_action import FleetAction


def asked(questions: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, str]]:
    """The delegate of each host, and the node to ask for, from the question of each."""
    first: Dict[str, str] = {}
    found = {}
    for host, question in questions.items():
        asker = first.setdefault(json.dumps(question["way"]), host)
        found[host] = {"delegate": asker, "node": str(question["node"])}
    return found


def needed(hosts: Mapping[str, Mapping[str, str]]) -> List[str]:
    delegates = [host for host, entry in hosts.items() if entry["delegate"] == host]
    others = [host for host, entry in hosts.items() if entry["delegate"] != host]
    return [*delegates, *others[:1]]


class ActionModule(FleetAction):
    """Templates the questions of all hosts in one process: a task of each host's own costs as much as a look at it."""

    OPTIONS = ARGUMENTS["drain_delegates"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        defaults, above = self._around(variables["hostvars"])
        found = {}
        for host in variables["ansible_play_hosts"]:
            known = {**defaults, **variables["hostvars"].raw_get(host), **above}
            for name in arguments.values():
                if name not in known:
                    raise AnsibleActionFail(f"Cannot choose a delegate for {host}: it has no variable {name}.")
            template = self._templar.copy_with_new_env(available_variables=known).template
            backend = template(known[arguments["backend"]])
            if backend in known[arguments["questions"]]:
                found[host] = template(known[arguments["questions"]][backend])
        hosts = asked(found)
        return {"hosts": hosts, "needed": needed(hosts)}

    def _around(self, hostvars: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """What ``hostvars`` does not have: the variables that those of a host stand above, and those above them."""
        role = self._task._role
        above = {"hostvars": hostvars, **self._task.get_vars(), **load_extra_vars(self._loader)}
        return (role.get_default_vars(), {**role.get_vars(include_params=False), **above}) if role else ({}, above)
