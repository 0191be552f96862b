# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that do not respond: their settings are neither right nor can they be changed, and all others are converged."""

from __future__ import annotations

from typing import Tuple

from .._core.change import RoomAction
from .._core.errors import CannotLook
from .._core.setting import Setting
from .._core.value import frozen
from .errors import LOST_HINT

DRIVER = "driver"
ANSWERS = "answers"
LOST = "lost"


@frozen
class FailUnresponsive(RoomAction):
    """Fail for these GPUs, once all others have what is declared."""

    gpus: Tuple[str, ...]
    why: str


def setting(gpu: str) -> Setting:
    """What a lost GPU is asked for, so that no run ends well without it."""
    return Setting(gpu, DRIVER, ANSWERS, LOST, LOST, gpu)


def fail_unresponsive(action: FailUnresponsive) -> None:
    raise CannotLook("converge", object=", ".join(action.gpus), cause=action.why, hint=LOST_HINT)
