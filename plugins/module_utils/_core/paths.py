# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths that a declaration names: which of them nothing can be kept at, whatever the machine."""

from __future__ import annotations

from typing import Tuple

# Of the kernel.
KERNEL_FOLDERS = ("proc", "sys", "dev")


def path_fault(path: str) -> Tuple[str, str]:
    """Why no file can be kept at a path, with what to do about it; two empty texts where one can."""
    if not path.startswith("/"):
        return f"is {path or 'empty'}, and must be an absolute path", ""
    if "\0" in path:
        return f"is {path!r}, and a path cannot contain a NUL", "leave it out"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return f"is {path}, and must not lead back by ..", "name the folder itself"
    if parts and parts[0] in KERNEL_FOLDERS:
        return f"is {path!r}, where nothing can be stored", "name a folder or file on a disk"
    return "", ""
