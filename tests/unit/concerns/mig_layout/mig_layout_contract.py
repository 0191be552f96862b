# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``mig_layout`` keeps the contract of all concerns."""

from __future__ import annotations

from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout import mig_layout_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of, on_gpus


def contract_node(make: Make) -> Node:
    return on_gpus(
        concern_of("mig_layout"),
        mig_layout_machine.ready(make.gpu_machine, "a30-4"),
        {"gpus": [{"match": {"index": 0}, "layout": "all-1g"}]},
        {"gpus": [{"match": {"index": 0}, "layout": "all-2g"}]},
        left={
            "/run/gpufleet/gpu_reset_counts.json": "how often the driver reset each GPU, for as long as it is loaded"
        },
    )
