# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs on a node, as ``squeue`` lists them. Pure."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

from ..._core.errors import CannotLook
from ..._core.value import frozen

SEPARATOR = "|"
# Number, state, user, partition, what is left of its time limit. Not the name, which may have anything in it.
FORMAT = SEPARATOR.join(("%i", "%T", "%u", "%P", "%L"))
# A job that waits is on no node, also where a reservation names one.
WAITING = "PENDING"
SHOWN = 5


@frozen
class Job:
    """One job. ``time_left`` is as squeue has it, such as ``1-02:30:00`` or ``UNLIMITED``."""

    job: str
    state: str
    user: str
    partition: str
    time_left: str

    def __str__(self) -> str:
        return f"{self.job} of {self.user} ({self.state.lower()} in {self.partition}, {self.time_left.lower()} left)"

    def as_dict(self) -> Dict[str, str]:
        return dict(vars(self))


def parse_jobs(text: str) -> Tuple[Job, ...]:
    """The jobs that are on the node, in the order of squeue. Raises ``CannotLook`` on a line that is none."""
    jobs = []
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(SEPARATOR)]
        if len(fields) != len(FORMAT.split(SEPARATOR)):
            raise CannotLook("read the jobs of a node", cause="squeue returned an unexpected format", found=line)
        if fields[1] != WAITING:
            jobs.append(Job(*fields))
    return tuple(jobs)


def named(jobs: Sequence[Job]) -> str:
    """The jobs in words, the first few of many."""
    if not jobs:
        return "jobs that squeue does not show to this user"
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    return f"job{'s' if len(jobs) > 1 else ''} {', '.join(str(job) for job in jobs[:SHOWN])}{more}"
