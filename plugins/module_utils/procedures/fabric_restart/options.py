# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/fabric_manager_restart.py: change it there.

"""The options of ``fabric_manager_restart``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "daemon": {"type": "str", "choices": ["fabric_manager", "imex"], "required": True},
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip"], "default": "skip"},
    "busy_timeout": {"type": "int", "default": 600},
    "start_timeout": {"type": "int", "default": 120},
}
