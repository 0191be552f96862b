# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who would lose CPUs that it was given: jobs of Slurm, pods with CPUs of their own, virtual machines, and whoever has
a GPU open.

Control groups tell them (Slurm's cgroup_v2 guide, kubelet's cgroup managers, libvirt): those of both versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, Tuple

from ..._core.regex import regex
from ..._machine import processes
from ..._nvidia import holders

if TYPE_CHECKING:
    from ..._core.protocols import Files

CGROUP = "/sys/fs/cgroup"
# The hierarchy itself, or in the first version that of the controller which has the CPUs.
ROOTS = (CGROUP, f"{CGROUP}/cpuset")
# What watches GPUs and computes nothing on them.
WATCHERS = tuple(
    processes.comm(name)
    for name in (
        "dcgm-exporter",
        "nv-fabricmanager",
        "nv-hostengine",
        "nvidia-device-plugin",
        "nvidia-persistenced",
        "nvidia-smi",
    )
)

_JOB = regex(r"job_([0-9]+)")
# Of the three classes of pods only the guaranteed ones, which stand at the top, may have CPUs of their own.
_POD = regex(r"(?:kubepods-)?pod([0-9a-f_-]{32,36})(?:\.slice)?")
_MACHINE = regex(r"machine-(.+)\.scope")


def find(files: Files) -> Tuple[str, ...]:
    """Their names, the jobs first."""
    found: Dict[str, None] = {}
    for name in (*_jobs(files), *_pods(files), *_machines(files)):
        found[name] = None
    for holder in holders.find(files).holders:
        if holder.command not in WATCHERS:
            found[holder.name] = None
    return tuple(found)


def _jobs(files: Files) -> Iterator[str]:
    for root in ROOTS:
        for parent in (root, f"{root}/system.slice"):
            for name in files.names(parent):
                if name.endswith("slurmstepd.scope"):
                    yield from _jobs_in(files, f"{parent}/{name}")
                elif name.startswith("slurm"):
                    for user in files.names(f"{parent}/{name}"):
                        if user.startswith("uid_"):
                            yield from _jobs_in(files, f"{parent}/{name}/{user}")


def _jobs_in(files: Files, folder: str) -> Iterator[str]:
    for name in files.names(folder):
        job = _JOB.fullmatch(name)
        if job:
            yield f"the job {job[1]} of Slurm"


def _pods(files: Files) -> Iterator[str]:
    for root in ROOTS:
        for name in (*files.names(f"{root}/kubepods.slice"), *files.names(f"{root}/kubepods")):
            pod = _POD.fullmatch(name)
            if pod:
                yield f"the pod {pod[1].replace('_', '-')}"


def _machines(files: Files) -> Iterator[str]:
    for root in ROOTS:
        for name in files.names(f"{root}/machine.slice"):
            machine = _MACHINE.fullmatch(name)
            if machine:
                yield f"the virtual machine {machine[1]}"
