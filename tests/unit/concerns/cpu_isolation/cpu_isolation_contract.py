# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``cpu_isolation`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_isolation.cpu_isolation_machine import Systemd, files_of
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    host = make.machine(files_of())
    systemd = Systemd(host)

    def set_state(state: Any) -> None:
        systemd.read = dict(state)

    return Node(
        concern_of("cpu_isolation"),
        host,
        {"housekeeping_cpus": "0-1,8-9"},
        {"housekeeping_cpus": "0-3,8-11", "daemons": [{"name": "cron.service"}]},
        state=lambda: {unit: text for unit, text in systemd.read.items() if text},
        save_state=lambda: dict(systemd.read),
        set_state=set_state,
    )
