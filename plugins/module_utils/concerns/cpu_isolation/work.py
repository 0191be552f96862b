# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who works below a slice: what starts jobs and containers there, whether one runs or not, and what runs there now.

Slurm has the steps of jobs in system.slice, or in the slice that CgroupSlice= in cgroup.conf names, in
slurmstepd.scope, or in NODENAME_slurmstepd.scope if it was built with --enable-multiple-slurmd (its cgroup/v2 plugin).
Docker has containers in system.slice unless ``cgroup-parent`` says otherwise (its systemd driver, the default with
version 2). Other batch systems have jobs in the control group of their own service. Pods are below kubepods.slice.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from ..._kinds import workload
from ..._linux import systemd, unit_command
from ..._linux.cpusets import ROOT, SYSTEM, folder_of, has, slice_of

if TYPE_CHECKING:
    from ..._core.protocols import Files

SLURM, DOCKER = "slurmd.service", "docker.service"
# It starts Docker when somebody asks for it.
DOCKER_SOCKET = "docker.socket"
# Batch systems whose jobs are children of their daemon.
BATCH = ("condor.service", "lsfd.service", "pbs.service", "sgeexecd.service")
DAEMON_JSON = "/etc/docker/daemon.json"
QUADLETS = ("/etc/containers/systemd", "/usr/share/containers/systemd")


def launchers(files: Files, name: str) -> Iterator[str]:
    """What starts jobs or containers below a slice, now or at the next boot, with the reason that it is there."""
    unit_files = systemd.unit_files(files)

    def there(unit: str) -> bool:
        running = f"{folder_of(slice_of(files, unit))}/{unit}"
        return unit_files.status(unit) == systemd.ENABLED or files.exists(running)

    if there(SLURM) and has(name, workload.slice_of_jobs(files)):
        yield f"{SLURM} runs all jobs in {name}, below slurmstepd.scope or NODENAME_slurmstepd.scope"
    if (there(DOCKER) or there(DOCKER_SOCKET)) and docker_parent(files) == name:
        yield f"{DOCKER} runs containers in it, by cgroup-parent in {DAEMON_JSON}, or by default in {SYSTEM}"
    for unit in BATCH:
        if there(unit) and slice_of(files, unit) == name:
            yield f"{unit} runs jobs in its own control group"
    if name == SYSTEM:
        for folder in QUADLETS:
            for quadlet in files.names(folder):
                if quadlet.endswith((".container", ".kube", ".pod")):
                    yield f"{folder}/{quadlet} is a container that runs as a service"


def docker_parent(files: Files) -> str:
    """The slice of Docker's containers, empty where its driver knows none."""
    words = [word for word, _place in unit_command.read(files, DOCKER)]
    path = (_given(words, "config-file") or [DAEMON_JSON])[-1]
    try:
        values: Any = json.loads(files.read_optional(path) or "{}")
    except ValueError:
        values = {}
    values = values if isinstance(values, dict) else {}
    drivers = [*_given(words, "exec-opt"), *(values.get("exec-opts") or ())]
    parent = [*_given(words, "cgroup-parent"), values.get("cgroup-parent")]
    found = next((str(text) for text in parent if text), "")
    if found:
        return found.strip("/")
    return "" if "native.cgroupdriver=cgroupfs" in drivers else SYSTEM


def at_work(files: Files, name: str) -> Tuple[Tuple[str, str], ...]:
    """The containers and the jobs of Slurm that run below a slice, each with what it is."""
    folder = folder_of(name)
    return (
        *((_short(scope), "is a container") for scope in workload.containers_below(files, folder)),
        *((os.path.basename(job.folder), "is a job of Slurm") for job in workload.jobs_below(files, folder)),
    )


def on_gpus(files: Files, names: Iterable[str]) -> Mapping[str, Tuple[Tuple[str, str], ...]]:
    """By slice, the units that have a GPU open and are no daemons of the node."""
    folders = {name: folder_of(name)[len(ROOT) :] for name in names}
    found: Dict[str, Dict[Tuple[str, str], None]] = {name: {} for name in folders}
    for holder in workload.on_gpus(files):
        path = (files.read_optional(f"/proc/{holder.pid}/cgroup") or "").strip().rpartition("::")[2]
        for name, folder in folders.items():
            if path.startswith(f"{folder}/"):
                found[name][(_short(holder.unit or holder.name), "uses a GPU")] = None
    return {name: tuple(units) for name, units in found.items()}


def _short(name: str) -> str:
    """A scope of a container with as much of its id as its engine shows."""
    return re.sub(r"(?<![0-9a-f])([0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])", r"\1", name)


def _given(words: Iterable[str], option: str) -> List[str]:
    """The values of an option of dockerd, as ``--name=value`` or ``--name value``."""
    listed = [*words, ""]
    found = []
    for word, following in zip(listed, listed[1:]):
        name, equals, value = word.partition("=")
        if name == f"--{option}":
            found.append(value if equals else following)
    return found
