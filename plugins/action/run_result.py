# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ..module_utils._core.setting import IN_SYNC
from ..plugin_utils.answers import Look, answered
from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.playbooks import DRAINED, FAILURE, LEFT_DRAINED, REPORT
from ..plugin_utils.summary import REFUSED, Summary, registered, stopped, summarise, went_away

NAME = "gpufleet_run"
# It grows with a field that is taken away or means something else, and not with one that is added.
SCHEMA = 1
NO_ANSWER = "it did not respond"
GONE = "it stopped responding"
UNSAID = "see the output of the run"


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
        answering = set(variables["ansible_play_hosts"])
        kept: Dict[str, Any] = {
            "schema": SCHEMA,
            "playbook": arguments["playbook"],
            "check_mode": self._task.check_mode,
            "finished": arguments["finished"],
            "nodes_total": len(hosts),
            "nodes": summary.nodes,
            "settings": summary.counts,
            "failed": {
                host: cause
                for host in hosts
                for cause in (_cause(known[host], looks.get(host, {} if register else None), host in answering),)
                if cause
            },
            "not_started": stopped(hostvars, hosts)[0],
            "drained": [host for host in hosts if known[host].get(DRAINED, host in left) is True],
            "perhaps_drained": [host for host in hosts if known[host].get(DRAINED) == "perhaps"],
            "needs": _needs(summary),
            "report": next((list(one[REPORT].get("files", ())) for one in known.values() if REPORT in one), []),
        }
        return {"result": kept, "ansible_stats": {"data": {NAME: kept}, "per_host": False, "aggregate": False}}


def _cause(variables: Mapping[str, Any], look: Any, answering: bool) -> str:
    """Why a host has failed so far, or will at the end of the run; empty where it has not. ``look`` may be None."""
    if FAILURE in variables:
        return " ".join(str(variables[FAILURE]).removeprefix("failed: ").split())
    found: Look = look or {}
    if look is not None and not answered(found):
        return str(found.get("msg") or NO_ANSWER)
    if REFUSED in found:
        return " ".join(str(found[REFUSED]).split())
    if answering:
        return ""
    return GONE if went_away(look, in_play=False) else UNSAID


def _needs(summary: Summary) -> Dict[str, List[str]]:
    """The hosts that wait for something, by what it is."""
    hosts: Dict[str, Dict[str, None]] = {}
    for host, look in summary.looks.items():
        for entry in look.get("concerns", {}).values():
            for need in entry["needs"] if entry["status"] != IN_SYNC else ():
                hosts.setdefault(need, {})[host] = None
    return {need: list(names) for need, names in sorted(hosts.items())}
