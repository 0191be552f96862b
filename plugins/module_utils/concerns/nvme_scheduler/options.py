# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/nvme_scheduler.py: change it there.

"""The options of ``nvme_scheduler``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "queues": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "scheduler": {"type": "str"},
            "read_ahead_kb": {"type": "int"},
            "nr_requests": {"type": "int"},
            "rq_affinity": {"type": "int", "choices": [0, 1, 2]},
            "nomerges": {"type": "int", "choices": [0, 1, 2]},
            "wbt_lat_usec": {"type": "int"},
            "io_timeout_ms": {"type": "int"},
            "max_sectors_kb": {"type": "int"},
            "optional": {"type": "bool", "default": False},
        },
    },
}
