# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/slurm_gpus.py: change it there.

"""The options of ``slurm_gpus``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "devices": {"type": "str"},
    "folder": {"type": "path", "default": "/etc/slurm"},
    "node_name": {"type": "str"},
    "types": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "type": {"type": "str", "required": True},
            "optional": {"type": "bool", "default": False},
        },
    },
    "cores": {"type": "bool", "default": True},
    "links": {"type": "bool", "default": True},
    "shards": {"type": "int"},
    "mps": {"type": "int"},
    "constrain_devices": {"type": "bool", "default": True},
}
