# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, Mapping, Optional, Sequence

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils._core.change import DIFFERS, INVALID, RIGHT, UNKNOWN
from ..module_utils._node.table import device_table, table
from ..plugin_utils.playbooks import DRAINED
from ..plugin_utils.summary import UNREACHABLE, Summary, registered, summarise, went_away


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
        looks = registered(variables["hostvars"], variables["ansible_play_hosts_all"], arguments["register"])
        summary = summarise({host: look or {} for host, look in looks.items()})
        rows, devices = list(chain(*summary.rows.values())), list(chain(*summary.devices.values()))
        answering = set(variables["ansible_play_hosts"])
        gone = {
            host: bool(variables["hostvars"].raw_get(host).get(DRAINED))
            for host, look in looks.items()
            if went_away(look, in_play=host in answering)
        }
        self._print(arguments["title"], rows, devices, summary, gone)
        result.update(
            changed=False,
            rows=rows,
            devices=devices,
            counts=summary.counts,
            nodes=summary.nodes,
            reboot_reasons=summary.reboot_reasons,
        )
        bad = [name for status in (DIFFERS, UNKNOWN, INVALID, UNREACHABLE) for name in summary.nodes[status]]
        if arguments["fail_on_drift"] and bad:
            result.update(failed=True, msg=f"{len(bad)} of {summary.total} nodes are not right")
        return result

    @staticmethod
    def _print(
        title: str,
        rows: Sequence[Mapping[str, Any]],
        devices: Sequence[Mapping[str, Any]],
        summary: Summary,
        gone: Mapping[str, bool],
    ) -> None:
        display = Display()
        display.display("")
        display.display(title)
        for line in table(rows) if rows else ():
            display.display(f"  {line}")
        for line in device_table(devices) if devices else ():
            display.display(f"  {line}")
        for host, reasons in summary.reboot_reasons.items():
            for reason in reasons:
                display.display(f"  {host} needs a reboot: {reason}")
        for host in summary.nodes[UNREACHABLE]:
            display.display(f"  {host} gave no answer")
        for host, drained in gone.items():
            display.display(f"  {host} gave no answer any more" + (", and was drained before" if drained else ""))
        settings = ", ".join(
            f"{count} {status}" for status, count in summary.counts.items() if count or status == RIGHT
        )
        display.display(f"  {len(summary.nodes[RIGHT])} of {summary.total} nodes are right. Settings: {settings}.")
