# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that bring irqbalance to what is wanted of it, and how they are taken."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple

from ..._core import steps
from ..._core.change import RoomAction, RunCommand, Step
from ..._core.errors import Refused
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._kinds import units
from ..._kinds.units import RUNNING, SERVICE, START
from ..._linux import systemd_apply
from ..._linux.systemd_apply import RunService
from .irqbalance import (
    DEVICES,
    LEFT_ALONE,
    POLICY,
    SCRIPT,
    SCRIPT_TEXT,
    TEXT,
    UNIT,
    UNTOLD,
    IrqbalanceDaemon,
    WantedIrqbalance,
    process,
)

if TYPE_CHECKING:
    from ..._core.protocols import Host

SECONDS = 60.0
# systemd says that a service has started before it runs its program.
START_SECONDS = 10.0
POLL_SECONDS = 0.05


@frozen
class TellDevices(RoomAction):
    """Write the list of devices that are left alone, or remove it, and let a daemon that runs start anew to read it."""

    devices: Optional[Tuple[str, ...]]
    restart: bool

    @property
    def programs(self) -> Tuple[str, ...]:
        return (systemd_apply.SYSTEMCTL,) if self.restart else ()

    @property
    def restarts(self) -> Tuple[str, ...]:
        return (UNIT,) if self.restart else ()


def steps_of(daemon: IrqbalanceDaemon, want: WantedIrqbalance, made: Sequence[Setting]) -> Tuple[Step, ...]:
    """The steps of the next boot, and after them those of the running system."""
    wrong = [setting for setting in made if setting.status != IN_SYNC]
    boot: List[Step] = []
    for setting in wrong:
        if setting.setting == SCRIPT:
            boot.append(
                Step(
                    file_action(setting.object, SCRIPT_TEXT if setting.wanted else None, 0o755), (boot_change(setting),)
                )
            )
    by_name = {setting.setting: setting for setting in wrong if setting.setting != SCRIPT}
    write, reload = daemon.drop_in.steps(by_name.get(TEXT), want.drop_in)
    boot += (*write, *reload)
    if START in by_name:
        boot.append(units.start_step(by_name[START], daemon.status))
    return (*boot, *_running_steps(daemon, want, by_name))


def perform(step: Step, host: Host) -> None:
    action = step.action
    if isinstance(action, RunService):
        run_service(action.verb, host)
    elif isinstance(action, TellDevices):
        tell_devices(action, host)
    else:
        systemd_apply.perform(step, host)


def run_service(verb: str, host: Host) -> None:
    """Raises ``Refused`` with what systemd said, or where the daemon ends at once.

    Its order among the units does not count here: at boot it waits for the boot service, which may be who asks.
    """
    command = ("systemctl", "--job-mode=ignore-dependencies", verb, UNIT)
    steps.run(RunCommand(command, f"{verb} {UNIT}", SECONDS), host)
    if verb == "stop":
        return
    given_up = time.monotonic() + START_SECONDS
    while process(host.files) is None:
        if time.monotonic() >= given_up:
            raise Refused(
                f"{verb} {UNIT}", object=UNIT, cause="it is not running", hint=f"see journalctl --unit {UNIT}"
            )
        time.sleep(POLL_SECONDS)


def tell_devices(action: TellDevices, host: Host) -> None:
    """Whatever ends this between its first line and its last, the next look finds that it must be done again."""
    host.files.replace(UNTOLD, "")
    if action.devices is None:
        host.files.remove(DEVICES)
    else:
        host.files.replace(DEVICES, "".join(f"{address}\n" for address in action.devices))
    if action.restart:
        run_service("restart", host)
    host.files.remove(UNTOLD)


def _running_steps(daemon: IrqbalanceDaemon, want: WantedIrqbalance, wrong: Mapping[str, Setting]) -> List[Step]:
    made: List[Step] = []
    service = wrong.get(SERVICE)
    stop = service is not None and want.service != RUNNING
    if service is not None and stop:
        made.append(units.service_step(service))
    rows = [wrong[name] for name in (POLICY, LEFT_ALONE) if name in wrong and not wrong[name].pending]
    if rows:
        asks = rows[0].setting == POLICY or daemon.loaded == daemon.folder
        action = TellDevices(want.devices, restart=daemon.by_unit and asks and not stop)
        made.append(Step(action, tuple(effective_change(setting) for setting in rows)))
    if service is not None and not stop:
        made.append(units.service_step(service))
    return made
