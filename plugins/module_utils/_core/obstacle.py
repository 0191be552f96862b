# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a plan from being carried out for now, such as somebody who uses what would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from .change import Step
from .errors import GpuFleetError


@dataclass(frozen=True)
class Obstacle:
    """``error`` says what is in the way. A run waits up to ``patience`` seconds for it to go away.

    ``first`` is the step that is taken all the same, such as the end of a run that was killed.
    """

    error: GpuFleetError
    patience: float = 0.0
    first: Optional[Step] = None

    @property
    def final(self) -> bool:
        """Whether a run fails at once, before its first step."""
        return self.patience <= 0
