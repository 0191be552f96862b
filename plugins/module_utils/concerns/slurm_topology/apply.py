# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that only slurmctld has: other files and a restart, and the way back where it does not come up."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..._core import steps
from ..._core.errors import GpuFleetError, Refused
from ..._linux import systemd, systemd_apply
from ..._machine.slurmctld import Controller
from .plan import ChangeTopology
from .state import FAILED, NOTE, SLURMCTLD

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

RESTART_SECONDS = 120.0
# It reads its state of jobs before it answers.
ANSWER_SECONDS = 120.0
POLL_SECONDS = 0.5
LOG_SECONDS = 20.0
LOG_LINES = 100
# What slurmctld says of its start, once it has read slurm.conf.
STARTED = "started on cluster"
FATAL, ERROR = "fatal:", "error:"
INACTIVE = "inactive"
WIDEST = 500


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, ChangeTopology):
        change(step.action, host)
    else:
        steps.perform(step, host)


def change(action: ChangeTopology, host: Host) -> None:
    """Raises ``Refused`` with what slurmctld said last, and what came of the way back."""
    controller = Controller(host.commands)
    try:
        for path, text in zip(action.writes, action.texts):
            _write(host, path, text)
    except (GpuFleetError, OSError):
        # What cannot be written now is what could not be written before.
        with contextlib.suppress(OSError):
            _back(action, host)
        raise
    cause = _restart(host, controller)
    if not cause:
        # It is written anew before the next change, and gone at the next boot.
        with contextlib.suppress(OSError):
            host.files.remove(NOTE)
        return
    said = _log(host, action.log)
    raise Refused(
        "restart {} with this topology",
        object=SLURMCTLD,
        cause=f"{cause}{f'; it said: {said}' if said else ''}; {_return(action, host, controller)}",
        hint=f"see journalctl -u {SLURMCTLD} and its log file",
    )


def _return(action: ChangeTopology, host: Host, controller: Controller) -> str:
    """Bring back the files with which it ran, and start it. Returns what came of it."""
    try:
        _back(action, host)
    except OSError as error:
        return f"its former files could not be written: {error.strerror or error}"
    cause = _restart(host, controller)
    if cause:
        return f"its former files were restored, and with them {cause} too"
    with contextlib.suppress(OSError):
        host.files.remove(NOTE)
    return "its former files were restored, and with them it runs"


def _back(action: ChangeTopology, host: Host) -> None:
    for path, text in action.former.items():
        _write(host, path, text)


def _write(host: Host, path: str, text: Optional[str]) -> None:
    """Nothing is written that is there already."""
    if text == host.files.read_optional(path):
        return
    if text is None:
        host.files.remove(path)
    else:
        host.files.replace(path, text)


def _restart(host: Host, controller: Controller) -> str:
    """What went wrong, empty where slurmctld answers."""
    cause = systemd_apply.attempt_start(host, "restart", SLURMCTLD, seconds=RESTART_SECONDS)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not cause:
        answers = _answers(controller)
        state = _state(host)
        # A backup of it may have answered. Up to 23.11 systemd calls it started before it has read a file.
        if state in (FAILED, INACTIVE):
            return "it ended"
        if answers:
            return ""
        if time.monotonic() > deadline:
            return f"it did not respond within {ANSWER_SECONDS:.0f} s"
        time.sleep(POLL_SECONDS)
    return cause


def _answers(controller: Controller) -> bool:
    try:
        controller.configuration()
    except GpuFleetError:
        return False
    return True


def _state(host: Host) -> str:
    return "".join(
        "".join(block.get("ActiveState", [])) for block in systemd.show(host, ("ActiveState",), (SLURMCTLD,))
    )


def _log(host: Host, path: str) -> str:
    """Why it ended, in its own words: the last of its last start."""
    journal = ("journalctl", "-u", SLURMCTLD, "-n", str(LOG_LINES), "-o", "cat", "--no-pager")
    programs: List[Tuple[str, ...]] = [journal, *([("tail", "-n", str(LOG_LINES), path)] if path else [])]
    lines: List[str] = []
    for argv in programs:
        with contextlib.suppress(OSError):
            said = host.commands.run(argv, timeout=LOG_SECONDS).output.splitlines()
            begins = [number for number, line in enumerate(said) if STARTED in line]
            lines += said[begins[-1] :] if begins else said
    for sign in (FATAL, ERROR):
        found = [line[line.index(sign) :].strip() for line in lines if sign in line]
        if found:
            return found[-1][:WIDEST]
    return ""
