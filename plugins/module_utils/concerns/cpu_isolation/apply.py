# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What systemd leaves undone when it reads its units again: to give slices that are in use other CPUs, or all.

It applies what it has read to a slice when the next unit starts there (tried with 257). What it takes from a slice may
stay in force in the kernel nevertheless (systemd issue 43846). Or it switches the controller off, as soon as no unit
has a list of CPUs: then kernels leave every process the CPUs that it had (tried with 6.12), and no file tells of it. So
a slice gets all CPUs while it still has the controller.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ..._core.change import RunCommand
from ..._core.errors import Refused
from ..._core.steps import run
from ..._kinds import steps
from ..._linux import cpulist
from ..._linux.cpusets import ASKED
from .plan import ApplySlices, ReleaseCpus

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

# What kernels say to an empty list while processes are in the group, below it or in the midst of coming.
FULL = (errno.ENOSPC, errno.EINVAL, errno.EBUSY)


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, ApplySlices):
        for name in step.action.names:
            start_in(name, host)
    elif isinstance(step.action, ReleaseCpus):
        release(step.action, host)
    else:
        steps.perform(step, host)


def start_in(name: str, host: Host) -> None:
    """Start a service in the slice that ends at once and leaves nothing. Raises ``Refused`` with what systemd said."""
    argv = ("systemd-run", "--quiet", "--collect", "--wait", f"--slice={name}", "true")
    run(RunCommand(argv, f"apply the CPUs of {name}"), host)


def release(action: ReleaseCpus, host: Host) -> None:
    """Without a list where the kernel allows that, else with all CPUs that there may ever be, which limits as little.

    Raises ``Refused`` with what the kernel said.
    """
    path = f"{action.folder}/{ASKED}"
    # Where nobody asks for CPUs, or systemd has switched the controller off, there is nothing to end.
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
