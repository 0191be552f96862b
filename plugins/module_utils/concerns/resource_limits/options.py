# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/resource_limits.py: change it there.

"""The options of ``resource_limits``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "sessions": {
        "type": "dict",
        "options": {
            "memlock": {"type": "str"},
            "nofile": {"type": "str"},
            "nproc": {"type": "str"},
            "rtprio": {"type": "str"},
        },
    },
    "services": {
        "type": "dict",
        "options": {
            "memlock": {"type": "str"},
            "nofile": {"type": "str"},
            "nproc": {"type": "str"},
            "rtprio": {"type": "str"},
        },
    },
    "units": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "memlock": {"type": "str"},
            "nofile": {"type": "str"},
            "nproc": {"type": "str"},
            "rtprio": {"type": "str"},
            "optional": {"type": "bool", "default": False},
        },
    },
}
