# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that only DCGM has: an exporter that is started, and seen to work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.errors import Refused
from ..._kinds import steps
from ..._linux import systemd, systemd_apply
from .steps import StartExporter

if TYPE_CHECKING:
    from ..._core.change import Change, Step
    from ..._core.protocols import Host

# It lists all GPUs before it answers; what does not within this time is looked at by the next run.
SECONDS = 20.0
POLL_SECONDS = 0.25
ENDED = ("failed", "inactive")


def perform(step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
    if isinstance(step.action, StartExporter):
        return start(step.action, step.changes, host)
    steps.perform(step, host)
    return None


def start(action: StartExporter, changes: Tuple[Change, ...], host: Host) -> Optional[Tuple[Change, ...]]:
    """Raises ``Refused`` where it does not start, or ends at once, as it does at a line that it does not know."""
    if systemd.reload_due(host, action.unit):
        # systemd must not read the unit yet, and would start it as before.
        return ()
    systemd_apply.run_service(systemd_apply.RunService(action.verb, action.unit), host)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            host.http_get(action.address, "/metrics")
            return changes
        except OSError:
            pass
        for block in systemd.show(host, ("Id", "ActiveState"), (action.unit,)):
            if block.get("ActiveState", [""])[0] in ENDED:
                raise Refused(
                    f"{action.verb} {{}}",
                    object=action.unit,
                    cause="it exited at once",
                    hint=f"check journalctl -u {action.unit} and /var/log/dcgm-exporter.log",
                )
        time.sleep(POLL_SECONDS)
    return changes
