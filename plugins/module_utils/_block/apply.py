# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only block queues have. Imported when there is something to do."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, List, Tuple

from .._core import steps
from .._core.change import Step
from .._core.errors import Refused, Scalar
from .plan import CheckRules, SetQueue
from .spec import KNOBS, NR_REQUESTS, SCHEDULER, WBT

if TYPE_CHECKING:
    from .._host.protocols import Host

CANDIDATE = "/run/gpufleet/nvme_scheduler.rules"


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, SetQueue):
        set_queue(step.action, host)
    elif isinstance(step.action, CheckRules):
        check_rules(step.action.text, host)
    else:
        steps.perform(step, host)


def set_queue(action: SetQueue, host: Host) -> None:
    """All values of one queue, or none: raises ``Refused`` after those already written were put back."""
    written: List[str] = []
    for setting, value in action.values:
        try:
            host.files.set_knob(f"{action.path}/{KNOBS[setting].file}", str(value))
        except OSError as error:
            raise _refused(action, setting, value, error, _put_back(action, written, host)) from error
        written.append(setting)


def _put_back(action: SetQueue, written: List[str], host: Host) -> List[str]:
    """Put the values found back, scheduler first, and return the settings for which that failed."""
    taken_along = (NR_REQUESTS, WBT) if SCHEDULER in written else ()
    failed = []
    for setting, value in action.found:
        if setting in written or setting in taken_along:
            try:
                host.files.set_knob(f"{action.path}/{KNOBS[setting].file}", str(value))
            except OSError:
                failed.append(setting)
    return failed


def _refused(action: SetQueue, setting: str, value: Scalar, error: OSError, failed: List[str]) -> Refused:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return Refused(
            f"set {setting}", object=action.queue, cause="the device has gone meanwhile", hint="run again without it"
        )
    said = error.strerror or os.strerror(error.errno or 0)
    outcome = f"{', '.join(failed)} could not be put back" if failed else "its other values are as before"
    return Refused(
        f"set {setting}",
        object=action.queue,
        cause=f"the kernel answered {said}; {outcome}",
        found=dict(action.found).get(setting),
        wanted=value,
    )


def check_rules(text: str, host: Host) -> None:
    """Ask ``udevadm verify``, where there is one (systemd 254). Raises ``Refused`` with what it said."""
    program = host.commands.find("udevadm")
    if program is None:
        return
    host.files.replace(CANDIDATE, text)
    try:
        completed = host.commands.run((program, "verify", CANDIDATE), timeout=30.0)
    finally:
        host.files.remove(CANDIDATE)
    said: Tuple[str, ...] = tuple((completed.errors + completed.output).strip().splitlines())
    if completed.status == 0 or any("nknown command" in line for line in said):
        return
    raise Refused(
        "give our rules to udev",
        object=CANDIDATE,
        cause=f"udevadm verify says: {said[0] if said else f'exit status {completed.status}'}",
        hint="nothing was changed; report this with the declaration",
    )
