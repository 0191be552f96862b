# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/container_engine_restart.py: change it there.

"""The options of ``container_engine_restart``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "engine": {"type": "str", "choices": ["docker", "containerd", "crio"], "required": True},
    "action": {"type": "str", "choices": ["reload", "restart"], "default": "restart"},
    "health_timeout": {"type": "int", "default": 60},
    "when_containers_run": {"type": "str", "choices": ["fail", "skip", "restart"], "default": "fail"},
}
