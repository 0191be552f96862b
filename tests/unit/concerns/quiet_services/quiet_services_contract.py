# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``quiet_services`` keeps the contract of all concerns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.quiet_services.quiet_services_machine import (
    ENABLED,
    Units,
    files_of,
    links_of,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of
from ansible_collections.gpufleet.node.tests.unit.support import build


def contract_node(make: Make) -> Node:
    host = make.machine(files_of())
    root = Path(host.files.root)
    build(root, {}, links_of())
    units = Units(host, root, tuple(ENABLED))

    def set_state(state: Any) -> None:
        units.active = set(state)

    return Node(
        concern_of("quiet_services"),
        host,
        {"units": ["man-db.timer", {"name": "cups.service", "method": "disable"}]},
        {"units": ["apt-daily.timer", "cups.service"]},
        state=lambda: sorted(units.active),
        save_state=lambda: sorted(units.active),
        set_state=set_state,
    )
