# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only RDMA has: set ports in a folder of configfs, and load the module for GPU memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Tuple

from ..._core import steps as shared
from ..._core.change import RunCommand
from ..._core.errors import Refused
from ..._kinds import steps
from .gpu_memory import MODULE
from .plan import LoadPeermem, SetInFolder

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

SECONDS = 60.0
# What modprobe(8) says, what it means, and what helps. nvidia-peermem.c refuses itself by EINVAL where it was compiled
# against an RDMA stack without peer memory.
MEANINGS = (
    (
        "Invalid argument",
        "it was built for an RDMA stack that has no peer memory, as that of the kernel itself is",
        "set gpudirect: dma_buf, or install MLNX_OFED or DOCA and then build the NVIDIA driver again",
    ),
    (
        "Unknown symbol",
        "the RDMA stack that is loaded is not the one that it was built for",
        "build the NVIDIA driver again, such as by dkms install --force, after the RDMA stack was installed",
    ),
)


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, SetInFolder):
        set_in_folder(step.action, host)
    elif isinstance(step.action, LoadPeermem):
        load(host)
    else:
        steps.perform(step, host)


def set_in_folder(action: SetInFolder, host: Host) -> None:
    """Raises ``Refused`` where the kernel takes one of the values not; then the device is as before."""
    make = RunCommand(("mkdir", action.folder), f"make the folder of {action.device} in configfs")
    leave = RunCommand(("rmdir", action.folder), f"remove the folder of {action.device} in configfs")
    if not action.leaves:
        shared.run(make, host)
    done: List[Tuple[str, str]] = []
    try:
        for path, text in action.texts:
            before = host.files.read(path).strip()
            host.files.write_attribute(path, text)
            done.append((path, before))
        if action.leaves:
            shared.run(leave, host)
    except (OSError, Refused) as error:
        for path, before in reversed(done):
            host.files.write_attribute(path, before)
        if not action.leaves:
            shared.run(leave, host)
        if isinstance(error, Refused):
            raise
        path, text = action.texts[len(done)]
        cause = f"the kernel refused {text} at {path}: {error.strerror or error}"
        raise Refused("set {}", object=action.device, cause=cause) from error


def load(host: Host) -> None:
    """Raises ``Refused`` with what it means that the module does not load."""
    try:
        completed = host.commands.run(("modprobe", MODULE), timeout=SECONDS)
    except OSError as error:
        raise Refused(f"load {MODULE}", cause=f"modprobe: {error.strerror or error}") from error
    if completed.status == 0:
        return
    said = (completed.errors or completed.output).strip()
    for words, cause, hint in MEANINGS:
        if words in said:
            raise Refused(f"load {MODULE}", cause=f"{cause} ({words})", hint=hint)
    last = said.splitlines()[-1] if said else f"exit status {completed.status}"
    raise Refused(f"load {MODULE}", cause=last, hint="see what the kernel says in journalctl -k")
