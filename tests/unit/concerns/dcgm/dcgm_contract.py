# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``dcgm`` keeps the contract of all concerns."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpufleet.node.tests.unit.concerns.dcgm.dcgm_machine import (
    EXPORTER,
    SHIPPED,
    Dcgm,
    files_of,
    links_of,
)
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import Make, Node, concern_of
from ansible_collections.gpufleet.node.tests.unit.support import build

FEW = (
    "DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).\nDCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n"
)


def contract_node(make: Make) -> Node:
    # Two metrics are as good as sixty here, and sooner done with.
    host = make.machine({**files_of(), SHIPPED: FEW})
    build(Path(host.files.root), {}, links_of(4))
    dcgm = Dcgm(host)
    # The exporter with a host engine of its own, as its package has it.
    dcgm.run(EXPORTER)
    return Node(
        concern_of("dcgm"),
        host,
        {
            "host_engine": True,
            "exporter": True,
            "alert_metrics": False,
            "metrics": [{"name": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "type": "counter"}],
            "health_watches": ["all"],
        },
        {
            "host_engine": True,
            "exporter": True,
            "alert_metrics": False,
            "exclude_metrics": ["*_CLOCK"],
            "metrics": [{"name": "DCGM_FI_DEV_PSTATE", "help": "The performance state, of 0 to 15."}],
            "health_watches": ["memory", "pcie"],
        },
        state=dcgm.state,
        save_state=dcgm.memory,
        set_state=dcgm.remember,
        left={"/run/proc/4200/stat": "when the exporter was started: it was restarted to read the file of before"},
    )
