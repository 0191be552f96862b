# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/slurm_topology.py: change it there.

"""The options of ``slurm_topology``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "switches": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True}, "nodes": {"type": "str"}, "switches": {"type": "str"}},
    },
    "blocks": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"name": {"type": "str", "required": True}, "nodes": {"type": "str", "required": True}},
    },
    "block_sizes": {"type": "list", "elements": "int", "default": []},
    "topologies": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "cluster_default": {"type": "bool", "default": False},
            "switches": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "nodes": {"type": "str"},
                    "switches": {"type": "str"},
                },
            },
            "blocks": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, "nodes": {"type": "str", "required": True}},
            },
            "block_sizes": {"type": "list", "elements": "int", "default": []},
            "flat": {"type": "bool", "default": False},
        },
    },
    "folder": {"type": "path", "default": "/etc/slurm"},
}
