# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/rdma.py: change it there.

"""The options of ``rdma``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "devices": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "optional": {"type": "bool", "default": False},
            "ready": {"type": "bool", "default": False},
            "roce_mode": {"type": "str", "choices": ["v1", "v2"]},
            "roce_tos": {"type": "int"},
            "traffic_class": {"type": "int"},
            "pfc": {"type": "list", "elements": "int"},
            "dscp_priorities": {"type": "dict", "default": {}},
            "ecn": {"type": "list", "elements": "int", "default": []},
        },
    },
    "gpudirect": {"type": "str", "choices": ["auto", "dma_buf", "peermem", "ignore"], "default": "ignore"},
    "job_ports": {
        "type": "dict",
        "default": {},
        "options": {
            "networks": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "list", "elements": "str", "default": []},
        },
    },
}
