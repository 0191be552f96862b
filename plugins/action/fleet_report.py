# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping

from ..module_utils._core.errors import GpuFleetError
from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.deliver import deliver
from ..plugin_utils.destination import check
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.report import as_html, as_json, as_junit, as_prometheus
from ..plugin_utils.report.model import Host, Report, build
from ..plugin_utils.summary import groups_of, now, registered, went_away

GOAL = "write the report"
GONE = "it stopped responding after the last look at it"
NAMES = {
    "json": "gpufleet-report.json",
    "html": "gpufleet-report.html",
    "junit": "gpufleet-report.junit.xml",
    "prometheus": "gpufleet.prom",
}
WRITERS: Mapping[str, Callable[[Report], str]] = {
    "json": as_json.render,
    "html": as_html.render,
    "junit": as_junit.render,
    "prometheus": as_prometheus.render,
}


class ActionModule(FleetAction):
    """Reads the registered results of all hosts and writes files; contacts no host."""

    OPTIONS = ARGUMENTS["fleet_report"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        written: List[str] = []
        result: Dict[str, Any] = {"files": written}
        try:
            check(arguments["dest"], goal=GOAL)
            report = build(
                self._hosts(variables, arguments),
                title=arguments["title"],
                generated=now(),
            )
            result["summary"] = report.summary
            dest, headers = arguments["dest"], arguments["headers"]
            for name, write in WRITERS.items():
                if name in arguments["formats"]:
                    written.append(deliver(dest, NAMES[name], write(report), headers, goal=GOAL))
        except GpuFleetError as error:
            result.update(failed=True, msg=str(error), failure=error.failure())
        return result

    @staticmethod
    def _hosts(variables: Mapping[str, Any], arguments: Mapping[str, Any]) -> Dict[str, Host]:
        names, info = variables["ansible_play_hosts_all"], arguments["info"]
        looks = registered(variables["hostvars"], names, arguments["look"])
        infos = registered(variables["hostvars"], names, info) if info else {}
        groups = groups_of(variables, looks)
        answering = set(variables["ansible_play_hosts"])
        hosts: Dict[str, Host] = {}
        for name, found in looks.items():
            gone = went_away(found, in_play=name in answering)
            cluster = arguments["clusters"].get(name)
            hosts[name] = Host({"msg": GONE} if gone else found or {}, infos.get(name), groups[name], cluster)
        return hosts
