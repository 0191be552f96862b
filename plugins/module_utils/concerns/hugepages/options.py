# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/hugepages.py: change it there.

"""The options of ``hugepages``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "pools": {
        "type": "list",
        "elements": "dict",
        "options": {"size": {"type": "str", "required": True}, "pages": {"type": "int"}, "per_node": {"type": "dict"}},
    },
    "transparent": {
        "type": "dict",
        "options": {
            "enabled": {"type": "str", "choices": ["always", "madvise", "never"]},
            "defrag": {"type": "str", "choices": ["always", "defer", "defer+madvise", "madvise", "never"]},
            "shmem_enabled": {"type": "str", "choices": ["always", "within_size", "advise", "never", "deny", "force"]},
            "khugepaged": {
                "type": "dict",
                "options": {
                    "defrag": {"type": "bool"},
                    "pages_to_scan": {"type": "int"},
                    "scan_sleep_millisecs": {"type": "int"},
                    "alloc_sleep_millisecs": {"type": "int"},
                    "max_ptes_none": {"type": "int"},
                    "max_ptes_swap": {"type": "int"},
                    "max_ptes_shared": {"type": "int"},
                },
            },
            "sizes": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "size": {"type": "str", "required": True},
                    "enabled": {"type": "str", "choices": ["always", "inherit", "madvise", "never"]},
                    "shmem_enabled": {
                        "type": "str",
                        "choices": ["always", "inherit", "within_size", "advise", "never"],
                    },
                },
            },
        },
    },
    "on_shortage": {"type": "str", "choices": ["fail", "reboot"], "default": "fail"},
    "drop_caches": {"type": "bool", "default": False},
}
