# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hooks of NVIDIA for container engines that look in a folder for them (oci-hooks(5)): Podman and CRI-O.

Packages of the toolkit for RPM systems brought one up to 1.13. Beside CDI or the NVIDIA runtime it injects the driver
a second time, so that one of both fails.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Iterator, Sequence

from ..model import Document

if TYPE_CHECKING:
    from ...._core.protocols import Files

# The first is the default of the engines, the second the one that oci-hooks(5) gives to the administrator.
FOLDERS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
FILE = "oci-nvidia-hook.json"
PROGRAMS = ("oci-nvidia-hook", "nvidia-container-runtime-hook", "nvidia-container-toolkit", "nvidia-container-hook")


def find_hooks(files: Files, folders: Sequence[str] = FOLDERS) -> Iterator[Document]:
    """The files that let an engine run a hook of NVIDIA."""
    for folder in dict.fromkeys(folder.rstrip("/") for folder in folders):
        for name in files.names(folder):
            path = f"{folder}/{name}"
            text = files.read_optional(path) if name.endswith(".json") and not files.is_folder(path) else None
            if text is not None and (name == FILE or _program(text) in PROGRAMS):
                yield Document(path, text)


def _program(text: str) -> str:
    """The name of the program that a hook starts; version 0.1.0 of the format has its path at the top."""
    try:
        said = json.loads(text)
        hook = said.get("hook", {})
        return os.path.basename(str(hook if isinstance(hook, str) else hook.get("path", "")))
    except (ValueError, AttributeError, RecursionError):
        return ""
