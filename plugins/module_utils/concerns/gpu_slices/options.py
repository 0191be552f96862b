# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/gpu_slices.py: change it there.

"""The options of ``gpu_slices``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "gpus": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "io_weight": {"type": "int"},
            "io_limits": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "device": {"type": "str", "required": True},
                    "read_bandwidth": {"type": "str"},
                    "write_bandwidth": {"type": "str"},
                    "read_iops": {"type": "str"},
                    "write_iops": {"type": "str"},
                },
            },
            "swap": {"type": "bool", "default": False},
            "optional": {"type": "bool", "default": False},
        },
    },
    "numa_nodes": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "node": {"type": "int", "required": True},
            "io_weight": {"type": "int"},
            "io_limits": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "device": {"type": "str", "required": True},
                    "read_bandwidth": {"type": "str"},
                    "write_bandwidth": {"type": "str"},
                    "read_iops": {"type": "str"},
                    "write_iops": {"type": "str"},
                },
            },
            "swap": {"type": "bool", "default": False},
            "optional": {"type": "bool", "default": False},
        },
    },
    "reserved_cpus": {"type": "str"},
    "protected_services": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "oom_score_adjust": {"type": "int", "default": -900},
            "optional": {"type": "bool", "default": False},
        },
    },
    "launch_group": {"type": "str"},
    "beside_scheduler": {"type": "bool", "default": False},
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip"], "default": "fail"},
    "busy_timeout": {"type": "int", "default": 600},
}
