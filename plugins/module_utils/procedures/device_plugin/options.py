# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/device_plugin.py: change it there.

"""The options of ``device_plugin``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "nodes": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "strategy": {"type": "str", "choices": ["time_slicing", "mps"], "default": "time_slicing"},
            "replicas": {"type": "int", "default": 1},
            "resources": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, "replicas": {"type": "int", "required": True}},
            },
            "memory_mib": {"type": "int", "default": 0},
            "rename": {"type": "bool", "default": False},
            "fail_requests_greater_than_one": {"type": "bool", "default": True},
            "mig_strategy": {"type": "str", "choices": ["unset", "none", "single", "mixed"], "default": "unset"},
            "flags": {"type": "dict", "default": {}},
            "labels": {"type": "dict", "default": {}},
            "fact_labels": {"type": "bool", "default": True},
            "taints": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "key": {"type": "str", "required": True, "no_log": False},
                    "value": {"type": "str", "default": ""},
                    "effect": {"type": "str", "default": "NoSchedule"},
                },
            },
            "rdma_resources": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "prefix": {"type": "str", "default": "rdma"},
                    "hca_max": {"type": "int", "required": True},
                    "selectors": {
                        "type": "dict",
                        "required": True,
                        "options": {
                            "vendors": {"type": "list", "elements": "str", "default": []},
                            "device_ids": {"type": "list", "elements": "str", "default": []},
                            "drivers": {"type": "list", "elements": "str", "default": []},
                            "if_names": {"type": "list", "elements": "str", "default": []},
                            "link_types": {
                                "type": "list",
                                "elements": "str",
                                "choices": ["ether", "infiniband"],
                                "default": [],
                            },
                        },
                    },
                },
            },
            "rdma_update_interval": {"type": "int"},
            "device_classes": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "type": {"type": "str", "choices": ["gpu", "mig", "vfio"], "default": "gpu"},
                    "selectors": {"type": "list", "elements": "str", "required": True},
                },
            },
            "gpus": {"type": "list", "elements": "dict", "default": []},
        },
    },
    "namespace": {"type": "str", "default": "nvidia-device-plugin"},
    "config_map": {"type": "str", "default": "gpufleet-device-plugin"},
    "rdma_namespace": {"type": "str", "default": "kube-system"},
    "rdma_config_map": {"type": "str", "default": "rdma-devices"},
    "rdma_restart": {"type": "bool", "default": True},
    "timeout": {"type": "int", "default": 300},
    "poll": {"type": "int", "default": 15},
}
