# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/gpu_virtualization.py: change it there.

"""The options of ``gpu_virtualization``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "gpus": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "driver": {"type": "str", "choices": ["vfio-pci", "nvidia"]},
            "vgpus": {
                "type": "list",
                "elements": "dict",
                "options": {"type": {"type": "str", "required": True}, "count": {"type": "int", "required": True}},
            },
            "optional": {"type": "bool", "default": False},
        },
    },
    "when_busy": {"type": "str", "choices": ["fail", "wait", "skip"], "default": "fail"},
    "busy_timeout": {"type": "int", "default": 600},
}
