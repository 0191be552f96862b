# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/nic_settings.py: change it there.

"""The options of ``nic_settings``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "interfaces": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "default": {}},
            "optional": {"type": "bool", "default": False},
            "mtu": {"type": "int"},
            "combined_channels": {"type": "raw"},
            "rx_channels": {"type": "raw"},
            "tx_channels": {"type": "raw"},
            "rx_ring": {"type": "raw"},
            "tx_ring": {"type": "raw"},
            "adaptive_rx": {"type": "bool"},
            "adaptive_tx": {"type": "bool"},
            "rx_usecs": {"type": "int"},
            "tx_usecs": {"type": "int"},
            "rx_frames": {"type": "int"},
            "tx_frames": {"type": "int"},
            "offloads": {"type": "dict", "default": {}},
            "pause_autonegotiation": {"type": "bool"},
            "rx_pause": {"type": "bool"},
            "tx_pause": {"type": "bool"},
            "virtual_functions": {"type": "int"},
            "peers": {"type": "list", "elements": "str", "default": []},
        },
    },
    "confirm_timeout": {"type": "int", "default": 120},
}
