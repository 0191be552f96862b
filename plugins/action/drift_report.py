# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils._core.change import DIFFERS, PENDING, RIGHT, UNKNOWN
from ..module_utils._node.table import device_table, devices_of, rows_of, table

UNREACHABLE = "unreachable"
# From best to worst: a node is called by the worst thing found on it.
SEVERITY = (RIGHT, PENDING, DIFFERS, UNKNOWN, UNREACHABLE)


class ActionModule(ActionBase):
    """Prints by the display, line by line: a table inside a JSON string cannot be read."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False
    _VALID_ARGS = frozenset(("register", "fail_on_drift", "title"))

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        _validated, arguments = self.validate_argument_spec(
            {
                "register": {"type": "str", "required": True},
                "fail_on_drift": {"type": "bool", "default": False},
                "title": {"type": "str", "default": "Drift"},
            }
        )
        rows: List[Dict[str, Any]] = []
        devices: List[Dict[str, Any]] = []
        counts = dict.fromkeys((RIGHT, DIFFERS, PENDING, UNKNOWN), 0)
        nodes: Dict[str, List[str]] = {status: [] for status in SEVERITY}
        reboots: Dict[str, List[str]] = {}
        for host in variables["ansible_play_hosts_all"]:
            look = variables["hostvars"][host].get(arguments["register"])
            if not look or "concerns" not in look:
                nodes[UNREACHABLE].append(host)
                continue
            found = rows_of(host, look)
            rows.extend(found)
            devices.extend(devices_of(host, look))
            counts[RIGHT] += sum(entry["settings_right"] for entry in look["concerns"].values())
            for row in found:
                if row["status"] in counts:
                    counts[row["status"]] += 1
            worst = max(
                (row["status"] for row in found if row["status"] in SEVERITY), key=SEVERITY.index, default=RIGHT
            )
            nodes[worst].append(host)
            reasons = [reason for entry in look["concerns"].values() for reason in entry["reboot_reasons"]]
            if reasons:
                reboots[host] = reasons
        self._print(arguments["title"], rows, devices, counts, nodes, reboots)
        result.update(changed=False, rows=rows, devices=devices, counts=counts, nodes=nodes, reboot_reasons=reboots)
        bad = [*nodes[DIFFERS], *nodes[UNKNOWN], *nodes[UNREACHABLE]]
        if arguments["fail_on_drift"] and bad:
            result.update(
                failed=True, msg=f"{len(bad)} of {len(variables['ansible_play_hosts_all'])} nodes are not right"
            )
        return result

    @staticmethod
    def _print(
        title: str,
        rows: Sequence[Mapping[str, Any]],
        devices: Sequence[Mapping[str, Any]],
        counts: Mapping[str, int],
        nodes: Mapping[str, Sequence[str]],
        reboots: Mapping[str, Sequence[str]],
    ) -> None:
        display = Display()
        display.display("")
        display.display(title)
        for line in table(rows) if rows else ():
            display.display(f"  {line}")
        for line in device_table(devices) if devices else ():
            display.display(f"  {line}")
        for host, reasons in reboots.items():
            for reason in reasons:
                display.display(f"  {host} needs a reboot: {reason}")
        for host in nodes[UNREACHABLE]:
            display.display(f"  {host} gave no answer")
        total = sum(len(names) for names in nodes.values())
        settings = ", ".join(f"{count} {status}" for status, count in counts.items() if count or status == RIGHT)
        display.display(f"  {len(nodes[RIGHT])} of {total} nodes are right. Settings: {settings}.")
