# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ..module_utils._core.setting import IN_SYNC
from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.failures import Failure, failures_in, sentences
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.playbooks import DRAINED, LEFT_DRAINED, REPORT
from ..plugin_utils.summary import Summary, registered, stopped, summarise

NAME = "gpufleet_run"
# It grows with a field that is taken away or means something else, and not with one that is added.
SCHEMA = 1


class ActionModule(FleetAction):
    """Returns statistics as ``set_stats`` does, so that every playbook keeps them in one way."""

    OPTIONS = ARGUMENTS["run_result"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        hosts, hostvars = variables["ansible_play_hosts_all"], variables["hostvars"]
        # As they are: what a host answered is no template.
        known: Dict[str, Mapping[str, Any]] = {host: hostvars.raw_get(host) for host in hosts}
        register = arguments["register"]
        looks = registered(hostvars, hosts, register) if register else {}
        summary = summarise({host: look or {} for host, look in looks.items()}, arguments["clusters"])
        left = set(variables.get("groups", {}).get(LEFT_DRAINED, ()))
        # Of what is only predicted, none is drained that was not before.
        noted = {} if self._task.check_mode else known
        drained = {host: noted.get(host, {}).get(DRAINED, host in left) for host in hosts}
        failures = failures_in(known, looks or dict.fromkeys(hosts), variables["ansible_play_hosts"])
        for host, one in arguments["foreseen"].items():
            failures[host] = Failure(one["how"], tuple(one["causes"]))
        said = sentences(failures)
        kept: Dict[str, Any] = {
            "schema": SCHEMA,
            "playbook": arguments["playbook"],
            "check_mode": self._task.check_mode,
            "finished": arguments["finished"],
            "nodes_total": len(hosts),
            "nodes": summary.nodes,
            "settings": summary.counts,
            "failed": {host: failure.text for host, failure in failures.items()},
            "not_started": stopped(hostvars, hosts)[0],
            "drained": [host for host in hosts if drained[host] is True],
            "perhaps_drained": [host for host in hosts if drained[host] == "perhaps"],
            "needs": _needs(summary),
            "report": next((list(one[REPORT].get("files", ())) for one in known.values() if REPORT in one), []),
        }
        return {
            "result": kept,
            "failures": {host: {"lines": one.lines, "sentence": said[host]} for host, one in failures.items()},
            "ansible_stats": {"data": {NAME: kept}, "per_host": False, "aggregate": False},
        }


def _needs(summary: Summary) -> Dict[str, List[str]]:
    """The hosts that wait for something, by what it is."""
    hosts: Dict[str, Dict[str, None]] = {}
    for host, look in summary.looks.items():
        for entry in look.get("concerns", {}).values():
            for need in entry["needs"] if entry["status"] != IN_SYNC else ():
                hosts.setdefault(need, {})[host] = None
    return {need: list(names) for need, names in sorted(hosts.items())}
