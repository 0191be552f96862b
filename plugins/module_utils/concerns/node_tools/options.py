# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules/node_tools.py: change it there.

"""The options of ``node_tools``."""

from __future__ import annotations

from typing import Any, Mapping

OPTIONS: Mapping[str, Any] = {
    "archive_sha256": {"type": "str"},
    "boot_failure": {"type": "str", "choices": ["continue", "hold"], "default": "continue"},
    "boot_before": {
        "type": "list",
        "elements": "str",
        "default": [
            "nvidia-cdi-refresh.service",
            "nvidia-dcgm.service",
            "nvidia-dcgm-exporter.service",
            "dcgm-exporter.service",
            "docker.service",
            "containerd.service",
            "crio.service",
            "podman.service",
            "kubelet.service",
            "k3s.service",
            "k3s-agent.service",
            "rke2-server.service",
            "rke2-agent.service",
            "slurmd.service",
            "libvirtd.service",
            "virtqemud.service",
        ],
    },
    "boot_timeout": {"type": "int", "default": 300},
}
# What the controller hands over, which nobody declares.
SENT: Mapping[str, Any] = {"archive": {"type": "path"}}
