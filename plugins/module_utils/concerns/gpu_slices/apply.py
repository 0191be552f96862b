# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only slices have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.change import RunCommand, Step
from ..._core.errors import InUse
from ..._core.steps import run
from ..._kinds import steps
from .files import cgroup_of
from .plan import StopSlices

if TYPE_CHECKING:
    from ..._core.protocols import Host


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, StopSlices):
        stop(step.action, host)
    else:
        steps.perform(step, host)


def stop(action: StopSlices, host: Host) -> None:
    """To stop a slice ends what runs in it. The launcher takes our lock before it starts anything, others do not."""
    for name in action.names:
        if "populated 1" in (host.files.read_optional(f"{cgroup_of(name)}/cgroup.events") or "").splitlines():
            error = InUse(
                "stop {}", object=name, cause="something was started in it", hint="run again once it has ended"
            )
            error.late = True
            raise error
    run(RunCommand(("systemctl", "stop", *action.names), "stop slices in which nothing runs"), host)
