# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only persistence mode has: switch the mode of GPUs, and restart a daemon that does not know one."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence, Tuple

from ..._core.change import Step
from ..._core.errors import GpuFleetError, Refused
from ..._kinds import steps
from ..._linux import systemd_apply
from ..._nvidia import reset_counts
from .daemon import SOCKET, UNIT
from .plan import SwitchModes
from .spec import ON, SETTING, mode

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from ..._nvidia.driver import Driver


def perform(step: Step, host: Host) -> None:
    action = step.action
    if isinstance(action, SwitchModes):
        switch_modes(action, host)
    else:
        steps.perform(step, host)


def switch_modes(action: SwitchModes, host: Host) -> None:
    going = [uuid for uuid, wanted in action.modes if wanted != ON]
    if going:
        reset_counts.note(host.files, going)
    try:
        host.nvml.ask(switch, action.modes)
    except Refused:
        if not (action.restart and host.files.exists(SOCKET)):
            raise
        # The daemon lists the GPUs when it starts, and refuses one that came later. We hold the others meanwhile: none
        # loses its state. Its own default counts again, so every GPU is looked at.
        systemd_apply.restart(host, UNIT)
        host.nvml.ask(switch, action.modes)
    finally:
        if action.reopen:
            host.nvml.close()


def switch(driver: Driver, modes: Sequence[Tuple[str, str]]) -> None:
    """A question: give each GPU (a UUID) its mode where it has another. One that refuses does not stop the others.

    Raises the error of the first, which names the others.
    """
    errors: List[GpuFleetError] = []
    for uuid, wanted in modes:
        try:
            gpu = driver.gpu(uuid)
            if mode(gpu.persistence_mode().value) != wanted:
                goal = f"{'enable' if wanted == ON else 'disable'} {SETTING}"
                gpu.change(goal, "nvmlDeviceSetPersistenceMode", int(wanted == ON))
        except GpuFleetError as error:
            errors.append(error)
    if not errors:
        return
    errors.sort(key=lambda error: not isinstance(error, Refused))
    if len(errors) > 1:
        errors[0].args = (f"{errors[0]} The same happened to {', '.join(error.object for error in errors[1:])}.",)
    raise errors[0]
