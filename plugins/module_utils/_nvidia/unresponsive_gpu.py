# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that do not respond: their settings are neither right nor can they be changed, and all others are converged."""

from __future__ import annotations

from typing import Tuple

from .._core.change import Refuse, Step
from .._core.errors import CannotLook
from .._core.setting import Setting
from . import errors

DRIVER = "driver"
ANSWERS = "answers"
LOST = "lost"


def setting(gpu: str) -> Setting:
    """What a lost GPU is asked for, so that no run ends well without it."""
    return Setting(gpu, DRIVER, ANSWERS, LOST, LOST, gpu)


def refuse(gpus: Tuple[str, ...]) -> Step:
    """Fail for these GPUs, once all others have what is declared."""
    return Step(Refuse(CannotLook("converge", object=", ".join(gpus), cause=errors.LOST, hint=errors.LOST_HINT)))
