# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Optional

from ..module_utils.concerns.nvml.spec import CONTROLLER, not_on_the_controller
from ..plugin_utils.binding import NoBinding, binding_of
from ..plugin_utils.file_transfer import FileTransferAction


class ActionModule(FileTransferAction):
    """Sends the controller's binding where the node has another one, or none."""

    OPTION = "pynvml"
    FILE_NAME = "pynvml.py"

    def content(self, arguments: Dict[str, Any]) -> Optional[bytes]:
        if arguments.get("state") == "absent" or arguments.get("source", CONTROLLER) != CONTROLLER:
            return None
        try:
            binding = binding_of(arguments.get("file") or "")
        except NoBinding as error:
            raise ValueError(str(not_on_the_controller(str(error)))) from None
        arguments["version"] = binding.version
        return binding.content
