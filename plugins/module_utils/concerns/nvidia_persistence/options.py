# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/nvidia_persistence.py: change it there.

"""The options of ``nvidia_persistence``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "enabled": {"type": "bool"},
    "gpus": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "enabled": {"type": "bool"},
            "optional": {"type": "bool", "default": False},
        },
    },
    "force": {"type": "bool", "default": False},
}
