# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/doc_fragments/contract.py: change it there.

"""The options that the modules of all concerns take."""

from __future__ import annotations

from typing import Any, Mapping

SHARED_OPTIONS: Mapping[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "immediate": {"type": "bool", "default": True},
    "permanent": {"type": "bool", "default": True},
    "strict": {"type": "bool", "default": False},
    "accepted": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "object": {"type": "str", "default": "*"},
            "setting": {"type": "str", "default": "*"},
            "owner": {"type": "str", "required": True},
            "reason": {"type": "str", "required": True},
            "until": {"type": "str"},
        },
    },
}
