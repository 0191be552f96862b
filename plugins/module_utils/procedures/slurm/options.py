# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/slurm_node.py: change it there.

"""The options of ``slurm_node``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "in_service"], "required": True},
    "reason": {"type": "str", "default": "maintenance"},
    "update_reason": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 3600},
    "poll": {"type": "int", "default": 15},
}
