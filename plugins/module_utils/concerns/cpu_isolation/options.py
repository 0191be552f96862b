# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/cpu_isolation.py: change it there.

"""The options of ``cpu_isolation``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "housekeeping_cpus": {"type": "str"},
    "slices": {"type": "list", "elements": "str", "default": []},
    "daemons": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True}, "optional": {"type": "bool", "default": False}},
    },
    "most_housekeeping": {"type": "bool", "default": False},
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip"], "default": "fail"},
    "busy_timeout": {"type": "int", "default": 600},
}
