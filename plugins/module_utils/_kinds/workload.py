# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is at work on a node and must not lose CPUs: jobs, pods, virtual machines, containers, whoever has a GPU open.

Control groups tell them, those of both versions. Slurm has the steps of a job in system.slice/slurmstepd.scope, with a
name in front where a node has several slurmd, and with version 1 below slurm (its guides to cgroup/v2 and cgroup/v1).
From 25.11 on, CgroupSlice= in cgroup.conf names another slice for version 2 (``_set_int_cg_ns`` in
src/plugins/cgroup/v2/cgroup_v2.c), and from 26.05 on, jobs go by their SLUID unless CgroupJobIdPaths=yes is there.
Pods are below kubepods, where kubelet and its drivers put them, virtual machines in machine.slice (libvirt,
systemd-machined), and containers are scopes beside the services, as their engines with the driver of systemd make them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Iterator

from .._core.regex import regex
from .._core.value import frozen
from .._linux import unit_command
from .._linux.cpusets import ROOT, SYSTEM, folder_of
from .._machine import processes
from .._machine.processes import OF_OTHERS
from .._nvidia import holders
from .._text.slurm_conf import CONFIGURATIONS, told_to_read, value_of

if TYPE_CHECKING:
    from .._core.protocols import Files
    from .._nvidia.holders import Holder, Prefix

# The hierarchy itself, or in the first version that of the controller which has the CPUs.
ROOTS = (ROOT, f"{ROOT}/cpuset")
# What uses GPUs for the node and not for a job: by its unit, whose name only root gives, or by its command where that
# is genuine. MPS serves jobs of other processes, which have the GPU open themselves.
UNITS = ("nvidia-*", "nv-*", "nvsm*", "dcgm*", "gpufleet-*")
COMMANDS = frozenset(
    processes.comm(name)
    for name in (
        "dcgm-exporter",
        "nv-fabricmanager",
        "nv-hostengine",
        "nvidia-cuda-mps-control",
        "nvidia-cuda-mps-server",
        "nvidia-device-plugin",
        "nvidia-imex",
        "nvidia-persistenced",
        "nvidia-smi",
    )
)

_SCOPE = regex(r"(?:.+_)?slurmstepd\.scope")
# 13 digits of Crockford's base 32 (``print_sluid`` in src/common/sluid.c).
_SLUID = "s[0-9A-HJKMNP-TV-Z]{13}"
_JOB = regex(rf"job_([0-9]+)|({_SLUID})")
_JOB_IN = regex(rf"/(?:job_([0-9]+)|(?:[^/]+_)?slurmstepd\.scope/({_SLUID}))(?=/|$)", re.MULTILINE)
SLURMD = "slurmd.service"
_CONTAINER = regex(r"(?:docker|nerdctl|cri-containerd|crio|libpod|buildkit)-.+\.scope")
# Of the three classes of pods only the guaranteed ones, which stand at the top, may have CPUs of their own.
_POD = regex(r"(?:kubepods-)?pod([0-9a-f_-]{32,36})(?:\.slice)?")
_MACHINE = regex(r"machine-(.+)\.scope")


@frozen
class Job:
    """A job of Slurm by its number, or its SLUID, and the folder of its control group."""

    number: str
    folder: str


def slice_of_jobs(files: Files) -> str:
    """The slice in which slurmd starts jobs with version 2. One that runs may have begun with another cgroup.conf."""
    words = [word for word, _place in unit_command.read(files, SLURMD)]
    path = next((path for path in (*told_to_read(words), *CONFIGURATIONS) if files.exists(path)), None)
    text = files.read_optional(f"{os.path.dirname(path)}/cgroup.conf") if path is not None else None
    found = (value_of(text or "", "CgroupSlice") or "").strip('"')
    return found if found.endswith(".slice") else SYSTEM


def jobs(files: Files) -> Iterator[Job]:
    """All jobs of Slurm that have something on this node, whatever the slice."""
    configured = folder_of(slice_of_jobs(files))[len(ROOT) :]
    for root in ROOTS:
        slices = [f"/{name}" for name in files.names(root) if name.endswith(".slice") and name not in OF_OTHERS]
        for parent in dict.fromkeys((root, *(f"{root}{one}" for one in (f"/{SYSTEM}", *slices, configured)))):
            for name in files.names(parent):
                if _SCOPE.fullmatch(name):
                    yield from jobs_in(files, f"{parent}/{name}")
                elif name.startswith("slurm"):
                    for user in files.names(f"{parent}/{name}"):
                        if user.startswith("uid_"):
                            yield from jobs_in(files, f"{parent}/{name}/{user}")


def jobs_below(files: Files, folder: str) -> Iterator[Job]:
    """The jobs of Slurm in a control group."""
    for name in files.names(folder):
        if _SCOPE.fullmatch(name):
            yield from jobs_in(files, f"{folder}/{name}")


def jobs_in(files: Files, folder: str) -> Iterator[Job]:
    """The jobs of one slurmd, or of one user."""
    for name in files.names(folder):
        job = _JOB.fullmatch(name)
        if job:
            yield Job(job[1] or job[2], f"{folder}/{name}")


def job_in(cgroup: str) -> str:
    """The job of Slurm that a process is of, by what /proc has as its control groups; empty where it is of none."""
    job = _JOB_IN.search(cgroup)
    return (job[1] or job[2]) if job else ""


def containers_below(files: Files, folder: str) -> Iterator[str]:
    """The scopes of containers in a control group in which something runs."""
    for name in files.names(folder):
        if _CONTAINER.fullmatch(name):
            events = files.read_optional(f"{folder}/{name}/cgroup.events") or ""
            if "populated 0" not in events:
                yield name


def pods(files: Files) -> Iterator[str]:
    """The pods that may have CPUs of their own, by their UIDs."""
    for root in ROOTS:
        for name in (*files.names(f"{root}/kubepods.slice"), *files.names(f"{root}/kubepods")):
            pod = _POD.fullmatch(name)
            if pod:
                yield pod[1].replace("_", "-")


def virtual_machines(files: Files) -> Iterator[str]:
    for root in ROOTS:
        for name in files.names(f"{root}/machine.slice"):
            machine = _MACHINE.fullmatch(name)
            if machine:
                yield machine[1]


def on_gpus(files: Files) -> Iterator[Holder]:
    """Who has a GPU open, without the daemons of the node and whatever asks the driver for us."""
    return (holder for holder in holders_of_gpus(files) if not is_of_the_node(holder))


def holders_of_gpus(files: Files, prefix: Prefix = holders.NVIDIA_DEVICES) -> Iterator[Holder]:
    """All who have one open but us, and the child of ours that asks the driver. ``prefix``: as of ``holders.find``."""
    own = os.getpid()
    return (holder for holder in holders.find(files, prefix).holders if not _is_ours(files, holder.pid, own))


def is_of_the_node(holder: Holder) -> bool:
    """Whether it watches GPUs, or serves them to others, and computes nothing itself."""
    return holder.is_daemon(COMMANDS, UNITS)


def _is_ours(files: Files, pid: int, own: int) -> bool:
    """Whether it is this process or a child of it, as the one is that asks the driver."""
    process = processes.read(files, pid)
    return pid == own or (process is not None and process.parent == own)
