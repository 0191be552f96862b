# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of persistence mode, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.value import frozen
from ..._nvidia import gpus

NAME = "nvidia_persistence"
SETTING = "persistence_mode"
ON = "on"
OFF = "off"


@frozen
class PersistenceDeclaration:
    """Either ``all`` GPUs alike, or entries with the mode of each; None for a mode leaves the GPU alone.

    ``force`` switches it off also where that takes memory from the machine.
    """

    all: Optional[str] = None
    entries: Tuple[match.MatchEntry, ...] = ()
    modes: Tuple[Optional[str], ...] = ()
    force: bool = False


def parse(params: Mapping[str, Any]) -> PersistenceDeclaration:
    """Raises ``DeclarationError`` unless exactly one of ``enabled`` and ``gpus`` is given, and on a wrong match."""
    if params["enabled"] is not None and params["gpus"]:
        raise DeclarationError(
            "read the declaration",
            cause="enabled is for all GPUs, and gpus is for each",
            hint="remove one of the two",
        )
    if params["enabled"] is None and not params["gpus"]:
        raise DeclarationError(
            "read the declaration", cause="nothing is declared", hint="set enabled: true, or give a list of gpus"
        )
    return PersistenceDeclaration(
        all=mode(params["enabled"]),
        entries=gpus.parse("gpus", params["gpus"]),
        modes=tuple(mode(entry.get("enabled")) for entry in params["gpus"]),
        force=params["force"],
    )


def mode(enabled: Optional[bool]) -> Optional[str]:
    return None if enabled is None else ON if enabled else OFF
