# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step of a tunable: a write, and what the kernel made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.change import WriteAttribute
from ..._core.errors import NotInEffect
from ..._kinds import steps
from .keys import AT_LEAST, found
from .spec import OBJECT
from .state import PROC

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host


def perform(step: Step, host: Host) -> None:
    """Take one step. Raises ``NotInEffect`` where the kernel took a value and made another one of it."""
    steps.perform(step, host)
    action = step.action
    if not isinstance(action, WriteAttribute):
        return
    key = action.path[len(PROC) + 1 :]
    now = found(host.files.read(action.path))
    if now == action.value or (key in AT_LEAST and int(now) >= int(action.value)):
        return
    raise NotInEffect(
        "set {}",
        object=f"{OBJECT} {step.changes[0].setting}",
        cause="the kernel took the value and made another one of it",
        found=now,
        wanted=action.value,
        hint="declare the value that the kernel makes of it, or leave the key out",
    )
