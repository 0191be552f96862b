# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/dcgm.py: change it there.

"""The options of ``dcgm``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "host_engine": {"type": "bool"},
    "exporter": {"type": "bool"},
    "metrics": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "type": {"type": "str", "choices": ["counter", "gauge", "label"], "default": "gauge"},
            "help": {"type": "str", "default": ""},
        },
    },
    "shipped_metrics": {"type": "bool", "default": True},
    "alert_metrics": {"type": "bool", "default": True},
    "exclude_metrics": {"type": "list", "elements": "str", "default": []},
    "health_watches": {"type": "list", "elements": "str", "default": []},
    "packages": {"type": "list", "elements": "str", "default": []},
    "optional": {"type": "bool", "default": False},
}
