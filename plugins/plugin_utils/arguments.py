# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules: change it there.

"""The options of the modules that run on the controller, by the name of the module."""

from __future__ import annotations

from typing import Any, Mapping

ARGUMENTS: Mapping[str, Any] = {
    "assess_node": {"whole": {"type": "bool", "default": False}},
    "batch_gate": {
        "batches": {"type": "raw", "required": True},
        "max_failed": {"type": "int", "default": 0},
        "failed_variable": {"type": "str", "required": True},
    },
    "drain_delegates": {"backend": {"type": "str", "required": True}, "questions": {"type": "str", "required": True}},
    "drift_report": {
        "register": {"type": "str", "required": True},
        "fail_on_drift": {"type": "bool", "default": False},
        "title": {"type": "str", "default": "Drift"},
        "detail": {"type": "str", "choices": ["brief", "devices", "full"], "default": "brief"},
        "files": {"type": "bool", "default": False},
        "forecast": {"type": "str", "choices": ["site", "mig_repartition", "reboot", "remove"]},
        "clusters": {"type": "dict", "default": {}},
    },
    "fleet_facts": {
        "info": {"type": "str", "required": True},
        "dest": {"type": "str", "required": True},
        "headers": {"type": "dict", "default": {}, "no_log": True},
    },
    "fleet_report": {
        "look": {"type": "str", "required": True},
        "info": {"type": "str"},
        "dest": {"type": "str", "required": True},
        "formats": {
            "type": "list",
            "elements": "str",
            "choices": ["json", "html", "junit", "prometheus"],
            "default": ["json", "html", "junit", "prometheus"],
        },
        "headers": {"type": "dict", "default": {}, "no_log": True},
        "title": {"type": "str", "default": "GPU fleet"},
        "clusters": {"type": "dict", "default": {}},
    },
    "fold_messages": {
        "variables": {"type": "list", "elements": "str", "required": True},
        "title": {"type": "str"},
        "least": {"type": "int", "default": 1},
        "include_failed": {"type": "bool", "default": False},
    },
    "run_result": {
        "playbook": {"type": "str", "required": True},
        "register": {"type": "str"},
        "clusters": {"type": "dict", "default": {}},
        "foreseen": {"type": "dict", "default": {}},
        "finished": {"type": "bool", "default": True},
    },
    "validate_run": {"playbook": {"type": "str"}},
}
