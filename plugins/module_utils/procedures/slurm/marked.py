# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes of the cluster are drained with our mark: ``slurm_drained_info``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

from .controller import Controller

if TYPE_CHECKING:
    from ..._core.protocols import Host


def run(host: Host) -> Dict[str, Any]:
    """The result of the module. Raises ``GpuFleetError``."""
    nodes = [
        {
            "name": node.name,
            "node_state": node.state,
            "reason": node.reason,
            "drained_by": node.user,
            "since": node.since,
        }
        for node in Controller(host.commands).marked()
    ]
    return {"changed": False, "nodes": nodes}
