# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that every room can take: write an attribute, replace or remove a file, run a command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .change import Refuse, RemoveFile, ReplaceFile, RunCommand, Step, WriteAttribute
from .errors import GpuFleetError, NotPermitted, Refused

if TYPE_CHECKING:
    from .protocols import Host


def perform(step: Step, host: Host) -> None:
    """Take one step of a kind all rooms share. Raises ``Refused`` or ``NotPermitted`` with what the system said."""
    action = step.action
    try:
        if isinstance(action, WriteAttribute):
            host.files.write_attribute(action.path, action.value)
        elif isinstance(action, ReplaceFile):
            host.files.replace(action.path, action.text, action.mode)
        elif isinstance(action, RemoveFile):
            host.files.remove(action.path)
        elif isinstance(action, RunCommand):
            run(action, host)
        elif isinstance(action, Refuse):
            if action.error is not None:
                raise action.error
        else:
            raise TypeError(f"{type(action).__name__} belongs to a room")
    except OSError as error:
        raise _explain(step, error) from error


def run(action: RunCommand, host: Host) -> str:
    """Run a command that must succeed and return its output."""
    try:
        completed = host.commands.run(action.argv, timeout=action.timeout)
    except OSError as error:
        raise Refused(f"{action.goal} with {{}}", object=action.argv[0], cause=error.strerror or str(error)) from error
    if completed.status != 0:
        said = (completed.errors or completed.output).strip().splitlines()
        raise Refused(
            f"{action.goal} with {{}}",
            object=" ".join(action.argv),
            cause=f"exit status {completed.status}: {said[-1] if said else 'no output'}",
        )
    return completed.output


def _explain(step: Step, error: OSError) -> GpuFleetError:
    action = step.action
    path = getattr(action, "path", "")
    cause = error.strerror or os.strerror(error.errno or 0)
    if isinstance(action, WriteAttribute) and step.changes:
        change = step.changes[0]
        return Refused(
            f"set {change.setting}",
            object=change.object,
            cause=f"the kernel refused the value at {path}: {cause}",
            found=change.before,
            wanted=change.after,
        )
    return NotPermitted("remove {}" if isinstance(action, RemoveFile) else "write {}", object=path, cause=cause)
