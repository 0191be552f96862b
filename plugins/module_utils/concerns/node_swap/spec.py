# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of swap, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, Optional

from ..._core.errors import DeclarationError
from ..._core.value import frozen

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

UNITS = {"M": 1024**2, "G": 1024**3, "T": 1024**4}


@frozen
class NodeSwapDeclaration:
    """Whether there is swap, and for ``enabled`` how many bytes our file has. ``changed`` is for ``state: absent``."""

    enabled: Optional[bool] = None
    size: int = 0
    changed: Optional[Baseline] = None


def parse(params: Mapping[str, Any]) -> NodeSwapDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    enabled, size = params["enabled"], params["size"]
    if enabled is None:
        raise DeclarationError(
            "read the declaration",
            cause="nothing is declared",
            hint="set enabled: false, or enabled: true with a size, or state: absent",
        )
    if not enabled:
        if size is not None:
            raise DeclarationError(
                "read the declaration",
                cause="size is that of a swap file, and enabled: false has none",
                hint="remove size, or set enabled: true",
            )
        return NodeSwapDeclaration(False)
    if size is None:
        raise DeclarationError("enable swap", cause="the swap file has no size", hint="set size, such as size: 8G")
    match = re.fullmatch(r"([1-9][0-9]{0,6})([MGT])(?:i?B)?", size)
    if match is None:
        raise DeclarationError(
            "set size",
            object="the swap file",
            cause="it is not a number with a unit (M, G or T)",
            wanted=size,
            hint="set a size such as 8G",
        )
    return NodeSwapDeclaration(True, int(match[1]) * UNITS[match[2]])
