# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/node_state.py: change it there.

"""The options of ``node_state``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "declared": {"type": "dict", "required": True},
    "excluded": {"type": "list", "elements": "str", "default": []},
    "detail": {"type": "str", "choices": ["brief", "devices", "full"], "default": "brief"},
    "expect": {"type": "str", "choices": ["nothing", "valid", "in_sync"], "default": "nothing"},
    "facts": {"type": "bool", "default": False},
    "no_diff": {"type": "list", "elements": "str", "default": []},
    "binding": {"type": "str", "default": "", "no_log": True},
}
