# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/kubelet_config.py: change it there.

"""The options of ``kubelet_config``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "cpu_manager_policy": {"type": "str"},
    "cpu_manager_policy_options": {"type": "dict", "default": {}},
    "reserved_system_cpus": {"type": "str"},
    "topology_manager_policy": {"type": "str"},
    "topology_manager_scope": {"type": "str"},
    "topology_manager_policy_options": {"type": "dict", "default": {}},
    "memory_manager_policy": {"type": "str"},
    "reserved_memory": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"numa_node": {"type": "int", "required": True}, "limits": {"type": "dict", "required": True}},
    },
    "system_reserved": {"type": "dict", "default": {}},
    "kube_reserved": {"type": "dict", "default": {}},
    "eviction_hard": {"type": "dict", "default": {}},
    "eviction_soft": {"type": "dict", "default": {}},
    "eviction_soft_grace_period": {"type": "dict", "default": {}},
    "eviction_minimum_reclaim": {"type": "dict", "default": {}},
    "fail_swap_on": {"type": "bool"},
    "swap_behavior": {"type": "str"},
    "shutdown_grace_period": {"type": "str"},
    "shutdown_grace_period_critical_pods": {"type": "str"},
    "client_certificate": {"type": "path"},
    "client_key": {"type": "path"},
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip", "ignore"], "default": "fail"},
    "busy_timeout": {"type": "int", "default": 600},
    "start_timeout": {"type": "int", "default": 120},
    "optional": {"type": "bool", "default": False},
}
