# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/gpu_settings.py: change it there.

"""The options of ``gpu_settings``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "gpus": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "locked_graphics_clocks": {"type": "str"},
            "locked_memory_clocks": {"type": "str"},
            "power_limit_watts": {"type": "str"},
            "ecc": {"type": "str", "choices": ["enabled", "disabled", "default"]},
            "compute_mode": {"type": "str", "choices": ["default", "exclusive_process", "prohibited"]},
            "time_slice": {"type": "str", "choices": ["default", "short", "medium", "long"]},
            "optional": {"type": "bool", "default": False},
        },
    },
}
