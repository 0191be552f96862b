# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only block queues have: set the values of a queue together, and check the rules before they
are written.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..._core import steps
from ..._core.change import Step
from ..._core.errors import Refused
from ..._core.setting import Scalar
from ..._core.value import frozen
from .plan import CheckRules, QueueValues, SetQueues
from .spec import NR_REQUESTS, SCHEDULER, TUNABLES, WBT

if TYPE_CHECKING:
    from ..._core.protocols import Host

CANDIDATE = "/run/gpufleet/nvme_scheduler.rules"
HINT = (
    "every other disk has its values, and the files for the next boot are as before; give this disk an entry of its "
    "own, or declare what it takes"
)
GONE_HINT = "run again without it; the files for the next boot are as before"


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, SetQueues):
        set_queues(step.action, host)
    elif isinstance(step.action, CheckRules):
        check_rules(step.action.text, host)
    else:
        steps.perform(step, host)


@frozen
class QueueRefusal:
    """The value that one queue did not take, and why."""

    queue: str
    setting: str
    value: Scalar
    found: Scalar
    cause: str
    gone: bool


def set_queues(action: SetQueues, host: Host) -> None:
    """Every queue gets its try. Raises ``Refused``, which names all that did not take a value."""
    refusals = [refusal for queue in action.queues for refusal in (set_queue(queue, host),) if refusal is not None]
    if not refusals:
        return
    first = refusals[0]
    others = [f"; {r.queue}, {r.setting} {r.value}: {r.cause}" for r in refusals[1:]]
    raise Refused(
        f"set {first.setting}",
        object=first.queue,
        cause=first.cause + "".join(others),
        found=None if first.gone else first.found,
        wanted=None if first.gone else first.value,
        hint=GONE_HINT if all(refusal.gone for refusal in refusals) else HINT,
    )


def set_queue(queue: QueueValues, host: Host) -> Optional[QueueRefusal]:
    """All values of one queue, or none: those already written are put back when one is refused."""
    written: List[str] = []
    for setting, value in queue.values:
        try:
            host.files.write_attribute(f"{queue.path}/{TUNABLES[setting].file}", str(value))
        except OSError as error:
            failed = _put_back(queue, written, host)
            gone = error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO)
            said = error.strerror or os.strerror(error.errno or 0)
            outcome = f"{', '.join(failed)} could not be restored" if failed else "its other values are as before"
            cause = "the device is gone" if gone else f"the kernel returned {said}; {outcome}"
            return QueueRefusal(queue.queue, setting, value, dict(queue.previous).get(setting), cause, gone)
        written.append(setting)
    return None


def _put_back(queue: QueueValues, written: List[str], host: Host) -> List[str]:
    """Put the previous values back, scheduler first, and return the settings for which that failed."""
    taken_along = (NR_REQUESTS, WBT) if SCHEDULER in written else ()
    failed = []
    for setting, value in queue.previous:
        if setting in written or setting in taken_along:
            try:
                host.files.write_attribute(f"{queue.path}/{TUNABLES[setting].file}", str(value))
            except OSError:
                failed.append(setting)
    return failed


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
        "load our udev rules",
        object=CANDIDATE,
        cause=f"udevadm verify reports: {said[0] if said else f'exit status {completed.status}'}",
        hint="nothing was changed; report this with the declaration",
    )
