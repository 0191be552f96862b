# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only MPS has: to start and stop daemons, never under a client, and to tell them limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.errors import InUse
from ..._kinds import steps
from ..._linux import systemd_apply
from . import control
from . import files as mps_files
from .observation import clients_of
from .plan import RunDaemon, TellDaemon

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, RunDaemon):
        run_daemon(step.action, host)
    elif isinstance(step.action, TellDaemon):
        pipes = mps_files.pipes_of(mps_files.key_of(step.action.unit))
        control.tell(host, pipes, step.action.commands)
    else:
        steps.perform(step, host)


def run_daemon(action: RunDaemon, host: Host) -> None:
    """Raises ``InUse`` where a client came since the look, and ``Refused`` with what systemd said."""
    clients = clients_of(host, action.unit) if action.verb != "start" else ()
    if clients:
        from .clients import describe

        error = InUse(
            f"{action.verb} {{}}",
            object=action.unit,
            cause=f"it is in use by {', '.join(describe(host.files, pid).name for pid in clients)}",
            hint="run again once they have ended",
        )
        error.late = True
        raise error
    systemd_apply.run_service(systemd_apply.RunService(action.verb, action.unit), host)
    if action.verb == "stop":
        # What it logged is kept.
        host.files.remove_folder(mps_files.logs_of(mps_files.key_of(action.unit)))
