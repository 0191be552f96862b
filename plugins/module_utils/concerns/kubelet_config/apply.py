# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that only a kubelet has: it is started, and gets its former files again where it does not come up."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Optional

from ..._core.errors import GpuFleetError, Refused
from ..._core.record import read_note, texts_of
from ..._kinds import steps
from ..._linux import systemd_apply
from .observation import is_healthy
from .plan import ChangeKubelet
from .state import NOTE

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

POLL_SECONDS = 0.5
# systemd kills a service that does not stop after 90 s, unless its unit says otherwise.
STOP_SECONDS = 120.0


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, ChangeKubelet):
        change(step.action, host)
    else:
        steps.perform(step, host)


def change(action: ChangeKubelet, host: Host) -> None:
    """Raises ``Refused`` with what the kubelet said last, and what was in the way of a step before its start."""
    verb = "restart" if action.runs and not action.away else "start"
    try:
        if action.away:
            # One that exits at each start is started by systemd all the time, and would write them again.
            systemd_apply.run_service(systemd_apply.RunService("stop", action.unit), host)
            _refuse_running(action, host)
        for path in action.away:
            host.files.remove(path)
        for path in action.writes:
            _write(host, path, action.text)
    except (GpuFleetError, OSError):
        # Nobody is left with a kubelet that we stopped.
        _back(action, host)
        raise
    cause = _start(action, host, verb)
    if not cause:
        # It is written anew before the next change, and gone at the next boot.
        with contextlib.suppress(OSError):
            host.files.remove(NOTE)
        return
    said = _log(host, action.unit)
    raise Refused(
        f"{verb} {{}}",
        object=action.unit,
        cause=f"{cause}{f'; its log: {said}' if said else ''}; {_back(action, host)}",
        hint=f"see journalctl -u {action.unit}",
    )


def _refuse_running(action: ChangeKubelet, host: Host) -> None:
    if action.healthz and is_healthy(host, action.healthz):
        raise Refused(
            "stop {}",
            object=action.unit,
            cause="systemctl stop exited with 0, but the kubelet still responds",
            hint=f"see journalctl -u {action.unit}",
        )


def _back(action: ChangeKubelet, host: Host) -> str:
    """Bring back the files with which it was healthy, and start it. Returns what came of it."""
    former = read_note(host.files, NOTE, texts_of)
    if former is not None:
        systemd_apply.attempt(host, "stop", action.unit, seconds=STOP_SECONDS)
        # What cannot be written now is what could not be written before.
        with contextlib.suppress(OSError):
            for path, text in former.items():
                _write(host, path, text)
    elif not action.runs:
        return "nothing is known of a configuration with which it was healthy"
    cause = _start(action, host, "start")
    if former is None:
        return "nothing is known of a configuration with which it was healthy"
    if cause:
        return f"its former files are back, and with them {cause} too"
    with contextlib.suppress(OSError):
        host.files.remove(NOTE)
    return "its former files are back, and with them it is healthy"


def _write(host: Host, path: str, text: Optional[str]) -> None:
    """Nothing is written that is there already."""
    if text is None:
        host.files.remove(path)
    elif host.files.read_optional(path) != text:
        host.files.replace(path, text)


def _start(action: ChangeKubelet, host: Host, verb: str) -> str:
    """What went wrong, empty where it is healthy."""
    before = systemd_apply.invocation(host, action.unit) if verb == "restart" else ""
    cause = systemd_apply.attempt_start(host, verb, action.unit, seconds=STOP_SECONDS + action.seconds)
    if not cause and before and systemd_apply.invocation(host, action.unit) == before:
        cause = systemd_apply.NOT_RESTARTED
    deadline = time.monotonic() + action.seconds
    while not cause:
        if is_healthy(host, action.healthz):
            return ""
        if time.monotonic() > deadline:
            cause = f"it was not healthy within {action.seconds} s"
        else:
            time.sleep(POLL_SECONDS)
    return cause


def _log(host: Host, unit: str) -> str:
    """The last error in its log."""
    try:
        completed = host.commands.run(["journalctl", "-u", unit, "-n", "40", "-o", "cat", "--no-pager"], timeout=20.0)
    except OSError:
        return ""
    lines = [line.strip() for line in completed.output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E", "F")) or "err=" in line]
    return (errors or lines or [""])[-1][:500]
