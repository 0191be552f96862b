# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of TODO, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ..._core.errors import DeclarationError
from ..._core.value import frozen


@frozen
class RdmaDeclaration:
    """What is declared; None for what is left alone."""

    setting: Optional[str] = None


def parse(params: Mapping[str, Any]) -> RdmaDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if params["setting"] is None:
        raise DeclarationError("read the declaration", cause="nothing is declared", hint="set setting")
    return RdmaDeclaration(params["setting"])
