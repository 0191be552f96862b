# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only swap has: areas that go off and on, our file, and the units of fstab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.change import RunCommand, Step
from ..._core.errors import InUse
from ..._core.protocols import temporary_of
from ..._core.steps import run
from ..._kinds import steps
from ..._linux import swaps
from ..._linux.systemd_apply import reload_where_harmless
from .plan import CreateSwapFile, ReadFstab, SwapOff, SwapOn
from .state import SWAP_FILE

if TYPE_CHECKING:
    from ..._core.protocols import Host

# What was swapped comes back page by page, from a disk that may be slow.
SECONDS = 3600.0


def perform(step: Step, host: Host) -> None:
    action = step.action
    if isinstance(action, SwapOff):
        switch_off(action.path, host)
    elif isinstance(action, SwapOn):
        switch_on(action, host)
    elif isinstance(action, CreateSwapFile):
        create(action.size, host)
    elif isinstance(action, ReadFstab):
        reload_where_harmless(host)
    else:
        steps.perform(step, host)


def switch_off(path: str, host: Host) -> None:
    """Raises ``InUse`` where the memory has become too little since the plan, and ``Refused`` as swapoff(8) said."""
    areas = tuple(area for area in swaps.read_areas(host.files) if area.path == path)
    if not areas:
        # What was disabled may have been stopped by it.
        return
    obstacle = swaps.obstacle(areas, swaps.read_memory(host.files))
    if obstacle:
        raise InUse("switch {} off", object=path, cause=obstacle, hint="end what needs the memory, then run again")
    run(RunCommand(("swapoff", path), "switch swap off", SECONDS), host)


def switch_on(action: SwapOn, host: Host) -> None:
    priority = action.value.partition(" priority ")[2]
    words = ("-p", priority) if priority else ()
    run(RunCommand(("swapon", *words, action.path), "switch swap on"), host)


def create(size: int, host: Host) -> None:
    """The file is whole and formatted before it has its name, so that a run that is killed leaves none that is not."""
    new = temporary_of(SWAP_FILE)
    host.files.remove(new)
    try:
        run(RunCommand(("install", "--mode=0600", "/dev/null", new), "make the swap file"), host)
        run(RunCommand(("fallocate", "--length", str(size), new), "make the swap file", SECONDS), host)
        run(RunCommand(("mkswap", new), "format the swap file"), host)
        run(RunCommand(("mv", "--force", "--no-target-directory", new, SWAP_FILE), "name the swap file"), host)
    finally:
        host.files.remove(new)
