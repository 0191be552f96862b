# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes of the cluster are cordoned with our mark: ``kubernetes_drained_info``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

from .api_server import ApiServer

if TYPE_CHECKING:
    from .api_server import Ask


def run(ask: Ask) -> Dict[str, Any]:
    """The result of the module. Raises ``GpuFleetError``."""
    nodes = [{"name": node.name, "reason": node.mark} for node in ApiServer(ask, "").marked()]
    return {"changed": False, "nodes": nodes}
