# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``kernel_modules`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_modules import kernel_modules_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of


def contract_node(make: Make) -> Node:
    # In the order in which the machine writes it.
    lines = (kernel_modules_machine.NOUVEAU_LOADED + kernel_modules_machine.NVME_LOADED).splitlines(keepends=True)
    loaded = "".join(sorted(lines))
    host, kernel = kernel_modules_machine.machine(make.folder(), loaded=loaded, initramfs=True)
    host.commands.programs["lsinitramfs"] = kernel.list_image
    parameters = {"dummy": {"numdummies": 2}, "nvme": {"poll_queues": 4}}
    return Node(
        concern_of("kernel_modules"),
        host,
        {"load": ["dummy"], "block": ["nouveau"], "parameters": parameters},
        {"load": ["nvidia_uvm"], "parameters": {"nvme": {"poll_queues": 2, "write_queues": 2}}},
    )
