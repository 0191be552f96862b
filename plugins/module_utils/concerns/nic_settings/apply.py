# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only interfaces have: begin and end the way back of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core import steps as shared
from ..._core.baseline import STATE_FOLDER
from ..._core.change import RunCommand
from ..._core.errors import GpuFleetError, Refused
from ..._kinds import steps
from ..._linux.systemd_apply import attempt
from . import way_back
from .plan import BeginWayBack, EndWayBack

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

TIMER = f"{way_back.UNIT}.timer"
SECONDS = 30.0
NOT_THERE = "not loaded"


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, BeginWayBack):
        begin(step.action, host)
    elif isinstance(step.action, EndWayBack):
        end(host)
    else:
        steps.perform(step, host)


def begin(action: BeginWayBack, host: Host) -> None:
    """Raises ``Refused`` where systemd does not take the timer; then nothing has changed."""
    # One of an earlier run has the name that this one needs, and undoes what this one undoes too.
    _stop(host)
    previous = host.files.read_optional(way_back.RECORD)
    host.files.replace(way_back.RECORD, way_back.text_of(action.way_back), 0o600)
    command = RunCommand(way_back.command(host, action.way_back, action.seconds), "see to the way back")
    try:
        shared.run(command, host)
    except GpuFleetError:
        if previous is None:
            host.files.remove(way_back.RECORD)
        else:
            host.files.replace(way_back.RECORD, previous, 0o600)
        raise


def end(host: Host) -> None:
    """Raises ``Refused`` where the timer does not stop: then the changes are undone when it elapses."""
    said = _stop(host)
    if said:
        raise Refused("keep the change that was confirmed", cause=said, hint=f"run systemctl stop {TIMER}, then again")
    host.files.remove(way_back.RECORD)
    host.files.remove_folder(STATE_FOLDER)


def _stop(host: Host) -> str:
    """What went wrong, empty where no timer is left."""
    said = attempt(host, "stop", TIMER, seconds=SECONDS)
    return "" if NOT_THERE in said else said
