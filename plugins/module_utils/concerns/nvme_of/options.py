# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/nvme_of.py: change it there.

"""The options of ``nvme_of``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "subsystems": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "nqn": {"type": "str", "required": True},
            "transport": {"type": "str", "choices": ["loop", "rdma", "tcp"], "default": "tcp"},
            "paths": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "address": {"type": "str", "required": True},
                    "port": {"type": "int", "default": 4420},
                    "host_address": {"type": "str"},
                    "host_interface": {"type": "str"},
                },
            },
            "io_queues": {"type": "int"},
            "queue_size": {"type": "int"},
            "keep_alive_seconds": {"type": "int"},
            "reconnect_seconds": {"type": "int"},
            "loss_seconds": {"type": "int"},
            "fail_seconds": {"type": "int"},
            "dhchap_key_file": {"type": "str"},
            "dhchap_ctrl_key_file": {"type": "str"},
            "io_policy": {"type": "str", "choices": ["numa", "queue-depth", "round-robin"]},
        },
    },
    "discovery": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "transport": {"type": "str", "choices": ["rdma", "tcp"], "default": "tcp"},
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "default": 8009},
            "host_address": {"type": "str"},
            "host_interface": {"type": "str"},
            "match": {"type": "dict", "default": {}},
            "io_queues": {"type": "int"},
            "queue_size": {"type": "int"},
            "keep_alive_seconds": {"type": "int"},
            "reconnect_seconds": {"type": "int"},
            "loss_seconds": {"type": "int"},
            "fail_seconds": {"type": "int"},
            "dhchap_key_file": {"type": "str"},
            "dhchap_ctrl_key_file": {"type": "str"},
            "io_policy": {"type": "str", "choices": ["numa", "queue-depth", "round-robin"]},
        },
    },
}
