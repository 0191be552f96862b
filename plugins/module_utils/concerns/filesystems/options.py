# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/filesystems.py: change it there.

"""The options of ``filesystems``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "mounts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "str", "required": True},
            "source": {"type": "str", "default": ""},
            "fstype": {
                "type": "str",
                "choices": [
                    "beegfs",
                    "blobfuse2",
                    "ceph",
                    "efs",
                    "ext4",
                    "gcsfuse",
                    "gpfs",
                    "hf3fs",
                    "juicefs",
                    "lustre",
                    "mountpoint-s3",
                    "nfs",
                    "rclone",
                    "s3fs",
                    "tmpfs",
                    "wekafs",
                    "xfs",
                ],
                "required": True,
            },
            "options": {"type": "list", "elements": "str", "default": []},
            "made_of": {
                "type": "dict",
                "options": {
                    "drives": {"type": "list", "elements": "str", "required": True},
                    "name": {"type": "str", "default": ""},
                    "chunk_kb": {"type": "int", "default": 512},
                    "label": {"type": "str", "default": ""},
                    "ephemeral": {"type": "bool", "default": False},
                },
            },
            "read_ahead_kb": {"type": "int"},
            "tunables": {"type": "dict"},
        },
    },
}
