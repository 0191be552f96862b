# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/gpu_node_info.py: change it there.

"""The options of ``gpu_node_info``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "gather": {
        "type": "list",
        "elements": "str",
        "choices": [
            "all",
            "block",
            "cdi",
            "driver",
            "engines",
            "firmware",
            "gds",
            "gpus",
            "health",
            "holders",
            "interrupts",
            "memory",
            "network",
            "orchestrator",
            "owners",
            "topology",
        ],
        "default": [
            "block",
            "cdi",
            "driver",
            "engines",
            "firmware",
            "gpus",
            "health",
            "interrupts",
            "memory",
            "network",
            "orchestrator",
            "owners",
            "topology",
        ],
    },
    "compress": {"type": "bool", "default": False},
    "binding": {"type": "str", "default": "", "no_log": True},
}
