# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/fabric_manager.py: change it there.

"""The options of ``fabric_manager``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "service": {"type": "str"},
    "config": {"type": "dict", "default": {}},
    "hold": {"type": "bool", "default": True},
    "imex_nodes": {"type": "list", "elements": "str", "default": []},
    "imex_config": {"type": "dict", "default": {}},
    "imex_channel": {"type": "bool", "default": False},
}
