# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``container_runtime`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime import engine_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    main = engine_machine.main_of("docker")
    machine = engine_machine.EngineMachine(make.folder(), make.monkeypatch, {main: "log=json\n"})
    return Node(
        concern_of("container_runtime"),
        machine.host,
        {"engines": [{"engine": "docker", "default": True}]},
        {"engines": [{"engine": "docker"}]},
        left={f"{engine_machine.PREVIOUS}/docker.json": "what to put back where docker does not start without ours"},
    )
