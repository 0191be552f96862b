# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What systemd leaves in force: a slice that it shows without a limit, and the kernel with one (systemd issue 43846)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ..._core.errors import Refused
from ..._kinds import steps
from ..._linux import cpulist
from ..._linux.cpusets import ASKED
from .plan import ReleaseCpus

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

# What kernels say to an empty list while processes are in the group, below it or in the midst of coming.
FULL = (errno.ENOSPC, errno.EINVAL, errno.EBUSY)


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, ReleaseCpus):
        release(step.action, host)
    else:
        steps.perform(step, host)


def release(action: ReleaseCpus, host: Host) -> None:
    """Without a list where the kernel allows that, else with all CPUs that there may ever be, which limits as little.

    Raises ``Refused`` with what the kernel said.
    """
    path = f"{action.folder}/{ASKED}"
    # Where systemd has switched the controller off again, nothing is left.
    if not (host.files.read_optional(path) or "").strip():
        return
    try:
        host.files.write_attribute(path, "\n")
    except OSError as error:
        if error.errno not in FULL:
            raise _refused(path, error) from error
        try:
            host.files.write_attribute(path, cpulist.render(action.possible))
        except OSError as again:
            raise _refused(path, again) from again


def _refused(path: str, error: OSError) -> Refused:
    hint = "the limit that is left ends with the next boot"
    return Refused("give all CPUs back in {}", object=path, cause=error.strerror or str(error), hint=hint)
