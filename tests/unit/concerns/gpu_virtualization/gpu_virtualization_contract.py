# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``gpu_virtualization`` keeps the contract of all concerns."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_virtualization.virtualization_machine import (
    FIRST,
    Machine,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    machine = Machine(make.folder(), functions=(FIRST,))
    # Once it is loaded it stays, and no run takes it away.
    machine.host.commands.programs["modprobe"](("modprobe", "vfio-pci"))

    def set_state(state: Any) -> None:
        machine.closed, machine.read = set(state[0]), dict(state[1])

    return Node(
        concern_of("gpu_virtualization"),
        machine.host,
        {"gpus": [{"match": {"pci_address": FIRST}, "driver": "vfio-pci"}]},
        {"gpus": [{"driver": "nvidia"}]},
        state=lambda: (sorted(machine.closed), sorted(text for text in machine.read.values() if text)),
        save_state=lambda: (sorted(machine.closed), dict(machine.read)),
        set_state=set_state,
    )
