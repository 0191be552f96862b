# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs of ours left on the node, whatever is declared now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Tuple

from .._core import baseline, declared
from .._core.contract import REBOOT_FOLDER

if TYPE_CHECKING:
    from .._core.protocols import Files


def managed(files: Files) -> Tuple[str, ...]:
    """The concerns that have something of ours on the node: a declaration, or the record of what was found."""
    return tuple(sorted({*declared.names(files), *declared.names(files, baseline.FOLDER)}))


def reboot_noted(files: Files) -> Dict[str, List[str]]:
    """The reasons for a reboot that runs noted since the last one, by concern."""
    return {name: _reasons(files, name) for name in files.names(REBOOT_FOLDER) if not name.startswith(".")}


def _reasons(files: Files, concern: str) -> List[str]:
    path = f"{REBOOT_FOLDER}/{concern}"
    try:
        return (files.read_optional(path) or "").splitlines()
    except OSError as error:
        # There are some, or there were no file.
        return [f"{path} cannot be read: {error.strerror}"]
