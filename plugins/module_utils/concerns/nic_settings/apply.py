# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only interfaces have: begin and end the way back of a change."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..._core import steps as shared
from ..._core.baseline import STATE_FOLDER
from ..._core.change import RunCommand, WriteAttribute
from ..._core.errors import GpuFleetError, Refused
from ..._core.value import replace
from ..._kinds import steps
from ..._linux.systemd_apply import attempt
from ..._machine.boot_id import boot_id
from . import login, way_back
from .plan import BeginWayBack, EndWayBack, NoteMade, SetFunctions
from .refusals import undone

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host
    from .way_back import WayBack

SECONDS = 30.0
NOT_THERE = "not loaded"


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, BeginWayBack):
        begin(step.action, host)
    elif isinstance(step.action, NoteMade):
        note_made(host)
    elif isinstance(step.action, EndWayBack):
        end(step.action, host)
    elif isinstance(step.action, SetFunctions):
        set_functions(step.action, step, host)
    else:
        steps.perform(step, host)


def begin(action: BeginWayBack, host: Host) -> None:
    """Raises ``Refused`` where systemd does not take the timer; then nothing has changed, and an earlier one stays."""
    earlier = way_back.units(host)
    previous = host.files.read_optional(way_back.RECORD)
    _write(action.way_back, host)
    unit = way_back.unused(earlier)
    argv = way_back.command(host, action.way_back, unit=unit, seconds=action.seconds)
    try:
        shared.run(RunCommand(argv, "start the timer that undoes the change"), host)
    except GpuFleetError:
        _stop(unit, host)
        if previous is None:
            host.files.remove(way_back.RECORD)
        else:
            host.files.replace(way_back.RECORD, previous, 0o600)
        raise
    # The new one undoes what these undo too. Where one does not stop, that happens sooner.
    for name in earlier:
        _stop(name, host)


def note_made(host: Host) -> None:
    known = way_back.load(host.files)
    if known is not None:
        _write(known, host)


def end(action: EndWayBack, host: Host) -> None:
    """Raises ``Refused`` where a timer does not stop, or where its time was up meanwhile."""
    for name in way_back.units(host):
        said = _stop(name, host)
        if said:
            hint = f"run systemctl stop '{way_back.UNIT}*', then again"
            raise Refused("keep the change that was confirmed", cause=said, hint=hint)
    known = way_back.load(host.files)
    if action.made and known is not None and not known.made(way_back.current(host, known)):
        host.files.replace(way_back.RECORD, way_back.text_of(replace(known, told=True)), 0o600)
        raise undone(known)
    host.files.remove(way_back.RECORD)
    host.files.remove_folder(STATE_FOLDER)


def set_functions(action: SetFunctions, step: Step, host: Host) -> None:
    """Raises ``Refused`` where the card does not take the number; then it has as many as before."""
    if action.before and action.number:
        shared.perform(replace(step, action=WriteAttribute(action.path, "0")), host)
    try:
        shared.perform(replace(step, action=WriteAttribute(action.path, str(action.number))), host)
    except GpuFleetError:
        if action.before and action.number:
            with contextlib.suppress(OSError):
                host.files.write_attribute(action.path, str(action.before))
        raise


def _write(known: WayBack, host: Host) -> None:
    """The record, as of now."""
    made = replace(known, since=login.now(host.files), boot=boot_id(host.files))
    host.files.replace(way_back.RECORD, way_back.text_of(made), 0o600)


def _stop(name: str, host: Host) -> str:
    """What went wrong, empty where neither the timer is left nor what it starts, which may wait for the lock."""
    for unit in (f"{name}.timer", f"{name}.service"):
        said = attempt(host, "stop", unit, seconds=SECONDS)
        if said and NOT_THERE not in said:
            return said
    return ""
