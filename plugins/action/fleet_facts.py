# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Mapping

from ansible.utils.display import Display

from ..module_utils._core.errors import GpuFleetError
from ..module_utils._core.wording import counted
from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.deliver import deliver, place_of
from ..plugin_utils.destination import check
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.fleet_facts import NAME, document, missing
from ..plugin_utils.report.as_json import by_lines
from ..plugin_utils.summary import groups_of, now, registered

GOAL = "write the facts"
# Serial numbers, command lines of kernels and, where they were asked for, of programs.
MODE = 0o640


class ActionModule(FleetAction):
    """Reads the registered results of all hosts and writes one file; contacts no host. Prints what it did."""

    OPTIONS = ARGUMENTS["fleet_facts"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        infos = registered(variables["hostvars"], variables["ansible_play_hosts_all"], arguments["info"])
        found = document(infos, groups_of(variables, infos), generated=now())
        without = missing(found["nodes"])
        result: Dict[str, Any] = {"missing": without, "nodes_total": len(infos)}
        try:
            check(arguments["dest"], goal=GOAL)
            place = place_of(arguments["dest"], NAME)
            if not self._task.check_mode:
                deliver(arguments["dest"], NAME, by_lines(found), arguments["headers"], goal=GOAL, mode=MODE)
        except GpuFleetError as error:
            result.update(failed=True, msg=str(error), failure=error.failure())
            return result
        verb = "Would write" if self._task.check_mode else "Wrote"
        count = f"{len(infos) - len(without)} of {counted(len(infos), 'node')}"
        result.update(file=place, msg=f"{verb} the facts of {count} to {place}.")
        Display().display(f"\n{result['msg']}")
        return result
