# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The clients of MPS as a person knows them, each with its user and its job or container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..._kinds import workload
from ..._machine import processes
from ..._nvidia import holders
from .state import Client

if TYPE_CHECKING:
    from ..._core.protocols import Files


def describe(files: Files, pid: int) -> Client:
    """A client that the daemon lists. One that ended meanwhile, or is not seen from here, has no name."""
    text = str(pid)
    cgroup = processes.text_of(files, text, "cgroup")
    return Client(pid, processes.name_of(files, text) or holders.UNKNOWN, _user(files, text), _job(cgroup))


def _user(files: Files, pid: str) -> str:
    """The name of its user, or the number where /etc/passwd has none, as of users of a directory."""
    uid = re.search(r"^Uid:\s*(\d+)", processes.text_of(files, pid, "status"), re.MULTILINE)
    if uid is None:
        return holders.UNKNOWN
    for line in (files.read_optional("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == uid[1]:
            return fields[0]
    return uid[1]


def _job(cgroup: str) -> str:
    job = workload.job_in(cgroup)
    if job:
        return f"job {job}"
    unit, container = processes.parse_cgroup(cgroup)
    return f"container {container[:12]}" if container else unit
