# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Optional

from ..module_utils._node.facts.options import OPTIONS
from ..plugin_utils.asking_action import BINDING, AskingAction


class ActionModule(AskingAction):
    """Asks the program on the node for the facts, and sends the module where that cannot answer."""

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        known = {name: option for name, option in OPTIONS.items() if name != BINDING}
        _validated, arguments = self.validate_argument_spec(argument_spec=known)
        return {**result, **self.ask("gpufleet.node.gpu_node_info", arguments, task_vars or {})}
