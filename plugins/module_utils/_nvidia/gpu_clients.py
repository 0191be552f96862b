# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who computes on GPUs: the holders of their device files that are not daemons of the node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Tuple

from . import holders

if TYPE_CHECKING:
    from .._core.protocols import Files

# They keep GPUs or switches open for the node, and run nothing on them. The name of a process has 15 characters.
DAEMONS = (
    "nv-fabricmanage",
    "nv-hostengine",
    "nvidia-imex",
    "nvidia-persiste",
    "nvlsm",
    "nvsm",
    "nvsm-api-gatewa",
    "nvsm-core",
    "nvsm-mqtt",
    "nvsm-notifier",
    "dcgm-exporter",
)


def find(files: Files) -> Tuple[str, ...]:
    """What a person calls them. Of processes that only root may look into nothing is known to others."""
    own = os.getpid()
    return tuple(
        holder.name
        for holder in holders.find(files).holders
        if holder.command not in DAEMONS and holder.pid != own and _parent(files, holder.pid) != own
    )


def _parent(files: Files, pid: int) -> int:
    """Who asks the driver for us is a child of ours."""
    from .._machine import processes

    try:
        process = processes.read(files, pid)
    except OSError:
        return 0
    return process.parent if process is not None else 0
