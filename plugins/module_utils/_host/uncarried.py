# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only the boot service brings back, where that would not: refused before anything is set."""

from __future__ import annotations

from dataclasses import dataclass

from .._core.change import RoomAction
from .._core.errors import Refused


@dataclass(frozen=True)
class RefuseUncarried(RoomAction):
    """Refuse before anything changes. ``why`` is what ``boot_service.carries`` says."""

    why: str


def refuse(why: str) -> None:
    """Raises ``Refused`` with the reason and the way out of it."""
    cause, _semicolon, way = why.partition("; ")
    raise Refused("keep what is declared across a reboot", cause=cause, hint=f"{way} first, or say permanent: false")
