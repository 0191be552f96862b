# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible.utils.display import Display
from ansible.utils.helpers import pct_to_int

from ..plugin_utils.arguments import ARGUMENTS
from ..plugin_utils.fleet_action import FleetAction
from ..plugin_utils.fleet_text import where
from ..plugin_utils.playbooks import DRAINED, parse_list


def in_batches(hosts: Sequence[str], batches: Sequence[Any]) -> List[List[str]]:
    """The hosts of a play as Ansible divides them by ``serial``, whose last entry is repeated."""
    found: List[List[str]] = []
    rest = list(hosts)
    while rest:
        size = pct_to_int(batches[min(len(found), len(batches) - 1)], len(hosts))
        found.append(rest[:size])
        rest = rest[size:]
    return found


class ActionModule(FleetAction):
    """Prints by the display where it stops, so that the names are not inside a JSON string."""

    OPTIONS = ARGUMENTS["batch_gate"]

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        sizes = parse_list(arguments["batches"])
        batches = in_batches(variables["ansible_play_hosts_all"], sizes if isinstance(sizes, list) else [sizes])
        # Those of this batch are the restriction of the inventory, so one of them says which one it is.
        index = next(n for n, hosts in enumerate(batches) if variables["inventory_hostname"] in hosts)
        answering = set(variables["ansible_play_hosts"])
        failed = [
            host
            for host in (batches[index - 1] if index else [])
            if host not in answering or arguments["failed_variable"] in variables["hostvars"].raw_get(host)
        ]
        stop = len(failed) > arguments["max_failed"]
        not_begun = [host for hosts in batches[index:] for host in hosts]
        if stop:
            drained = [host for host in failed if variables["hostvars"].raw_get(host).get(DRAINED)]
            self._print(index, len(batches), failed, drained, not_begun)
        return {
            "batch": index + 1,
            "batches": len(batches),
            "failed_hosts": failed,
            "stop": stop,
            "not_begun": not_begun,
        }

    @staticmethod
    def _print(last: int, total: int, failed: Sequence[str], drained: Sequence[str], not_begun: Sequence[str]) -> None:
        display = Display()
        display.display("")
        display.display(f"Batch {last} of {total}: {where(failed)} failed. No further batch is started.")
        if drained:
            display.display(f"  Still out of service: {where(drained)}")
        display.display(f"  Not started: {where(not_begun)}")
        display.display("  Fix the cause and run it again: it continues where it stopped.")
