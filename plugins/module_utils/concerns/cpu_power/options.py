# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/cpu_power.py: change it there.

"""The options of ``cpu_power``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "governor": {"type": "str"},
    "energy_performance_preference": {"type": "str"},
    "energy_performance_bias": {"type": "str"},
    "min_frequency": {"type": "str"},
    "max_frequency": {"type": "str"},
    "turbo": {"type": "bool"},
    "max_idle_latency_us": {"type": "int"},
    "smt": {"type": "bool"},
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip"], "default": "fail"},
    "busy_timeout": {"type": "int", "default": 600},
}
