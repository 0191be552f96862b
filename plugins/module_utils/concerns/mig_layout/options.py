# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/mig_layout.py: change it there.

"""The options of ``mig_layout``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "gpus": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "mig": {"type": "str", "choices": ["enabled", "disabled"], "default": "enabled"},
            "layout": {"type": "str"},
            "instances": {"type": "list", "elements": "raw"},
            "optional": {"type": "bool", "default": False},
        },
    },
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip"], "default": "fail"},
    "busy_timeout": {"type": "int", "default": 600},
    "stop_services": {"type": "list", "elements": "str", "default": []},
}
