# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else runs MPS on this node: other control daemons, the device plugin of Kubernetes, and Slurm's gres/mps.

A control daemon is found by its socket: one file of the kernel lists those of all. One in a container with a network
of its own is not among them. The device plugin's leaves a mark in /run/nvidia/mps.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Iterable, Iterator, List, Sequence, Tuple

from ..._core.change import THEM, US, Conflict
from ..._machine import processes
from .control import PROGRAM
from .files import DEVICES, PIPES

if TYPE_CHECKING:
    from ..._core.protocols import Files

SOCKETS = "/proc/net/unix"
SOCKET = "/control_privileged"
# Where a daemon has its pipes that was not told.
DEFAULT_PIPES = "/tmp/nvidia-mps"
PLUGIN, PLUGIN_MARK = "/run/nvidia/mps", ".started"
SLURM = ("/etc/slurm", "/etc/slurm-llnl")
DAEMON = "another nvidia-cuda-mps-control"


def find(files: Files, ours: Iterable[str], devices: Sequence[str]) -> Tuple[Conflict, ...]:
    """All of them. ``ours`` are the directories of our pipes, ``devices`` the UUIDs that we serve.

    ``them`` wins where another daemon has one of these: a client is served by the one that it happens to find.
    """
    return (*_daemons(files, set(ours), devices), *_plugin(files), *_slurm(files))


def _daemons(files: Files, ours: Iterable[str], devices: Sequence[str]) -> Iterator[Conflict]:
    listed = (line.rpartition(" ")[2] for line in (files.read_optional(SOCKETS) or "").splitlines())
    folders = {path[: -len(SOCKET)] for path in listed if path.endswith(SOCKET)}.difference(ours)
    if not folders:
        return
    served = dict(_served(files))
    for folder in sorted(folders):
        theirs = served.get(folder, ())
        # Without a list it serves all. What is no UUID may mean any.
        both = not theirs or any(not one.startswith(("GPU-", "MIG-")) or one in devices for one in theirs)
        yield Conflict(DAEMON, folder, None, "GPUs", "control daemon", ",".join(theirs) or "all", THEM if both else US)


def _served(files: Files) -> Iterator[Tuple[str, Tuple[str, ...]]]:
    """The control daemons that run: the directory of their pipes, and the devices that they were given."""
    for pid in processes.ids(files):
        if processes.name_of(files, pid) != processes.comm(PROGRAM):
            continue
        command = processes.text_of(files, pid, "cmdline").split("\0")
        if os.path.basename(command[0]) != PROGRAM:
            continue
        variables = environment(files, pid)
        folder = next((line[len(PIPES) + 1 :] for line in variables if line.startswith(f"{PIPES}=")), DEFAULT_PIPES)
        given = next((line[len(DEVICES) + 1 :] for line in variables if line.startswith(f"{DEVICES}=")), "")
        yield folder.rstrip("/"), tuple(filter(None, given.split(",")))


def environment(files: Files, pid: str) -> List[str]:
    """The environment of a process as it was started; empty for one of somebody else."""
    try:
        return processes.text_of(files, pid, "environ").split("\0")
    except PermissionError:
        return []


def _plugin(files: Files) -> Iterator[Conflict]:
    """One mark for each resource, whose name may have a slash, as nvidia.com/gpu has."""
    outer = [f"{PLUGIN}/{name}" for name in files.names(PLUGIN)]
    inner = [f"{folder}/{name}" for folder in outer for name in files.names(folder)]
    for folder in (*outer, *inner):
        mark = f"{folder}/{PLUGIN_MARK}"
        if files.exists(mark):
            # It sets the compute mode of every GPU, and "default" when it ends.
            yield Conflict("the device plugin of Kubernetes", mark, None, "GPUs", "compute mode", "all", THEM)


def _slurm(files: Files) -> Iterator[Conflict]:
    """Slurm gives each job a percentage of its own, which a client may lower and never raise above ours."""
    for folder in SLURM:
        path = f"{folder}/gres.conf"
        for number, line in enumerate((files.read_optional(path) or "").splitlines(), start=1):
            if re.search(r"^[^#]*\bname=mps\b", line, re.IGNORECASE):
                yield Conflict(
                    "Slurm gres/mps", path, number, "GPUs", "active thread percentage", "that of each job", US
                )
                return
