# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/numa_irq_affinity.py: change it there.

"""The options of ``numa_irq_affinity``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "interrupts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "cpus": {"type": "str"},
            "isolated": {"type": "bool"},
            "numa_node": {"type": "int"},
            "near": {"type": "str", "choices": ["gpu"]},
            "spread": {"type": "str", "choices": ["one_per_irq", "all"], "default": "one_per_irq"},
            "rps": {"type": "bool"},
            "xps": {"type": "bool"},
            "optional": {"type": "bool", "default": False},
        },
    },
    "reserved_cpus": {"type": "str", "default": ""},
    "irqbalance": {"type": "str", "choices": ["cooperate", "disable", "ignore"], "default": "cooperate"},
}
