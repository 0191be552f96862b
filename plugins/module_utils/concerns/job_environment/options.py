# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/job_environment.py: change it there.

"""The options of ``job_environment``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "variables": {"type": "dict"},
    "places": {
        "type": "list",
        "elements": "str",
        "choices": ["sessions", "services", "slurm", "containers"],
        "default": ["sessions"],
    },
    "units": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "variables": {"type": "dict", "required": True},
            "optional": {"type": "bool", "default": False},
        },
    },
    "nccl": {"type": "dict"},
}
