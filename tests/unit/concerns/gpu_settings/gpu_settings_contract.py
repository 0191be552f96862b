# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on which ``gpu_settings`` keeps the contract of all concerns."""

from __future__ import annotations

import gpu_settings_machine
from concern_machines import Make, Node, concern_of, on_gpus


def contract_node(make: Make) -> Node:
    return on_gpus(
        concern_of("gpu_settings"),
        gpu_settings_machine.ready(make.gpu_machine, "l40s-1"),
        {"gpus": [{"power_limit_watts": 250, "locked_graphics_clocks": "1200-1500", "ecc": "disabled"}]},
        {"gpus": [{"power_limit_watts": 200}]},
    )
