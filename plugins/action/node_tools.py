# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Optional

from ..plugin_utils.archive import build
from ..plugin_utils.file_transfer import FileTransferAction


class ActionModule(FileTransferAction):
    """Sends the archive of this release where the node has another one."""

    OPTION = "archive"
    FILE_NAME = "gpufleet.pyz"

    def content(self, arguments: Dict[str, Any]) -> Optional[bytes]:
        return None if arguments.get("state") == "absent" else build()
